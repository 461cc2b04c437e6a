"""An SQLite file that may be thrown away at any time, because it is folded from the log.

What the writer's index and the read model of events have in common: how such a file is opened, recognised as
no database or as one of another version, thrown away, and what is said when it cannot be kept.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ledger.errors import LedgerError, StorageFailed

_LOG = logging.getLogger(__name__)
_CACHE_KIB = 32 << 10
_AGAIN_SECONDS = 0.02


class DoesNotFit(Exception):
    """What was folded is not the beginning of this log."""


class FoldedDatabase:
    """The connection, and the file behind it. ``path`` None: a file without a name, for this process alone; what fits stays
    in memory. Transactions are begun by hand."""

    def __init__(self, path: Path | None, what: str, schema: str, *, version: int, wait: float = 5.0) -> None:
        """``what`` names it in messages; a file of another ``version`` of the schema is begun anew."""
        self._path = path
        self._what = what
        self._schema = schema
        self._version = version
        self._wait = wait
        self.connection = self._connect()

    def close(self) -> None:
        """Close the database."""
        self.connection.close()

    def discard(self) -> None:
        """Throw the file away and begin with an empty one."""
        self.connection.close()
        self._delete()
        self.connection = self._connect()

    @staticmethod
    def is_busy(error: Exception) -> bool:
        """Whether another process holds the file."""
        return isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY

    def leave(self, error: Exception) -> None:
        """Go on in a file of this process alone, where another process holds the one with a name.

        A process that was stopped within a transaction holds it until it goes on.

        Raises:
            StorageFailed: that is not what ``error`` says.
        """
        self.connection.close()
        self.connection = self._alone(error)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing, and nobody else writes meanwhile."""
        self.connection.execute("BEGIN IMMEDIATE")
        with self.connection:
            yield self.connection

    def failed(self, error: Exception) -> LedgerError:
        """What to tell people when it can be neither read nor made anew."""
        return StorageFailed(
            f"{self._what} cannot be kept",
            where=str(self._path or "a temporary file"),
            found=str(error),
            cure="check the disk and its free space; the file may be deleted at any time, it is folded again from the log",
        )

    def _connect(self) -> sqlite3.Connection:
        try:
            if self._path is not None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
            return self._prepare()
        except sqlite3.OperationalError as error:
            return self._alone(error)
        except sqlite3.DatabaseError as error:
            if self._path is None:
                raise self.failed(error) from error
            _LOG.warning("%s is no database, and is made anew: %s", self._what, error)
            self._delete()
            return self._prepare()
        except OSError as error:
            raise self.failed(error) from error

    def _alone(self, error: Exception) -> sqlite3.Connection:
        if self._path is None or not self.is_busy(error):
            raise self.failed(error) from error
        _LOG.warning("%s is held by another process, and is made for this one alone: %s", self._what, self._path)
        self._path = None
        return self._prepare()

    def _prepare(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._path or "", timeout=self._wait, check_same_thread=False, isolation_level=None)
        try:
            self._keep_journal(db)
            # No sync of its own: a power cut loses its newest rows and never mixes them.
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version not in (0, self._version):
                for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                    db.execute(f'DROP TABLE "{table}"')
            db.executescript(f"{self._schema}PRAGMA user_version = {self._version};")
        except sqlite3.Error:
            db.close()
            raise
        return db

    def _keep_journal(self, db: sqlite3.Connection) -> None:
        """Of a file that is new, several processes may want this at once: SQLite refuses all but one without waiting."""
        deadline = time.monotonic() + self._wait
        while True:
            try:
                db.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if not self.is_busy(error) or time.monotonic() > deadline:
                    raise
                time.sleep(_AGAIN_SECONDS)
            else:
                return

    def _delete(self) -> None:
        if self._path is not None:
            for suffix in ("", "-wal", "-shm"):
                Path(f"{self._path}{suffix}").unlink(missing_ok=True)
