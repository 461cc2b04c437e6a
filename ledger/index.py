"""The writer's index: which ids are in the log, where, and how far each stream is. Rebuilt whenever it does
not fit.

A small SQLite file below `projections/`. It follows the log without a sync of its own (write-ahead log,
synchronous NORMAL: a power cut loses its newest rows and never mixes them), and its cursor is the size and
root up to which it was folded, so that one that lags, runs ahead, or belongs to another history is seen as
such. Nobody but the holder of the log's lock opens it.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path

from ledger.errors import LedgerError, Malformed, StorageFailed
from ledger.event import Event
from ledger.tlog import tree_root
from ledger.view import LogView

_LOG = logging.getLogger(__name__)
_BATCH = 10_000
_QUERY = 500
_SCHEMA = """
CREATE TABLE IF NOT EXISTS ids (id TEXT PRIMARY KEY, idx INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS streams (stream TEXT PRIMARY KEY, next INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS cursor (one INTEGER PRIMARY KEY CHECK (one = 1), size INTEGER, root BLOB, time TEXT);
"""


class WriterIndex:
    """Ids and stream lengths of one log. Errors of SQLite mean: throw the file away and fold again."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._db = self._connect()

    def close(self) -> None:
        self._db.close()

    def follow(self, view: LogView) -> None:
        """Bring the index to the size of `view`, from its cursor if that fits, from nothing if not."""
        try:
            self._follow(view)
        except (sqlite3.Error, _DoesNotFit) as error:
            _LOG.warning("the index of the log is folded again: %s", error)
            self._discard()
            try:
                self._follow(view)
            except sqlite3.Error as again:
                raise _failed(again, self._path) from again

    def find(self, ids: Sequence[str]) -> dict[str, int]:
        """The indices of those events that are there, by id."""
        found: dict[str, int] = {}
        for at in range(0, len(ids), _QUERY):
            part = ids[at : at + _QUERY]
            marks = ",".join("?" * len(part))
            found.update(self._db.execute(f"SELECT id, idx FROM ids WHERE id IN ({marks})", part))  # noqa: S608
        return found

    def length(self, stream: str) -> int:
        """How many events the stream has, which is the next `seq`."""
        row = self._db.execute("SELECT next FROM streams WHERE stream = ?", (stream,)).fetchone()
        return 0 if row is None else int(row[0])

    def last_time(self) -> str:
        """The latest time of any event, or '' before the first."""
        row = self._db.execute("SELECT time FROM cursor").fetchone()
        return "" if row is None else str(row[0])

    def add(self, events: Iterable[Event], start: int, size: int, root: bytes) -> None:
        """The events from index `start` on, after which the log has this size and root."""
        latest = self.last_time()
        ids, streams = [], {}
        for index, event in enumerate(events, start):
            ids.append((event.id, index))
            streams[event.stream] = event.seq + 1
            latest = max(latest, event.time)
        with self._db:
            self._db.executemany("INSERT INTO ids VALUES (?, ?)", ids)
            self._db.executemany("INSERT OR REPLACE INTO streams VALUES (?, ?)", streams.items())
            self._db.execute("INSERT OR REPLACE INTO cursor VALUES (1, ?, ?, ?)", (size, root, latest))

    def _follow(self, view: LogView) -> None:
        row = self._db.execute("SELECT size, root FROM cursor").fetchone()
        size, root = (0, b"") if row is None else (int(row[0]), bytes(row[1]))
        checkpoint = view.checkpoint
        if size > checkpoint.size:
            raise _DoesNotFit(f"it knows {size} events of a log of {checkpoint.size}; was the log put back?")
        if size and tree_root(size, view.hash) != root:
            raise _DoesNotFit(f"it was folded from another log of {size} events")
        while size < checkpoint.size:
            end = min(size + _BATCH, checkpoint.size)
            events = [_decode(index, entry) for index, entry in view.entries(size, end)]
            self.add(events, size, end, tree_root(end, view.hash))
            size = end

    def _connect(self) -> sqlite3.Connection:
        try:
            if self._path is not None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
            return self._prepare()
        except sqlite3.DatabaseError as error:
            if self._path is None or isinstance(error, sqlite3.OperationalError):
                raise _failed(error, self._path) from error
            _LOG.warning("the index of the log is no database, and is made anew: %s", error)
            self._delete()
            return self._prepare()
        except OSError as error:
            raise StorageFailed(
                "could not make a folder", where=str(self._path), found=str(error.strerror)
            ) from error

    def _prepare(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._path or ":memory:", check_same_thread=False)
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            db.executescript(_SCHEMA)
        except sqlite3.Error:
            db.close()
            raise
        return db

    def _discard(self) -> None:
        self._db.close()
        self._delete()
        self._db = self._connect()

    def _delete(self) -> None:
        if self._path is not None:
            for suffix in ("", "-wal", "-shm"):
                Path(f"{self._path}{suffix}").unlink(missing_ok=True)


class _DoesNotFit(Exception):
    """The cursor is not one of this log."""


def _decode(index: int, entry: bytes) -> Event:
    try:
        return Event.decode(entry)
    except Malformed as error:
        raise Malformed(
            error.what, where=f"entry {index}", expected=error.expected, found=error.found
        ) from error


def _failed(error: sqlite3.Error, path: Path | None) -> LedgerError:
    return StorageFailed(
        "the index of the log cannot be kept",
        where=str(path or "memory"),
        found=str(error),
        cure="check the disk and its free space; the file may be deleted at any time, it is folded again from the log",
    )
