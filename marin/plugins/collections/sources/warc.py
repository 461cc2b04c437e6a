"""WARC and WET files (ISO 28500), plain, .gz or .zst, as documents: one for each response or conversion that holds text.

Read here and not by a library because damage must have a name and a place: a gzip member cut short, a record that is shorter
than it says, a body that unpacks to more than a document may have. No limit is one of time, so the same bytes give the same
documents everywhere.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Protocol

from marin.plugins.collections.document import Document, Problem
from marin.plugins.collections.sources import response as responses
from marin.plugins.collections.sources.page import MOST_PAGE, XHTML, Rules, page

MOST_HEAD = 1 << 16
"""Bytes of the header of a record or of a response."""
BLOCK = 1 << 16
DICTIONARY, MOST_DICTIONARY = b"\x5d\x2a\x4d\x18", 16 << 20
TEXTUAL = ("text/html", XHTML, "text/plain")


class _Frames:
    """zstd's frames as zlib's object of a member: ``eof``, and what is left of the bytes."""

    def __init__(self, dictionary: bytes) -> None:
        import zstandard

        known = zstandard.ZstdCompressionDict(dictionary) if dictionary else None
        self._one, self._error = zstandard.ZstdDecompressor(dict_data=known).decompressobj(), zstandard.ZstdError
        self.eof, self.unused_data, self.unconsumed_tail = False, b"", b""

    def decompress(self, data: bytes, most: int) -> bytes:
        """What the first of the bytes unpack to: a block is 128 KiB at most, however few bytes it has."""
        try:
            found = self._one.decompress(data[:1024])
        except self._error as error:
            raise responses.Damaged(str(error)) from None
        self.eof = self._one.eof
        left = self._one.unused_data + data[1024:]
        self.unused_data, self.unconsumed_tail = (left, b"") if self.eof else (b"", left)
        return bytes(found)


class _Stream:
    """The bytes of a file, plain or of any number of gzip members or zstd frames; damage is ``Damaged``."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._ready, self._left = file, bytearray(), b""
        self._new = _unpacking(file)
        self._member = None if self._new is None else self._new()
        self._inside = False

    def _more(self) -> bool:
        while True:
            data = self._left or self._file.read(BLOCK)
            self._left = b""
            if not data:
                if self._inside:
                    raise responses.Damaged("the file ends inside of a gzip member or a zstd frame")
                return False
            if self._member is None or self._new is None:
                self._ready += data
                return True
            try:
                out = self._member.decompress(data, BLOCK)
            except zlib.error as error:
                raise responses.Damaged(str(error)) from None
            self._inside = not self._member.eof
            self._left = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
            if self._member.eof:
                self._member = self._new()
            if out:
                self._ready += out
                return True

    def head(self) -> bytes | None:
        """The lines up to an empty one; None at the end of the file."""
        while True:
            while self._ready.startswith((b"\r", b"\n")):
                del self._ready[: len(self._ready) - len(self._ready.lstrip(b"\r\n"))]
            if (end := responses.END.search(self._ready)) is not None:
                found = bytes(self._ready[: end.start()])
                del self._ready[: end.end()]
                return found
            if len(self._ready) > MOST_HEAD:
                raise responses.Damaged(f"a header of more than {MOST_HEAD} bytes")
            if not self._more():
                if self._ready.strip():
                    raise responses.Damaged("the file ends inside of a header")
                return None

    def body(self, size: int, most: int) -> bytes:
        """``size`` bytes, of which the first ``most`` are given."""
        parts: list[bytes] = []
        given, left = 0, size
        while left:
            if not self._ready and not self._more():
                raise responses.Damaged(f"the file ends {left} bytes before the end of a record")
            count = min(left, len(self._ready))
            if given < most:
                parts.append(bytes(self._ready[: min(count, most - given)]))
                given += len(parts[-1])
            del self._ready[:count]
            left -= count
        return b"".join(parts)


def _unpacking(file: BinaryIO) -> Callable[[], _Member] | None:
    """What makes an object for the next member of a packed file, which is then at its beginning; None: it is not packed.

    The dictionary of the zstd profile of WARC (iipc, 1.0) stands in a first frame that is passed over, packed or plain.
    """
    begin = file.read(8)
    if begin.startswith(DICTIONARY) and len(begin) == 8:
        size = int.from_bytes(begin[4:], "little")
        dictionary = file.read(size) if size <= MOST_DICTIONARY else b""
        if len(dictionary) != size:
            raise responses.Damaged(f"a dictionary of more than {MOST_DICTIONARY} bytes, or one that is not there")
        if dictionary.startswith(responses.ZSTD):
            one = _Frames(b"")
            dictionary, left = b"", dictionary
            while left and not one.eof and len(dictionary) <= MOST_DICTIONARY:
                dictionary += one.decompress(left, BLOCK)
                left = one.unconsumed_tail
        return lambda: _Frames(dictionary)
    file.seek(0)
    if begin.startswith(responses.GZIP):
        return lambda: zlib.decompressobj(31)
    return (lambda: _Frames(b"")) if begin.startswith(responses.ZSTD) else None


class _Member(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    @property
    def unconsumed_tail(self) -> bytes: ...
    def decompress(self, data: bytes, most: int, /) -> bytes: ...


def read_warc(path: Path, source: str) -> Iterator[Document | Problem]:
    """See :class:`marin.plugins.collections.document.Reader`. The position is that of the record in the file. Records of other
    types (requests, metadata) are neither documents nor problems; a response that has no text is a problem that says so."""
    number = 0
    with path.open("rb") as file:
        try:
            stream = _Stream(file)
            while (head := stream.head()) is not None:
                number += 1
                first, _, rest = head.partition(b"\n")
                if not first.startswith(b"WARC/"):
                    raise responses.Damaged("no WARC record begins here")
                fields = responses.headers(rest)
                said = {each.strip() for each in fields.get("content-length", "").split(",")}
                length = said.pop()
                if said or not re.fullmatch(r"[0-9]{1,18}", length):
                    raise responses.Damaged("a record without a length")
                body = stream.body(int(length), MOST_PAGE + MOST_HEAD + 1)
                kind = fields.get("warc-type", "")
                if kind in ("response", "conversion", "resource"):
                    yield _record(source, number, kind, fields, body, int(length))
        except responses.Damaged as error:
            yield Problem(source, number + 1, "damaged file", str(error))


def _record(
    source: str, number: int, kind: str, fields: Mapping[str, str], body: bytes, length: int
) -> Document | Problem:
    if length > MOST_PAGE + MOST_HEAD:
        return Problem(source, number, "too large", f"{length} bytes")
    if "warc-segment-number" in fields:
        return Problem(source, number, "in segments", fields["warc-segment-number"][:20])
    said, truncated = fields.get("content-type", ""), fields.get("warc-truncated", "")
    if kind == "response" and (_is_http(said) or body.startswith(b"HTTP/")):
        try:
            found = responses.response(body)
        except responses.NotHttp as error:
            return Problem(source, number, "not HTTP", str(error))
        if found.status != "200":
            return Problem(source, number, "status not 200", found.status)
        try:
            body = responses.content(found, MOST_PAGE, cut=bool(truncated))
        except responses.Damaged as error:
            return Problem(source, number, "damaged body", str(error))
        said = found.fields.get("content-type", "")
    else:
        found = responses.Response("", {}, body)
    if len(body) > MOST_PAGE:
        return Problem(source, number, "too large", f"unpacks to more than {MOST_PAGE} bytes")
    served, charset = responses.media_type(said)
    mime = fields.get("warc-identified-payload-type", "").strip().lower() or served
    if not mime and responses.textual(body):
        mime = "text/html"
    if mime not in TEXTUAL:
        return Problem(source, number, "not text", (mime or said)[:80])
    return page(
        source,
        number,
        body,
        mime=mime,
        rules=_rules(served, mime),
        charset=charset or ("utf-8" if kind == "conversion" else ""),
        url=fields.get("warc-target-uri", "").strip("<>"),
        added=fields.get("warc-date", ""),
        truncated=truncated,
        response=found.fields,
    )


def _is_http(said: str) -> bool:
    """Whether a response's own type is that of a message; there are also those of DNS and FTP."""
    return responses.media_type(said)[0] in ("", "application/http")


def _rules(served: str, mime: str) -> Rules:
    """Those of the type that a server named, as in a browser; those of HTML where a crawler saw that it is some."""
    if served == XHTML:
        return "xml"
    return "text" if mime == "text/plain" and served != "text/html" else "html"
