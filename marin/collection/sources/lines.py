"""JSON lines (.gz, .zst), Parquet and plain text as documents; what is damaged is a problem with its place, never a guess.

A line or a row is an object with a text. Of its other fields those that are single values are kept as metadata, as are
those below ``metadata``; ``added``, ``created`` and ``url`` keep their place. A plain text is one document.
"""

from __future__ import annotations

import gzip
import io
import math
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeGuard

import orjson

from marin.collection.document import MOST_BYTES, Document, Problem, Scalar, document_id

if TYPE_CHECKING:
    from pyarrow import RecordBatch

TEXTS, LINES, PARQUET = (".txt",), (".jsonl", ".jsonl.gz", ".jsonl.zst"), ".parquet"
SUFFIXES = (*TEXTS, *LINES, PARQUET)
MOST_RATIO = 1000
"""How many times its packed bytes a compressed file may unpack to, beside one document."""
ROWS = 512


def read(
    path: Path, source: str, *, text_field: str = "text", start: int = 0, end: int = 0, first: int = 1
) -> Iterator[Document | Problem]:
    """See :class:`marin.collection.document.Reader`. ``[start, end)``: the lines that begin in these bytes of an unpacked JSON
    lines file, or row groups of a Parquet file, the first line or row of which has the number ``first``; ``end`` 0 for the whole
    file."""
    name = path.name.lower()
    if name.endswith(PARQUET):
        yield from _parquet(path, source, text_field, start, end, first)
    elif name.endswith(TEXTS):
        yield from _text(path, source)
    else:
        yield from _lines(path, source, text_field, start, end, first)


def _text(path: Path, source: str) -> Iterator[Document | Problem]:
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        yield Problem(source, 1, "too large", f"more than {MOST_BYTES} bytes")
        return
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        yield Problem(source, 1, "not UTF-8", f"byte {error.start}")
        return
    yield _document(source, 1, {"text": text}, "text")


def _lines(path: Path, source: str, field: str, start: int, end: int, first: int) -> Iterator[Document | Problem]:
    number = first - 1
    for line in _bounded(path, source, start, end, first):
        if isinstance(line, Problem):
            yield line
            continue
        number += 1
        line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
        if not line.strip():
            continue
        if len(line) > 2 * MOST_BYTES:
            yield Problem(source, number, "too large", f"more than {2 * MOST_BYTES} bytes")
            continue
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            yield Problem(source, number, "not UTF-8" if not _is_text(line) else "not JSON", str(error))
            continue
        if not isinstance(value, dict):
            yield Problem(source, number, "not an object", type(value).__name__)
            continue
        yield _document(source, number, value, field)


def _is_text(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _bounded(path: Path, source: str, start: int, end: int, first: int) -> Iterator[bytes | Problem]:
    """Lines, one that is too long as its first bytes alone; what is damaged ends them with a problem."""
    number = first - 1
    with ExitStack() as stack:
        raw = stack.enter_context(path.open("rb"))
        raw.seek(start)
        stream = _unpacked(raw, path.name.lower(), stack)
        packed, size, limit = stream is not raw, 0, 2 * MOST_BYTES + 1
        try:
            while (not end or raw.tell() < end) and (line := stream.readline(limit)):
                number += 1
                size += len(line)
                if packed and size > limit + MOST_RATIO * raw.tell():
                    yield Problem(source, number, "unpacks to too much", f"{size} bytes of {raw.tell()}")
                    return
                yield line
                while len(line) == limit and not line.endswith(b"\n") and (line := stream.readline(limit)):
                    size += len(line)
                    if packed and size > limit + MOST_RATIO * raw.tell():
                        yield Problem(source, number, "unpacks to too much", f"{size} bytes of {raw.tell()}")
                        return
        except (EOFError, zlib.error, gzip.BadGzipFile, OSError) as error:
            if isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile) and error.errno is not None:
                raise
            yield Problem(source, number + 1, "damaged file", str(error))
        except Exception as error:
            if type(error).__module__.partition(".")[0] != "zstandard":
                raise
            yield Problem(source, number + 1, "damaged file", str(error))


def _unpacked(raw: BinaryIO, name: str, stack: ExitStack) -> BinaryIO | gzip.GzipFile | io.BufferedReader:
    if name.endswith(".gz"):
        return stack.enter_context(gzip.GzipFile(fileobj=raw))
    if name.endswith(".zst"):
        return io.BufferedReader(_Whole(raw), 1 << 20)
    return raw


class _Whole(io.RawIOBase):
    """A zstd stream of any number of frames that must end with a frame's end."""

    def __init__(self, raw: BinaryIO) -> None:
        import zstandard

        self._new = zstandard.ZstdDecompressor
        self._raw = raw
        self._one = self._new().decompressobj()
        self._left, self._inside = b"", False
        self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        while not self._ready:
            data = self._left or self._raw.read(1 << 16)
            self._left = b""
            if not data:
                if self._inside:
                    raise EOFError("the file ends inside of a frame")
                return 0
            if not self._inside:
                self._one, self._inside = self._new().decompressobj(), True
            self._ready = self._one.decompress(data)
            if self._one.eof:
                self._left, self._inside = self._one.unused_data, False
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count


def _parquet(path: Path, source: str, field: str, start: int, end: int, first: int) -> Iterator[Document | Problem]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = first - 1
    try:
        with pq.ParquetFile(path) as file:
            if field not in file.schema_arrow.names:
                yield Problem(source, 0, "no text", f"columns {', '.join(file.schema_arrow.names)}"[:200])
                return
            groups = range(start, end or file.num_row_groups)
            for batch in file.iter_batches(ROWS, row_groups=groups):
                for row in _rows(batch):
                    number += 1
                    if isinstance(row, str):
                        yield Problem(source, number, "not UTF-8", row)
                    else:
                        yield _document(source, number, row, field)
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None and not isinstance(error, pa.ArrowException):
            raise
        yield Problem(source, number + 1 if number else 0, "damaged file", " ".join(str(error).split())[:200])


def _rows(batch: RecordBatch) -> Iterator[Mapping[str, object] | str]:
    """The rows of a batch; of one that is no UTF-8 what is wrong with it."""
    try:
        yield from batch.to_pylist()
        return
    except UnicodeDecodeError:
        pass  # one of them, or several
    for number in range(batch.num_rows):
        try:
            (row,) = batch.slice(number, 1).to_pylist()
        except UnicodeDecodeError as error:
            yield f"byte {error.start}"
        else:
            yield row


def _document(source: str, number: int, value: Mapping[str, object], field: str) -> Document | Problem:
    text = value.get(field)
    if not isinstance(text, str):
        return Problem(source, number, "no text", "no such field" if field not in value else type(text).__name__)
    if not text.strip():
        return Problem(source, number, "empty text")
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError as error:
        return Problem(source, number, "not Unicode", f"a lone surrogate at character {error.start}")
    if size > MOST_BYTES:
        return Problem(source, number, "too large", f"{size} bytes")
    metadata: dict[str, Scalar] = {}
    inner = value.get("metadata")
    for fields in (inner if isinstance(inner, Mapping) else {}, value):
        metadata |= {
            str(key): one for key, one in fields.items() if key not in (field, "added", "created") and _is_single(one)
        }
    return Document(
        document_id(source, number, text),
        text,
        source,
        str(value.get("added") or ""),
        str(value.get("created") or ""),
        metadata | {"position": number},
    )


def _is_single(value: object) -> TypeGuard[str | int | float]:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, str | int)
