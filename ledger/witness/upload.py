"""A long body that is read piece by piece: cut into chunks by HTTP or of a known length, plain or gzip.

Its sender is a stranger: each piece has a deadline, and memory holds no more than the piece that was asked for, however
well the rest compresses.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Buffer, Callable, Mapping
from typing import BinaryIO, Protocol

from ledger.errors import Malformed

_CHUNK = re.compile(rb"([0-9a-fA-F]{1,8})[ \t]*(?:;[^\r\n]*)?\r?\n\Z")
_MAX_LINE = 1 << 10
_MAX_TRAILERS = 16


class Upload(Protocol):
    """What an endpoint reads of a body."""

    def begin(self) -> None:
        """A piece begins, which has its own deadline. For a sender who has earned it by the piece before."""

    def exactly(self, size: int) -> bytes:
        """So many bytes; ``Malformed`` where the body ends before, or is not a body."""


class Body:
    """The body of a request, read from the stream of its connection."""

    def __init__(self, stream: BinaryIO, *, length: int | None, zipped: bool, piece: Callable[[], None]) -> None:
        """``length`` is None for one that is cut into chunks; ``piece`` is called where a piece begins."""
        raw: io.RawIOBase = _Chunks(stream) if length is None else _Rest(stream, length)
        plain = io.BufferedReader(raw, 1 << 16)
        self._stream: BinaryIO | gzip.GzipFile = gzip.GzipFile(fileobj=plain) if zipped else plain
        self._piece = piece

    def begin(self) -> None:
        self._piece()

    def exactly(self, size: int) -> bytes:
        found = bytearray()
        try:
            while len(found) < size and (more := self._stream.read(min(size - len(found), 1 << 20))):
                found += more
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise Malformed("not a body in gzip", found=str(error)[:100]) from None
        if len(found) < size:
            raise Malformed("the body ends too early", expected=f"{size} bytes", found=f"{len(found)}")
        return bytes(found)


class _Rest(io.RawIOBase):
    """The next ``length`` bytes of a stream."""

    def __init__(self, stream: BinaryIO, length: int) -> None:
        super().__init__()
        self._source = stream
        self._left = length

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        view = memoryview(buffer).cast("B")[: self._left]
        data = self._source.read1(len(view)) if len(view) else b""  # type: ignore[attr-defined]
        view[: len(data)] = data
        self._left -= len(data)
        return len(data)


class _Chunks(io.RawIOBase):
    """The bytes of a body in the chunks of HTTP/1.1 (RFC 9112, section 7.1)."""

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__()
        self._source = stream
        self._left = 0
        self._begun = self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        if not self._left and not self._ended:
            self._next()
        view = memoryview(buffer).cast("B")[: self._left]
        data = self._source.read1(len(view)) if len(view) else b""  # type: ignore[attr-defined]
        if len(view) and not data:
            raise Malformed("the body ends within a chunk")
        view[: len(data)] = data
        self._left -= len(data)
        return len(data)

    def _next(self) -> None:
        if self._begun and self._source.readline(3) not in (b"\r\n", b"\n"):
            raise Malformed("a chunk is longer than it says")
        self._begun = True
        size = _CHUNK.match(self._source.readline(_MAX_LINE))
        if size is None:
            raise Malformed("not a chunk of a body")
        self._left = int(size[1], 16)
        self._ended = not self._left
        for _ in range(_MAX_TRAILERS if self._ended else 0):
            if self._source.readline(_MAX_LINE) in (b"\r\n", b"\n", b""):
                return


def bytes_upload(body: bytes, headers: Mapping[str, str]) -> Upload:
    """A body that is here whole."""
    zipped = headers.get("Content-Encoding") == "gzip"
    return Body(io.BytesIO(body), length=len(body), zipped=zipped, piece=lambda: None)
