"""WARC and WET files (ISO 28500), plain or .gz, as documents: one for each response or conversion that holds text.

Read here and not by a library because damage must have a name and a place: a gzip member cut short, a record that is shorter
than it says, a body that unpacks to more than a document may have. No limit is one of time, so the same bytes give the same
documents everywhere.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from marin.collection.document import Document, Problem
from marin.collection.sources.page import MOST_PAGE, page

MOST_HEAD = 1 << 16
"""Bytes of the header of a record or of a response."""
BLOCK = 1 << 16
TEXTUAL = ("text/html", "application/xhtml+xml", "text/plain")


class _Damaged(Exception):
    """The stream cannot be read further."""


class _Stream:
    """The bytes of a plain or gzipped file, of any number of members; damage is :class:`_Damaged`."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._ready = file, bytearray()
        self._packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        self._left, self._member = b"", None if not self._packed else zlib.decompressobj(31)
        self._inside = False

    def _more(self) -> bool:
        while True:
            data = self._left or self._file.read(BLOCK)
            self._left = b""
            if not data:
                if self._inside:
                    raise _Damaged("the file ends inside of a gzip member")
                return False
            if self._member is None:
                self._ready += data
                return True
            try:
                out = self._member.decompress(data, BLOCK)
            except zlib.error as error:
                raise _Damaged(str(error)) from None
            self._inside = not self._member.eof
            self._left = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
            if self._member.eof:
                self._member = zlib.decompressobj(31)
            if out:
                self._ready += out
                return True

    def head(self) -> bytes | None:
        """The lines up to an empty one; None at the end of the file."""
        while True:
            while self._ready.startswith((b"\r", b"\n")):
                del self._ready[: len(self._ready) - len(self._ready.lstrip(b"\r\n"))]
            end = self._ready.find(b"\r\n\r\n")
            if end >= 0:
                found = bytes(self._ready[:end])
                del self._ready[: end + 4]
                return found
            if len(self._ready) > MOST_HEAD:
                raise _Damaged(f"a header of more than {MOST_HEAD} bytes")
            if not self._more():
                if self._ready.strip():
                    raise _Damaged("the file ends inside of a header")
                return None

    def body(self, size: int, most: int) -> bytes:
        """``size`` bytes, of which the first ``most`` are given."""
        parts: list[bytes] = []
        given, left = 0, size
        while left:
            if not self._ready and not self._more():
                raise _Damaged(f"the file ends {left} bytes before the end of a record")
            count = min(left, len(self._ready))
            if given < most:
                parts.append(bytes(self._ready[: min(count, most - given)]))
                given += len(parts[-1])
            del self._ready[:count]
            left -= count
        return b"".join(parts)


def read_warc(path: Path, source: str) -> Iterator[Document | Problem]:
    """See :class:`marin.collection.document.Reader`. The position is that of the record in the file. Records of other
    types (requests, metadata) are no documents and no problems; a response that has no text is a problem that says so."""
    number = 0
    with path.open("rb") as file:
        stream = _Stream(file)
        try:
            while (head := stream.head()) is not None:
                number += 1
                first, _, rest = head.partition(b"\r\n")
                if not first.startswith(b"WARC/"):
                    raise _Damaged("no WARC record begins here")
                fields = headers(rest)
                length = fields.get("content-length", "")
                if not re.fullmatch(r"[0-9]{1,18}", length):
                    raise _Damaged("a record without a length")
                body = stream.body(int(length), MOST_PAGE + MOST_HEAD + 1)
                kind = fields.get("warc-type", "")
                if kind in ("response", "conversion", "resource"):
                    yield _record(source, number, kind, fields, body, int(length))
        except _Damaged as error:
            yield Problem(source, number + 1, "damaged file", str(error))


def headers(data: bytes) -> dict[str, str]:
    """Fields by name in small letters; of one that stands twice the values with a comma between (RFC 9110, 5.3)."""
    found: dict[str, str] = {}
    for line in data.split(b"\n"):
        name, colon, value = line.partition(b":")
        if colon:
            key, said = name.decode("latin-1").strip().lower(), value.decode("utf-8", "replace").strip()
            found[key] = f"{found[key]}, {said}" if key in found else said
    return found


def _record(
    source: str, number: int, kind: str, fields: Mapping[str, str], body: bytes, length: int
) -> Document | Problem:
    if length > MOST_PAGE + MOST_HEAD:
        return Problem(source, number, "too large", f"{length} bytes")
    response: Mapping[str, str] = {}
    if kind == "response":
        head, blank, body = body.partition(b"\r\n\r\n")
        status, _, rest = head.partition(b"\r\n")
        if not blank or not (told := re.match(rb"HTTP/[0-9.]+ ([0-9]{3})", status)):
            return Problem(source, number, "not HTTP", status[:80].decode("latin-1"))
        response = headers(rest)
        if told[1] != b"200":
            return Problem(source, number, "status not 200", told[1].decode())
        try:
            body = _content(body, response)
        except (_Damaged, zlib.error, ValueError) as error:
            return Problem(source, number, "damaged body", str(error))
        if len(body) > MOST_PAGE:
            return Problem(source, number, "too large", f"unpacks to more than {MOST_PAGE} bytes")
    said = (response if kind == "response" else fields).get("content-type", "")
    mime = fields.get("warc-identified-payload-type", "") or said.partition(";")[0].strip().lower() or "text/html"
    if mime not in TEXTUAL:
        return Problem(source, number, "not text", mime[:80])
    charset = re.search(r"charset=[\"']?([\w.:-]{1,40})", said, re.IGNORECASE)
    return page(
        source,
        number,
        body,
        mime=mime,
        charset=charset[1] if charset else ("utf-8" if kind == "conversion" else ""),
        url=fields.get("warc-target-uri", "").strip("<>"),
        added=fields.get("warc-date", ""),
        response=response,
    )


def _content(body: bytes, response: Mapping[str, str]) -> bytes:
    """A body without its transfer and content encodings, at most one byte longer than a page may be."""
    if response.get("transfer-encoding", "").lower() == "chunked":
        body = _unchunked(body)
    encoding = response.get("content-encoding", "").strip().lower()
    if encoding in ("gzip", "x-gzip"):
        return _unpacked(body, 31)
    if encoding == "deflate":
        try:
            return _unpacked(body, 15)
        except zlib.error:
            return _unpacked(body, -15)
    if encoding not in ("", "identity"):
        raise _Damaged(f"encoded by {encoding[:20]}")
    return body


def _unpacked(body: bytes, bits: int) -> bytes:
    one = zlib.decompressobj(bits)
    data = one.decompress(body, MOST_PAGE + 1)
    if not one.eof and len(data) <= MOST_PAGE:
        raise _Damaged("the body ends too early")
    return data


def _unchunked(body: bytes) -> bytes:
    """The chunks of RFC 9112, 7.1. A body that a crawler has put together already is given as it is."""
    parts: list[bytes] = []
    place = 0
    while (end := body.find(b"\r\n", place, place + 1024)) >= 0:
        size = re.fullmatch(rb"([0-9A-Fa-f]{1,8})(;.*)?", body[place:end].strip())
        if size is None:
            break
        count = int(size[1], 16)
        if not count:
            return b"".join(parts)
        parts.append(body[end + 2 : end + 2 + count])
        place = end + 4 + count
    if parts:
        raise _Damaged("the chunks end too early")
    return body
