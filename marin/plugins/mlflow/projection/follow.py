"""The MLflow projection of one root: where it stands, how it catches up, how it starts anew.

    lock      one process at a time works on it (a file beside the folder; held for one round, not for a session)
    cursor    in the database: which log, how many of its events, and the digest of the last one. A database whose
              cursor does not fit the log (deleted, restored from elsewhere, of an older version of this code) is folded
              anew
    round     fold new events, write what they mean and the cursor in one transaction: a round that was killed left
              nothing

Events come from a verified reader, so what is shown was covered by the signed log checkpoint.
"""

from __future__ import annotations

import hashlib
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec
from filelock import FileLock, Timeout
from mlflow.exceptions import MlflowException
from sqlalchemy.exc import DatabaseError, OperationalError

from ledger import Event, LedgerError, Locked
from marin.history.projection.text import milliseconds
from marin.plugins.mlflow.folding.fold import Fold
from marin.plugins.mlflow.projection.database import damaged, dispose
from marin.plugins.mlflow.projection.shelf import Shelves
from marin.plugins.mlflow.projection.sink import Sink
from marin.record.trust.authorship import Authorship, Past, Position

VERSION = 22
"""Of what the fold makes of events, and of how pages look. A database of another version is folded anew, its pages with
it."""

LOCK_SECONDS = 30.0

_log = logging.getLogger(__name__)


class Source(Past, Protocol):
    """Verified reads of the log, as :class:`ledger.LogReader` gives them."""

    def refresh(self) -> Position: ...
    def entry(self, index: int) -> bytes: ...
    def events(
        self, start: int = 0, end: int | None = None, *, lenient: bool = False
    ) -> Iterator[tuple[int, Event]]: ...


@dataclass(frozen=True)
class Progress:
    """What one catching up did: ``applied`` new events up to ``size``; ``rebuilt`` says why it began from nothing."""

    applied: int
    size: int
    runs: int
    skipped: int
    rebuilt: str | None


class MlflowProjection:
    """Folds a log into ``folder``. Threads take turns."""

    def __init__(
        self, folder: Path, source: Source, *, own: bool = True, written: Callable[[], Authorship] | None = None
    ) -> None:
        """``own``: this user's key signs the log, so that the verdicts in it are this user's; ``written``: who wrote what in
        it, by now."""
        self._own, self._written = own, written
        self.folder = folder
        self.followed = False
        """Whether somebody keeps it up with the log, so that opening a store on it need not."""
        self._turn = threading.Lock()
        self._source = source
        self._shelves = Shelves(folder)
        self._sink: Sink | None = None
        self._identity: tuple[int, int] | None = None
        self._fold: Fold | None = None
        self._folded = 0

    @property
    def database(self) -> Path:
        """MLflow's sqlite file."""
        return self.folder / "mlflow.db"

    def catch_up(self, *, limit: int | None = None) -> Progress:
        """Bring the projection to the log's present size, or by ``limit`` events nearer (0: only open or make the
        database).

        Raises:
            Locked: another process has been working on it for longer than half a minute.
            LedgerError: the log does not verify; the projection stays as it was.
        """
        with self._turn:
            position = self._source.refresh()
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.folder.parent / ".mlflow.lock")
            try:
                lock.acquire(timeout=LOCK_SECONDS)
            except Timeout:
                raise Locked(
                    "the MLflow projection is being written by another process",
                    where=str(self.folder),
                    expected=f"to be alone within {LOCK_SECONDS:.0f} s",
                    cure="stop the other marin sync or marin ui",
                ) from None
            try:
                return self._catch_up(position, limit)
            except sqlite3.DatabaseError as error:
                self.close()
                if not damaged(error):
                    raise
                _log.warning("the MLflow projection is folded anew: %s", error)
                self._remove()
                return self._catch_up(position, limit)
            except BaseException:
                self.close()  # what was gathered of a broken round is dropped with it; the cursor says where to go on
                raise
            finally:
                lock.release()

    def contradicts(self, run: str, values: msgspec.Struct) -> str:
        """As :meth:`marin.plugins.mlflow.folding.logged.LoggedFold.contradicts`, by what was folded so far."""
        with self._turn:
            return "" if self._fold is None else self._fold.logged.contradicts(run, values)

    def close(self) -> None:
        """Let go of the database."""
        if self._sink is not None:
            self._sink.close()
            self._sink = None

    def _catch_up(self, position: Position, limit: int | None) -> Progress:
        sink, applied, rebuilt = self._open(position)
        if self._fold is None or self._fold.origin != position.origin or self._folded > applied:
            self._fold, self._folded = (
                Fold(position.origin, own=self._source if self._own or self._written else None),
                0,
            )
        fold = self._fold
        size = self._folded
        end = position.size if limit is None else min(position.size, applied + limit)
        last: tuple[int, Event] | None = None
        written = self._written() if self._written is not None and self._folded < end else None
        for index, event in self._source.events(self._folded, end, lenient=True):
            known = event if written is None else written.shown(index, event)
            intents = fold.apply(index, known, mine=written is None or written.is_mine(index, event))
            self._folded = size = index + 1
            if index < applied:
                fold.touched.clear()
                continue
            last = (index, event)
            sink.apply(intents)
            if sink.full:
                self._settle(sink, fold, last)
                last = None
        if last is not None:
            self._settle(sink, fold, last)
        return Progress(max(0, size - applied), size, len(fold.runs), fold.skipped, rebuilt)

    def _settle(self, sink: Sink, fold: Fold, last: tuple[int, Event]) -> None:
        for run in sorted(fold.touched):
            sink.apply(fold.shelves(run))
        fold.touched.clear()
        index, event = last
        sink.flush(
            {
                "version": VERSION,
                "origin": fold.origin,
                "size": index + 1,
                "time": milliseconds(event.time),
                "last": hashlib.sha256(event.encode()).hexdigest(),
            }
        )

    def _open(self, position: Position) -> tuple[Sink, int, str | None]:
        """The database, how many events it holds, and why it had to begin anew (None when it had not)."""
        if self._sink is not None and self._identity == _identity(self.database):
            cursor = self._sink.read_cursor()
            reason = self._unfit(self._sink, cursor, position)
            if reason is None:
                return self._sink, int(cursor["size"]) if cursor else 0, None
        self.close()
        reason = None
        if self.database.exists():
            try:
                sink = Sink(self.folder)
                cursor = sink.read_cursor()
                reason = self._unfit(sink, cursor, position)
                if reason is None:
                    self._sink, self._identity = sink, _identity(self.database)
                    return sink, int(cursor["size"]) if cursor else 0, None
                sink.close()
            except (DatabaseError, MlflowException, sqlite3.DatabaseError) as error:
                if isinstance(error, OperationalError) and "locked" in str(error):
                    raise
                reason = f"its database cannot be used ({_first_line(error)})"
            _log.warning("the MLflow projection is folded anew: %s", reason)
        self._remove()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._sink = Sink(self.folder, created=self._first_time(position))
        self._identity = _identity(self.database)
        return self._sink, 0, reason or "there was none"

    def _unfit(self, sink: Sink, cursor: dict[str, Any] | None, position: Position) -> str | None:
        """Why a database with this cursor does not belong to this log, or None. No cursor: a first round did not
        end."""
        if cursor is None:
            return "the log was empty when it was made" if position.size and sink.created == 0 else None
        if cursor.get("version") != VERSION:
            return f"it was made by another version of Marin ({cursor.get('version')})"
        if cursor.get("origin") != position.origin:
            return f"it shows another ledger ({cursor.get('origin')})"
        size = cursor.get("size")
        if not isinstance(size, int) or not 0 < size <= position.size:
            return f"it shows {size} events of a log that has {position.size}"
        if hashlib.sha256(self._source.entry(size - 1)).hexdigest() != cursor.get("last"):
            return f"the log has another event at {size - 1} than the one that was shown"
        return None

    def _first_time(self, position: Position) -> int:
        if position.size == 0:
            return 0
        return next((milliseconds(event.time) for _, event in self._source.events(0, 1, lenient=True)), 0)

    def _remove(self) -> None:
        dispose(self.folder)
        for suffix in ("", "-wal", "-shm", "-journal"):
            Path(f"{self.database}{suffix}").unlink(missing_ok=True)
        self._shelves.clear()


class Follower(threading.Thread):
    """Keeps a projection up with a log that grows, until told to stop. A round that fails is said once and tried
    again."""

    def __init__(self, projection: MlflowProjection, *, interval: float = 0.5) -> None:
        super().__init__(name="marin-sync", daemon=True)
        self._projection = projection
        self._interval = interval
        self._ended = threading.Event()
        self._moved = threading.Condition()
        self._size = 0

    def run(self) -> None:
        complaint = ""
        while not self._ended.is_set():
            try:
                progress = self._projection.catch_up()
                complaint = ""
            except (LedgerError, DatabaseError, MlflowException, OSError) as error:
                if str(error) != complaint:
                    complaint = str(error)
                    _log.warning("what is shown lags behind the ledger: %s", _first_line(error))
            else:
                with self._moved:
                    self._size = progress.size
                    self._moved.notify_all()
            self._ended.wait(self._interval)

    def wait_for(self, size: int, *, timeout: float) -> bool:
        """Wait until the projection shows ``size`` events; False when it does not within ``timeout`` seconds."""
        with self._moved:
            return self._moved.wait_for(lambda: self._size >= size, timeout)

    def stop(self) -> None:
        """Finish the round in progress and end."""
        self._ended.set()
        self.join()


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
