"""Stat cache: which files were hashed before and have not been touched since. An accelerator, never evidence.

``Store.put_tree`` asks it, so that putting an unchanged folder reads no file. Verification never does. A file
counts as untouched when device, inode, size, mtime and ctime are all the same. A file whose times are within
two seconds of the moment it was hashed, or ahead of it, is not remembered: it could change again without its
times showing it.

A folder is one row, with what the system says of its files in columns: rows for 100,000 files would cost more than
reading them. The cache is an SQLite file below ``projections/`` and may be deleted at any time. When it cannot be read or
written, putting works as if it were empty.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sqlite3
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from itertools import starmap
from pathlib import Path
from typing import Final, NamedTuple

from ledger.store.trees.scan import ScannedFile

_SETTLED_NANOSECONDS: Final = 2_000_000_000
_SCHEMA: Final = """
create table if not exists folder (
    path text primary key, state text not null, tree text not null, size integer not null, digests blob not null,
    names text not null, which blob not null, times blob not null, parts text not null
) without rowid;
create table if not exists file (
    path text primary key, device integer, inode text, size integer, mtime integer, ctime integer,
    digest text not null, parts text
) without rowid;
"""
_log = logging.getLogger(__name__)


class Content(NamedTuple):
    """What is in a file: its digest, its length, and above 8 MiB the root of its parts. A tuple, for 100,000 of
    them."""

    digest: str
    size: int
    parts: str | None = None


class Status(NamedTuple):
    """What the system says of a file, as far as it shows that the file was touched."""

    device: int
    inode: int
    size: int
    mtime: int
    ctime: int

    @classmethod
    def of(cls, status: os.stat_result) -> Status:
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


class Listing:
    """What the system says of the files of a folder, in columns, in the order of their paths."""

    def __init__(self, files: Sequence[ScannedFile]) -> None:
        statuses = [file.status for file in files]
        self.names = "\0".join([file.path for file in files])
        # Numbers of devices and inodes take all 64 bits on some file systems.
        self.which = array("Q", [s.st_dev for s in statuses])
        self.which.extend([s.st_ino for s in statuses])
        self.which.extend([s.st_size for s in statuses])
        self.times = array("q", [s.st_mtime_ns for s in statuses])
        self.times.extend([s.st_ctime_ns for s in statuses])
        self._executable = bytes([bool(s.st_mode & 0o100) for s in statuses])

    @cached_property
    def state(self) -> str:
        """One hash over all of it: anyone who finds it again need not look at one file after the other."""
        hasher = hashlib.sha256(self.names.encode("utf-8", "surrogateescape"))
        for column in (self.which.tobytes(), self.times.tobytes(), self._executable):
            hasher.update(column)
        return hasher.hexdigest()

    def settled(self, latest: int) -> array[int]:
        """The times, with -1 in the place of those that came after ``latest``."""
        if not self.times or max(self.times) <= latest:
            return self.times
        return array("q", [when if when <= latest else -1 for when in self.times])


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A folder that was put: the state of all its files in one hash, the 32 bytes of each file's digest, and its
    tree."""

    state: str
    tree: str
    size: int
    digests: bytes


class StatCache:
    """The cache in one SQLite file; None stands for a store that has no local disk."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def snapshot(self, folder: str) -> Snapshot | None:
        """What is known of a folder as a whole."""

        def row(database: sqlite3.Connection) -> Snapshot | None:
            found = database.execute(
                "select state, tree, size, digests from folder where path = ?", (folder,)
            ).fetchone()
            return Snapshot(*found) if found else None

        return self._use(row, None)

    def contents(self, folder: str) -> dict[str, tuple[Status, Content]]:
        """What is known of each file of a folder, by its path in it."""

        def row(database: sqlite3.Connection) -> dict[str, tuple[Status, Content]]:
            query = "select names, which, times, digests, parts from folder where path = ?"
            found = database.execute(query, (folder,)).fetchone()
            return dict(_files(*found)) if found else {}

        return self._use(row, {})

    def remember_folder(
        self, folder: str, listing: Listing, contents: Sequence[Content], tree: str, hashed_at: int
    ) -> None:
        """Keep what was found in a folder whose hashing began at ``hashed_at`` (nanoseconds since 1970), and its tree.

        As a whole only if none of its files could have changed without its times showing it.
        """
        if self._path is None:
            return
        times = listing.settled(_latest(hashed_at))
        state = listing.state if times is listing.times else ""
        digests = bytes.fromhex("".join([content.digest[7:] for content in contents]))
        parts = {number: content.parts for number, content in enumerate(contents) if content.parts}
        size = sum([content.size for content in contents])
        values = (
            folder,
            state,
            tree,
            size,
            digests,
            listing.names.encode("utf-8", "surrogateescape"),
            listing.which.tobytes(),
            times.tobytes(),
            json.dumps(parts),
        )

        def insert(database: sqlite3.Connection) -> None:
            with database:
                database.execute("insert or replace into folder values (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)

        self._use(insert, None)

    def file(self, path: str) -> tuple[Status, Content] | None:
        """What is known of a file that was put by itself."""

        def row(database: sqlite3.Connection) -> tuple[Status, Content] | None:
            found = database.execute("select * from file where path = ?", (path,)).fetchone()
            if not found:
                return None
            device, inode, size, mtime, ctime, digest, parts = found[1:]
            return Status(device, int(inode), size, mtime, ctime), Content(digest, size, parts)

        return self._use(row, None)

    def remember_file(self, path: str, status: Status, content: Content, hashed_at: int) -> None:
        """Keep what was found in one file."""
        if max(status.mtime, status.ctime) > _latest(hashed_at):
            return
        values = (
            path,
            status.device,
            str(status.inode),
            status.size,
            status.mtime,
            status.ctime,
            content.digest,
            content.parts,
        )

        def insert(database: sqlite3.Connection) -> None:
            with database:
                database.execute("insert or replace into file values (?, ?, ?, ?, ?, ?, ?, ?)", values)

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
        except (sqlite3.Error, OSError, OverflowError, ValueError) as error:
            _log.info("stat cache %s cannot be used: %s", self._path, error)
            if not isinstance(error, sqlite3.OperationalError | OSError | OverflowError):
                self._path.unlink(missing_ok=True)  # damaged: the next put starts a new one
            return otherwise


def _latest(hashed_at: int) -> int:
    """A file with a later time may change again without its times showing it."""
    return min(hashed_at, time.time_ns()) - _SETTLED_NANOSECONDS


def _files(
    names: bytes, which: bytes, times: bytes, digests: bytes, parts: str
) -> Iterator[tuple[str, tuple[Status, Content]]]:
    """The columns of a folder as files again; ValueError if they are not of one length."""
    paths = names.decode("utf-8", "surrogateescape").split("\0") if digests else []
    numbers, moments, count = array("Q", which), array("q", times), len(paths)
    if len(numbers) != 3 * count or len(moments) != 2 * count or len(digests) != 32 * count:
        raise ValueError("columns of several lengths")
    roots = {int(number): str(root) for number, root in json.loads(parts).items()}
    spread = digests.hex()
    columns = (numbers[:count], numbers[count : 2 * count], numbers[2 * count :], moments[:count], moments[count:])
    for number, (path, status) in enumerate(zip(paths, starmap(Status, zip(*columns, strict=True)), strict=True)):
        digest = f"sha256:{spread[number * 64 : number * 64 + 64]}"
        yield path, (status, Content(digest, status.size, roots.get(number)))
