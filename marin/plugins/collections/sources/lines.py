"""JSON lines (plain or packed), Parquet and plain text as documents; what is damaged is a problem with its place, never a guess.

A line or a row is an object with a text. Of its other fields the single values are kept as metadata, as are those below
``metadata``, or those that the settings name; ``added``, ``created`` and ``url`` keep their place. A plain text is one document;
whatever ends its lines is ``\n``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import orjson

from marin.data.lines.packed import MOST_RATIO, Damaged, reading, unpacked
from marin.data.lines.packed import SUFFIXES as PACKED
from marin.data.lines.parsing import field_of, parsed
from marin.plugins.collections.document import MOST_BYTES, Document, Problem, Scalar, document_id, encodable
from marin.plugins.collections.sources import earlier
from marin.plugins.collections.sources.table import Columns, NoTable, Unreadable, rows

TEXTS, LINES, PARQUET = (".txt",), (".jsonl", *(f".jsonl{packed}" for packed in PACKED)), ".parquet"
SUFFIXES = (*TEXTS, *LINES, PARQUET)
MARK = b"\xef\xbb\xbf"


def read(
    path: Path,
    source: str,
    *,
    text_field: str = "text",
    fields: tuple[str, ...] | None = None,
    start: int = 0,
    end: int = 0,
    first: int = 1,
    definition: int = 3,
) -> Iterator[Document | Problem]:
    """See :class:`marin.plugins.collections.document.Reader`.

    Args:
        text_field: where the text stands; ``a.b`` is ``b`` of the object ``a`` where no field has that name itself.
        fields: what is kept as metadata, an object or a list as its JSON; None for all single values.
        start, end: the lines that begin in these bytes of an unpacked JSON lines file, or row groups of a Parquet file; ``end`` 0
            for the whole file.
        first: the number of the first line or row there.
        definition: 1 as collections were read that say no other (:mod:`marin.plugins.collections.sources.earlier`), 2 with the
            carriage returns of a plain text.
    """
    name = path.name.lower()
    wanted = Columns(text_field, fields)
    if name.endswith(PARQUET):
        if definition == 1:
            yield from earlier.parquet(path, source, text_field, start, end, first)
        else:
            yield from _parquet(path, source, wanted, start, end, first)
    elif name.endswith(TEXTS):
        yield from _text(path, source, definition)
    else:
        yield from _lines(path, source, wanted, start, end, first, definition)


def _text(path: Path, source: str, definition: int) -> Iterator[Document | Problem]:
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
    if definition > 2 and "\r" in text:  # as Python opens a text
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    yield _document(source, 1, {"text": text}, Columns())


def _lines(
    path: Path, source: str, wanted: Columns, start: int, end: int, first: int, definition: int
) -> Iterator[Document | Problem]:
    number = first - 1
    for line in _bounded(path, source, start, end, first, definition):
        if isinstance(line, Problem):
            yield line
            continue
        number += 1
        line = line.removeprefix(MARK) if number == 1 else line
        if not line.strip():
            continue
        if len(line) > 2 * MOST_BYTES:
            yield Problem(source, number, "too large", f"more than {2 * MOST_BYTES} bytes")
            continue
        try:
            value = orjson.loads(line) if definition == 1 else parsed(line)
        except (ValueError, RecursionError) as error:
            yield Problem(source, number, "not UTF-8" if not _is_text(line) else "not JSON", str(error))
            continue
        if not isinstance(value, dict):
            yield Problem(source, number, "not an object", type(value).__name__)
        elif definition == 1:
            yield earlier.document(source, number, value, wanted.text)
        else:
            yield _document(source, number, value, wanted)


def _is_text(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _bounded(path: Path, source: str, start: int, end: int, first: int, definition: int) -> Iterator[bytes | Problem]:
    """Lines, one that is too long as its first bytes alone; what is damaged ends them with a problem."""
    number = first - 1
    with path.open("rb") as raw:
        raw.seek(start)
        stream = unpacked(raw, path.name, definition=definition)
        packed, size, limit = stream is not raw, 0, 2 * MOST_BYTES + 1
        try:
            with reading():
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
        except Damaged as error:
            yield Problem(source, number + 1, "damaged file", str(error))


def _parquet(
    path: Path, source: str, wanted: Columns, start: int, end: int, first: int
) -> Iterator[Document | Problem]:
    number = first - 1
    try:
        left, found = rows(path, wanted, start, end)
        for row in found:
            number += 1
            yield _document(source, number, row, wanted, left)
    except NoTable as error:
        yield Problem(source, number + 1 if number else 0, error.reason, error.found)


def _document(
    source: str, number: int, value: Mapping[str, object], wanted: Columns, left: tuple[str, ...] = ()
) -> Document | Problem:
    """``left``: fields that were not even read."""
    field = wanted.text
    try:
        text = value[field] if field in value else field_of(value, field)
    except KeyError:
        return Problem(source, number, "no text", "no such field")
    if isinstance(text, Unreadable):
        return Problem(source, number, "not UTF-8", text.found)
    if not isinstance(text, str):
        return Problem(source, number, "no text", type(text).__name__)
    if not text.strip():
        return Problem(source, number, "empty text")
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError as error:
        return Problem(source, number, "not Unicode", f"a lone surrogate at character {error.start}")
    if size > MOST_BYTES:
        return Problem(source, number, "too large", f"{size} bytes")
    metadata, more = _singles(value, field) if wanted.fields is None else _named(value, wanted.fields)
    if "position" in metadata:
        more.append("position")
    metadata["position"] = number
    return Document(
        document_id(source, number, text),
        text,
        source,
        _time(value.get("added")),
        _time(value.get("created")),
        metadata,
        (*left, *more),
    )


def _singles(value: Mapping[str, object], field: str) -> tuple[dict[str, Scalar], list[str]]:
    """The single values below ``metadata`` and beside the text, and the names of the others."""
    metadata: dict[str, Scalar] = {}
    left: list[str] = []
    found = value.get("metadata")
    inner: Mapping[str, object] | None = found if found is not None and isinstance(found, Mapping) else None
    for before, fields in (("", value),) if inner is None else (("metadata.", inner), ("", value)):
        for key, one in fields.items():
            if one is None or field in (key, before + key) or key in ("added", "created"):
                continue
            if isinstance(one, str | int):
                metadata[key] = one
            elif isinstance(one, float):
                metadata[key] = _finite(one)
            elif not _is_looked_into(one, inner, field.startswith(f"{before}{key}.")):
                left.append(before + key)
    return metadata, left


def _is_looked_into(one: object, inner: object, around: bool) -> bool:
    """Whether an object is the metadata, or holds the text and nothing beside it."""
    return isinstance(one, Mapping) and (one is inner or (around and len(one) == 1))


def _named(value: Mapping[str, object], names: tuple[str, ...]) -> tuple[dict[str, Scalar], list[str]]:
    """The fields of these names, beside the text or below ``metadata``, and which of them there are not."""
    metadata: dict[str, Scalar] = {}
    left: list[str] = []
    for name in names:
        try:
            one = field_of(value, name)
        except KeyError:
            try:
                one = field_of(value.get("metadata"), name)
            except KeyError:
                left.append(name)
                continue
        if isinstance(one, Unreadable):
            left.append(name)
        elif isinstance(one, float):
            metadata[name] = _finite(one)
        elif isinstance(one, str | int):
            metadata[name] = one
        elif one is not None:
            metadata[name] = json.dumps(one, ensure_ascii=False, separators=(",", ":"), default=lambda _: None)
    return metadata, left


def _finite(value: float) -> float | str:
    """A number that stays one in every JSON; NaN and infinities by the name that Python's json has for them."""
    return value if math.isfinite(value) else json.dumps(value)


def _time(value: object) -> str:
    return encodable(str(value)) if value and isinstance(value, str | int | float) else ""
