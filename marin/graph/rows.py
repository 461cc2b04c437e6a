"""Rows in a private file instead of memory: what an execution comes to know, a graph of any size.

The file has no name, so it is gone with the process that wrote it, however that ends, and nobody else can open it: what
is read is what was written.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterable, Iterator

from ledger import StorageFailed, canonical_bytes

_LENGTH = 4
_READ = 1024
"""Bytes that are asked for at once; most rows are shorter."""


class Rows:
    """Byte strings by the place that :meth:`append` answered."""

    def __init__(self) -> None:
        self._descriptor = -1
        self._end = 0

    def append(self, row: bytes) -> int:
        """Keep ``row``; the answer is its place.

        Raises:
            StorageFailed: the folder of temporary files is full or cannot be written.
        """
        data, place = len(row).to_bytes(_LENGTH, "little") + row, self._end
        try:
            if self._descriptor < 0:
                self._open()
            while data:
                data = data[os.pwrite(self._descriptor, data, self._end + len(row) + _LENGTH - len(data)) :]
        except OSError as error:
            raise StorageFailed(
                "a temporary file cannot be written",
                where=tempfile.gettempdir(),
                found=str(error.strerror),
                expected="room for what an execution comes to know",
                cure="make room there, or name another folder with TMPDIR",
            ) from error
        self._end = place + _LENGTH + len(row)
        return place

    def read(self, place: int) -> bytes:
        """The row at ``place``."""
        data = os.pread(self._descriptor, _READ, place)
        size = int.from_bytes(data[:_LENGTH], "little")
        if size > _READ - _LENGTH:
            data = os.pread(self._descriptor, size + _LENGTH, place)
        return data[_LENGTH : _LENGTH + size]

    def __iter__(self) -> Iterator[bytes]:
        """All rows, oldest first."""
        place = 0
        while place < self._end:
            row = self.read(place)
            place += _LENGTH + len(row)
            yield row

    def _open(self) -> None:
        self._descriptor, name = tempfile.mkstemp(prefix="marin-rows-")
        weakref.finalize(self, os.close, self._descriptor)
        os.unlink(name)


def canonical_list(items: Iterable[object]) -> Iterator[bytes]:
    """The canonical JSON of a list in pieces, so that a long one is never in memory as a whole."""
    yield b"["
    for number, item in enumerate(items):
        yield (b"," if number else b"") + canonical_bytes(item)
    yield b"]"
