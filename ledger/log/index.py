"""The writer's index: which ids are in the log, where, and how far each stream is. Rebuilt whenever it does
not fit.

What was appended last is in memory; a few thousand events at a time go to a small SQLite file below
``projections/``, in one statement for all of them. The file follows the log without a sync of its own, and its
cursor is the size and root up to which it was folded, so that one that lags, runs ahead, or belongs to another
history is seen as such, and folds what it lacks. Nobody but the holder of the log's lock opens it.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from ledger.errors import Malformed
from ledger.format.event import parse_event
from ledger.format.tlog import tree_root
from ledger.log.database import DoesNotFit, FoldedDatabase
from ledger.log.view import LogView

_LOG = logging.getLogger(__name__)
_BATCH = 8_192
_SCHEMA = """
CREATE TABLE IF NOT EXISTS ids (id TEXT PRIMARY KEY, idx INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS streams (stream TEXT PRIMARY KEY, next INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS cursor (one INTEGER PRIMARY KEY CHECK (one = 1), size INTEGER, root BLOB, time TEXT);
"""
_json = msgspec.json.Encoder().encode


class WriterIndex:
    """Ids and stream lengths of one log. Errors of SQLite mean: throw the file away and fold again."""

    def __init__(self, path: Path | None) -> None:
        self._file = FoldedDatabase(path, "the index of the log", _SCHEMA, version=2)
        # Beyond the file: ids of the events from `_folded` on, in order, and lengths of their streams.
        self._recent: dict[str, int] = {}
        self._lengths: dict[str, int] = {}
        self._folded = 0
        self._size, self._root, self._time = 0, b"", ""

    def close(self) -> None:
        with suppress(sqlite3.Error):  # what the file lacks is folded in by anyone who opens it next
            self._flush()
        self._file.close()

    def follow(self, view: LogView) -> None:
        """Bring the index to the size of ``view``, from its cursor if that fits, from nothing if not."""
        try:
            self._follow(view)
        except (sqlite3.Error, DoesNotFit) as error:
            _LOG.warning("the index of the log is folded again: %s", error)
            self._file.discard()
            try:
                self._follow(view)
            except sqlite3.Error as again:
                raise self._file.failed(again) from again

    def find(self, ids: Sequence[str]) -> dict[str, int]:
        """The indices of those events that are there, by id."""
        found = {id: self._recent[id] for id in ids if id in self._recent} if self._recent else {}
        if self._folded and len(found) < len(ids):
            asked = _text([id for id in ids if id not in found])
            found.update(
                self._file.connection.execute(
                    "SELECT id, idx FROM ids WHERE id IN (SELECT value FROM json_each(?))", (asked,)
                )
            )
        return found

    def length(self, stream: str) -> int:
        """How many events the stream has, which is the next ``seq``."""
        if stream in self._lengths:
            return self._lengths[stream]
        row = self._file.connection.execute("SELECT next FROM streams WHERE stream = ?", (stream,)).fetchone()
        return 0 if row is None else int(row[0])

    def last_time(self) -> str:
        """The latest time of any event, or '' before the first."""
        return self._time

    def add(
        self, ids: Sequence[str], lengths: Mapping[str, int], time: str, start: int, size: int, root: bytes
    ) -> None:
        """The events with these ids from index ``start`` on, after which the log has this size and root.

        ``lengths`` are those of their streams afterwards, ``time`` the latest time of any event.
        """
        self._recent.update(zip(ids, range(start, size), strict=True))
        self._lengths.update(lengths)
        self._size, self._root, self._time = size, root, max(self._time, time)
        if len(self._recent) >= _BATCH:
            self._flush()

    def _flush(self) -> None:
        if not self._recent:
            return
        with self._file.transaction() as db:
            # One statement for thousands of rows: SQLite works by itself meanwhile, and other threads go on.
            db.execute(
                "INSERT INTO ids SELECT value, ? + key FROM json_each(?) ORDER BY value",
                (self._folded, _text(list(self._recent))),
            )
            db.execute("INSERT OR REPLACE INTO streams SELECT key, value FROM json_each(?)", (_text(self._lengths),))
            db.execute("INSERT OR REPLACE INTO cursor VALUES (1, ?, ?, ?)", (self._size, self._root, self._time))
        self._folded = self._size
        self._recent.clear()
        self._lengths.clear()

    def _follow(self, view: LogView) -> None:
        self._recent.clear()
        self._lengths.clear()
        row = self._file.connection.execute("SELECT size, root, time FROM cursor").fetchone()
        size, root, self._time = (0, b"", "") if row is None else (int(row[0]), bytes(row[1]), str(row[2]))
        self._folded, self._size, self._root = size, size, root
        checkpoint = view.checkpoint
        if size > checkpoint.size:
            raise DoesNotFit(f"it knows {size} events of a log of {checkpoint.size}; was the log put back?")
        if size and tree_root(size, view.hash) != root:
            raise DoesNotFit(f"it was folded from another log of {size} events")
        while size < checkpoint.size:
            end = min(size + _BATCH, checkpoint.size)
            ids: list[str] = []
            lengths: dict[str, int] = {}
            time = ""
            for index, entry in view.entries(size, end):
                event = _parse(index, entry)
                ids.append(event["id"])
                lengths[event["stream"]] = event["seq"] + 1
                time = max(time, event["time"])
            self.add(ids, lengths, time, size, end, tree_root(end, view.hash))
            size = end


@contextmanager
def reserve(path: Path) -> Iterator[Path | None]:
    """``path`` while no other process has it; None, for an index in memory, where one does, or where nothing can be kept.

    For a log whose lock keeps no other process out: on a bucket that is what its compare-and-swap is for.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError:
        yield None
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield None
        else:
            yield path
    finally:
        os.close(descriptor)


def _text(value: object) -> str:
    return _json(value).decode()


def _parse(index: int, entry: bytes) -> dict[str, Any]:
    try:
        return parse_event(entry)
    except Malformed as error:
        raise Malformed(error.what, where=f"entry {index}", expected=error.expected, found=error.found) from error
