"""A file that lies far away, read forwards in pieces: anyone who reads it holds one piece of it in memory, whatever its size."""

from __future__ import annotations

import io
from typing import BinaryIO, Final

from ledger.format.budgets import BUDGETS, exceeded
from ledger.storage.port import Storage

PIECE: Final = 8 << 20
"""Bytes that are asked for at once."""


def open_by_ranges(storage: Storage, name: str) -> BinaryIO:
    """A stream over ``name``, forwards only. Raises as ``storage.read_range`` does, already here for the first piece.

    Raises:
        Malformed: from a read: there is more of it than a file of this name may have.
    """
    return io.BufferedReader(_Pieces(storage, name), PIECE)


class _Pieces(io.RawIOBase):
    def __init__(self, storage: Storage, name: str) -> None:
        super().__init__()
        self._storage, self._name, self._start = storage, name, 0
        self._piece = storage.read_range(name, 0, PIECE)
        self._is_last = len(self._piece) < PIECE

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object, /) -> int:
        target = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        if not self._piece and not self._is_last:
            self._piece = self._storage.read_range(self._name, self._start, PIECE)
            self._is_last = len(self._piece) < PIECE
            if self._start + len(self._piece) > (most := BUDGETS.of_file(self._name)):
                raise exceeded(
                    "a file goes on for longer than it may", self._name, f"{most} bytes", f"more than {most}"
                )
        given = min(len(target), len(self._piece))
        target[:given], self._piece = self._piece[:given], self._piece[given:]
        self._start += given
        return given
