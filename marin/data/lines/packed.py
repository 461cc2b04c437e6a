"""Packed files (.gz, .zst, .xz, .bz2) as streams: any number of members or frames, the last of which has to end.

A frame of zstd says how much memory its reader needs, its window: ``zstd --long=31`` writes the largest, 2 GiB, which is read
here. (By default the program and the library refuse more than 128 MiB.)
"""

from __future__ import annotations

import gzip
import io
import lzma
import zlib
from bz2 import BZ2Decompressor
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, Protocol, cast

SUFFIXES = (".gz", ".zst", ".xz", ".bz2")
WINDOW = 1 << 31
"""Bytes of the largest window of zstd that is read."""
MOST_XZ = 1 << 31
"""Bytes of memory that reading a .xz may take: its level -9 takes 65 MiB."""
MOST_RATIO = 1000
"""How many times its packed bytes a packed file may unpack to, beside one line."""
_PIECE = 1 << 13  # unpacked at once, a piece of nothing but zeros is 256 MiB
_PIECE_1 = 1 << 16


class Damaged(Exception):
    """The file is not what its name says, or not all of it."""


class _One(Protocol):
    eof: bool
    unused_data: bytes

    def decompress(self, data: bytes, /) -> bytes: ...


def unpacked(raw: BinaryIO, name: str, *, definition: int = 2) -> BinaryIO:
    """The bytes of a file of this name, ``raw`` itself where it is not packed; read below :func:`reading`.

    Args:
        definition: 1: as collections were read that were recorded before this was 2; a window has at most 128 MiB.
    """
    name = name.lower()
    if name.endswith(".gz"):
        return cast(BinaryIO, gzip.GzipFile(fileobj=raw))
    make = _maker(name, definition)
    if make is None:
        return raw
    piece, padding = _PIECE_1 if definition == 1 else _PIECE, b"\0" if name.endswith(".xz") else b""
    return cast(BinaryIO, io.BufferedReader(_Whole(raw, make, piece, padding), 1 << 20))


def _maker(name: str, definition: int) -> Callable[[], _One] | None:
    if name.endswith(".zst"):
        import zstandard

        most = 0 if definition == 1 else WINDOW  # 0: what the library has by default
        return lambda: cast(_One, zstandard.ZstdDecompressor(max_window_size=most).decompressobj())
    if name.endswith(".xz"):
        return lambda: cast(_One, lzma.LZMADecompressor(memlimit=MOST_XZ))
    return cast(Callable[[], _One], BZ2Decompressor) if name.endswith(".bz2") else None


@contextmanager
def reading() -> Iterator[None]:
    """What a damaged file raises while it is read is :class:`Damaged`; what the machine says stays an OSError."""
    try:
        yield
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise Damaged(str(error)) from None
    except OSError as error:
        if error.errno is not None:
            raise
        raise Damaged(str(error)) from None
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "zstandard":
            raise
        raise Damaged(str(error)) from None


class _Whole(io.RawIOBase):
    """Frames, one after the other, that must end with a frame's end. ``padding``: what may stand behind each."""

    def __init__(self, raw: BinaryIO, make: Callable[[], _One], piece: int, padding: bytes) -> None:
        self._raw, self._make, self._piece, self._padding = raw, make, piece, padding
        self._one = make()
        self._left, self._inside, self._begun = b"", False, False
        self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        while not self._ready:
            data = self._left or self._raw.read(self._piece)
            self._left = b""
            if not data:
                if self._inside:
                    raise EOFError("the file ends inside of a frame")
                return 0
            if not self._inside:
                data = data.lstrip(self._padding) if self._begun and self._padding else data
                if not data:
                    continue
                self._one, self._inside, self._begun = self._make(), True, True
            self._ready = self._one.decompress(data)
            if self._one.eof:
                self._left, self._inside = self._one.unused_data, False
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count
