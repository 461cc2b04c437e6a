"""A stream over a large blob that reads it part by part and gives out no byte which it has not verified."""

from __future__ import annotations

import io
import os
from collections.abc import Callable

from ledger.store.parts import PART_SIZE, PartHashes


class PartStream(io.RawIOBase):
    """Reads a blob part by part and gives out none that does not match its hash."""

    def __init__(self, fetch: Callable[[int, int], bytes], parts: PartHashes) -> None:
        super().__init__()
        self._fetch, self._parts = fetch, parts
        self._position = 0
        self._index, self._data = -1, memoryview(b"")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._parts.size}[whence]
        if base + offset < 0:
            raise ValueError("a position before the start")
        self._position = base + offset
        return self._position

    def readinto(self, buffer: object, /) -> int:
        target = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        piece = self._piece(len(target))
        target[: len(piece)] = piece
        self._position += len(piece)
        return len(piece)

    def read_exactly(self, length: int) -> bytes:
        """``length`` bytes from here, across parts."""
        pieces = []
        while length:
            piece = self._piece(length)
            pieces.append(piece.tobytes())
            self._position += len(piece)
            length -= len(piece)
        return b"".join(pieces)

    def _piece(self, most: int) -> memoryview:
        if self._position >= self._parts.size:
            return memoryview(b"")
        index = self._position // PART_SIZE
        if index != self._index:
            start, end = self._parts.span(index)
            data = self._fetch(start, end - start)
            self._parts.check(index, data)
            self._index, self._data = index, memoryview(data)
        inside = self._position - index * PART_SIZE
        return self._data[inside : inside + most]
