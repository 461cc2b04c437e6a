"""Rows in a private file instead of memory: what an execution comes to know, a graph of any size.

The file is a temporary database of SQLite, without a name: it is gone with the process that wrote it, however that ends,
and nobody else can open it.
"""

from __future__ import annotations

import os
import sqlite3
import weakref
from collections.abc import Iterable, Iterator

from ledger import StorageFailed, canonical_bytes

_SETTINGS = ("journal_mode=OFF", "synchronous=OFF", "cache_size=-256")
"""Nothing is to be there after a crash, and little of it is in memory: 256 KiB (https://sqlite.org/pragma.html)."""


class Rows:
    """Byte strings by the place that :meth:`append` answered. Used by one thread at a time."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        weakref.finalize(self, self._database.close)
        for setting in _SETTINGS:
            self._database.execute(f"PRAGMA {setting}")
        self._database.execute("CREATE TABLE rows (place INTEGER PRIMARY KEY, row BLOB NOT NULL)")

    def append(self, row: bytes) -> int:
        """Keep ``row``; the answer is its place, from 1 on.

        Raises:
            StorageFailed: the folder of temporary files is full or cannot be written.
        """
        try:
            place = self._database.execute("INSERT INTO rows (row) VALUES (?)", (row,)).lastrowid
        except sqlite3.OperationalError as error:
            raise StorageFailed(
                "a temporary file cannot be written",
                where=os.environ.get("TMPDIR", "the folder of temporary files"),
                found=str(error),
                expected="room for what an execution comes to know",
                cure="make room there, or name another folder with TMPDIR",
            ) from error
        assert place is not None
        return place

    def read(self, place: int) -> bytes:
        """The row at ``place``."""
        (row,) = self._database.execute("SELECT row FROM rows WHERE place = ?", (place,)).fetchone()
        assert isinstance(row, bytes)
        return row

    def __iter__(self) -> Iterator[bytes]:
        """All rows, oldest first."""
        for (row,) in self._database.execute("SELECT row FROM rows ORDER BY place"):
            yield row


def canonical_list(items: Iterable[object]) -> Iterator[bytes]:
    """The canonical JSON of a list in pieces, so that a long one is never in memory as a whole."""
    yield b"["
    for number, item in enumerate(items):
        yield (b"," if number else b"") + canonical_bytes(item)
    yield b"]"
