"""Rows in a private file instead of memory: what an execution comes to know, a graph of any size.

The file is a temporary database of SQLite, without a name: it is gone with the process that wrote it, however that ends,
and nobody else can open it.
"""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from ledger import StorageFailed, canonical_bytes

_SETTINGS = ("journal_mode=OFF", "synchronous=OFF", "cache_size=-256")
"""Nothing is to be there after a crash, and little of it is in memory: 256 KiB (https://sqlite.org/pragma.html)."""


class Rows:
    """Byte strings by the place that :meth:`append` answered. Used by one thread at a time.

    The file lies in the folder that SQLITE_TMPDIR or TMPDIR names, or in /var/tmp or /tmp, whichever is there first and can
    be written (https://sqlite.org/tempfiles.html, section 5). Each method raises ``StorageFailed`` where the disk does not
    do what it is asked for.
    """

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        weakref.finalize(self, self._database.close)
        for setting in _SETTINGS:
            self._database.execute(f"PRAGMA {setting}")
        self._database.execute("CREATE TABLE rows (place INTEGER PRIMARY KEY, row BLOB NOT NULL)")

    def append(self, row: bytes) -> int:
        """Keep ``row``; the answer is its place, from 1 on."""
        with _disk():
            place = self._database.execute("INSERT INTO rows (row) VALUES (?)", (row,)).lastrowid
        assert place is not None
        return place

    def read(self, place: int) -> bytes:
        """The row at ``place``."""
        with _disk():
            (row,) = self._database.execute("SELECT row FROM rows WHERE place = ?", (place,)).fetchone()
        assert isinstance(row, bytes)
        return row

    def __iter__(self) -> Iterator[bytes]:
        """All rows, oldest first."""
        with _disk():
            for (row,) in self._database.execute("SELECT row FROM rows ORDER BY place"):
                yield row


@contextmanager
def _disk() -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise StorageFailed(
            "a temporary file cannot be written or read",
            where="the folder of temporary files",
            found=str(error),
            expected="room for what an execution comes to know",
            cure="make room there, or name another folder with TMPDIR",
        ) from error


def canonical_list(items: Iterable[object]) -> Iterator[bytes]:
    """The canonical JSON of a list in pieces, so that a long one is never in memory as a whole."""
    yield b"["
    for number, item in enumerate(items):
        yield (b"," if number else b"") + canonical_bytes(item)
    yield b"]"
