"""Stat cache: which files were hashed before and have not been touched since. An accelerator, never evidence.

`Store.put_tree` asks it, so that putting an unchanged folder reads no file. Verification never does. A file
counts as untouched when device, inode, size, mtime and ctime are all the same. A file whose times are within
two seconds of the moment it was hashed, or ahead of it, is not remembered: it could change again without its
times showing it.

The cache is an SQLite file below `projections/` and may be deleted at any time. When it cannot be read or
written, putting works as if it were empty.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

_SETTLED_NANOSECONDS: Final = 2_000_000_000
_SCHEMA: Final = """
create table if not exists tree (listing text primary key, digest text not null) without rowid;
create table if not exists folder (
    path text primary key, state text not null, digests blob not null, tree text not null, size integer not null
) without rowid;
create table if not exists seen (
    path text primary key, device integer, inode integer, size integer, mtime integer, ctime integer,
    digest text not null, parts text
) without rowid;
"""
_log = logging.getLogger(__name__)


class Seen(NamedTuple):
    """What was found in a file, and what the system said of it then. A tuple, for 100,000 of them."""

    device: int
    inode: int
    size: int
    mtime: int
    ctime: int
    digest: str
    parts: str | None

    @classmethod
    def of(cls, status: os.stat_result, digest: str, parts: str | None) -> Seen:
        return cls(
            status.st_dev,
            status.st_ino,
            status.st_size,
            status.st_mtime_ns,
            status.st_ctime_ns,
            digest,
            parts,
        )

    def still(self, status: os.stat_result) -> bool:
        """Whether the file seems untouched."""
        return (
            self.ctime == status.st_ctime_ns
            and self.mtime == status.st_mtime_ns
            and self.size == status.st_size
            and self.inode == status.st_ino
            and self.device == status.st_dev
        )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A folder that was put: the state of all its files in one hash, the 32 bytes of each file's digest, and its tree."""

    state: str
    digests: bytes
    tree: str
    size: int


class StatCache:
    """The cache in one SQLite file; None stands for a store that has no local disk."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def below(self, folder: str) -> dict[str, Seen]:
        """What is known of the files below a folder, by absolute path."""
        base = folder.rstrip("/")
        bounds = (base + "/", base + "0")  # "0" follows "/" in ASCII

        def rows(database: sqlite3.Connection) -> dict[str, Seen]:
            found = database.execute("select * from seen where path > ? and path < ?", bounds)
            return {path: Seen._make(fields) for path, *fields in found}

        return self._use(rows, {})

    def snapshot(self, folder: str) -> Snapshot | None:
        """What is known of a folder as a whole."""

        def row(database: sqlite3.Connection) -> Snapshot | None:
            found = database.execute("select * from folder where path = ?", (folder,)).fetchone()
            return Snapshot(*found[1:]) if found else None

        return self._use(row, None)

    def remember_snapshot(
        self, folder: str, snapshot: Snapshot, statuses: Iterable[os.stat_result], hashed_at: int
    ) -> None:
        """Keep a folder as a whole, if none of its files could have changed without its times showing it."""
        latest = min(hashed_at, time.time_ns()) - _SETTLED_NANOSECONDS
        if self._path is None or any(s.st_mtime_ns > latest or s.st_ctime_ns > latest for s in statuses):
            return
        row = (folder, snapshot.state, snapshot.digests, snapshot.tree, snapshot.size)

        def insert(database: sqlite3.Connection) -> None:
            with database:
                database.execute("insert or replace into folder values (?, ?, ?, ?, ?)", row)

        self._use(insert, None)

    def of(self, path: str) -> Seen | None:
        """What is known of one file."""

        def row(database: sqlite3.Connection) -> Seen | None:
            found = database.execute("select * from seen where path = ?", (path,)).fetchone()
            return Seen._make(found[1:]) if found else None

        return self._use(row, None)

    def remember(self, seen: Mapping[str, Seen], hashed_at: int) -> None:
        """Keep what was found in files whose hashing began at `hashed_at` (nanoseconds since 1970)."""
        latest = min(hashed_at, time.time_ns()) - _SETTLED_NANOSECONDS
        rows = [
            (path, *s)
            for path, s in seen.items()
            if s.mtime <= latest and s.ctime <= latest
        ]

        def insert(database: sqlite3.Connection) -> None:
            with database:
                database.executemany("insert or replace into seen values (?, ?, ?, ?, ?, ?, ?, ?)", rows)

        if rows:
            self._use(insert, None)

    def tree(self, listing: str) -> str | None:
        """The digest of the tree whose files and digests have this fingerprint, if it was made before."""

        def row(database: sqlite3.Connection) -> str | None:
            found = database.execute("select digest from tree where listing = ?", (listing,)).fetchone()
            return str(found[0]) if found else None

        return self._use(row, None)

    def remember_tree(self, listing: str, digest: str) -> None:
        """Keep the digest of a tree by the fingerprint of its files."""

        def insert(database: sqlite3.Connection) -> None:
            with database:
                database.execute("insert or replace into tree values (?, ?)", (listing, digest))

        self._use(insert, None)

    def _use[T](self, work: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        if self._path is None:
            return otherwise
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self._path, timeout=5)) as database:
                database.execute("pragma journal_mode = wal")
                database.execute("pragma synchronous = normal")
                database.executescript(_SCHEMA)
                return work(database)
        except (sqlite3.Error, OSError) as error:
            _log.info("stat cache %s cannot be used: %s", self._path, error)
            if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
                self._path.unlink(missing_ok=True)  # damaged: the next put starts a new one
            return otherwise
