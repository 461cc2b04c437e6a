"""The read model of events: a fold of the log into SQLite, for people and tools that ask rather than read
through.

    events(idx, id, type, stream, seq, time, actor, body)     body as JSON text, a large integer's string stays one
    strays(idx, field, expected, found, text)                 entries that are not events of the log

A log of someone else's may have entries that no writer makes: bytes that are not an event, an id that is there already, a
number that is not the next of its stream. Such a stray is not an event. It is kept beside them, with its text, for
anyone who asks what an entry says (:meth:`Projection.strays`); what speaks of the log's own keys is never left out.

It takes events from a verified reader only, remembers with its rows the size and root up to which it has
folded, and is folded again from nothing when that does not continue. The file may be deleted at any time:
rebuilding gives the same rows. Several processes may catch up at once; each batch is one transaction that
begins by looking at the cursor.
"""

from __future__ import annotations

import logging
import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import astuple, dataclass
from pathlib import Path

from ledger.errors import LedgerError, Malformed, Refused
from ledger.format.canonical import canonical_bytes, parse_canonical
from ledger.format.event import Event, parse_event
from ledger.log.database import DoesNotFit, FoldedDatabase
from ledger.log.reader import LogReader

_LOG = logging.getLogger(__name__)
_VERSION = 2
_BATCH = 5_000
_WAIT_SECONDS = 10.0
_ENDLESS = 1 << 62
_SCHEMA = """
CREATE TABLE IF NOT EXISTS events (
    idx INTEGER PRIMARY KEY, id TEXT NOT NULL, type TEXT NOT NULL, stream TEXT NOT NULL, seq INTEGER NOT NULL,
    time TEXT NOT NULL, actor TEXT NOT NULL, body TEXT NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS events_id ON events (id);
CREATE UNIQUE INDEX IF NOT EXISTS events_stream ON events (stream, seq);
CREATE INDEX IF NOT EXISTS events_type ON events (type, idx);
CREATE TABLE IF NOT EXISTS strays (
    idx INTEGER PRIMARY KEY, field TEXT NOT NULL, expected TEXT NOT NULL, found TEXT NOT NULL, text TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS cursor (one INTEGER PRIMARY KEY CHECK (one = 1), origin TEXT, size INTEGER, root BLOB);
"""
_INDEX = """
CREATE INDEX IF NOT EXISTS events_{name} ON events (json_extract(body, '$.{name}'), idx)
    WHERE json_extract(body, '$.{name}') IS NOT NULL;
"""
_COLUMNS = "idx, id, type, stream, seq, time, actor, body"
_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")
_OF_KEYS = "log.key-"
"""How the types begin that decide whom readers of the log believe."""


@dataclass(frozen=True)
class Stray:
    """An entry that is not an event of the log. ``field``: which part of an event contradicts what stands before it ("" where the
    bytes are not an event at all)."""

    index: int
    field: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"an entry that is no event of the log: expected {self.expected}, found {self.found}"


class Projection(AbstractContextManager["Projection"]):
    """Events by stream, type and id, and by what their bodies name."""

    def __init__(self, path: Path | None, reader: LogReader, *, indexed: Sequence[str] = ()) -> None:
        """``path`` None: for this process alone. ``indexed``: fields of bodies by which :meth:`places` finds events at the
        cost of what is found."""
        self._reader, self._indexed = reader, frozenset(indexed)
        schema = _SCHEMA + "".join(_INDEX.format(name=_field(name)) for name in indexed)
        self._file = FoldedDatabase(path, "the projection of events", schema, version=_VERSION, wait=_WAIT_SECONDS)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database."""
        self._file.close()

    def catch_up(self) -> int:
        """Fold what the log has beyond the cursor, and return the size up to which this projection now goes."""
        self._reader.refresh()
        try:
            return self._catch_up()
        except sqlite3.OperationalError as error:  # locked for too long, disk full: the rows are not at fault
            self._file.leave(error)
            return self._catch_up()
        except (sqlite3.Error, DoesNotFit) as error:
            _LOG.warning("the projection of events is rebuilt: %s", error)
            self._file.discard()
            try:
                return self._catch_up()
            except (sqlite3.Error, DoesNotFit) as again:
                raise self._failed(again) from again

    @property
    def size(self) -> int:
        """How many events of the log are folded in."""
        return self._cursor()[1]

    def event(self, index: int) -> Event | None:
        """The event with this index."""
        rows = self._select("idx = ?", (index,))
        return next((event for _, event in rows), None)

    def events(
        self, *, stream: str | None = None, type: str | None = None, start: int = 0, prefix: str | None = None
    ) -> Iterator[tuple[int, Event]]:
        """(index, event) in order, from index ``start``, of this stream (or streams that begin so) and type."""
        wanted: list[tuple[str, str | int]] = [("idx >= ?", start)]
        if stream is not None:
            wanted.append(("stream = ?", stream))
        if type is not None:
            wanted.append(("type = ?", type))
        if prefix is not None:
            wanted += [("stream >= ?", prefix), ("stream < ?", f"{prefix}\U0010ffff")]
        yield from self._select(" AND ".join(part for part, _ in wanted), tuple(value for _, value in wanted))

    def places(
        self,
        *,
        stream: str | None = None,
        type: str | None = None,
        last: int | None = None,
        size: int | None = None,
        **named: str | None,
    ) -> list[int]:
        """The indices, in order, of the events of this stream and type whose bodies have these texts in the fields of these
        names (``identity="…"``), of a log of this ``size``; the ``last`` of them."""
        # The + keeps SQLite from an index of types or streams, of which there are few, where a field has one.
        plus = "+" if any(name in self._indexed and value is not None for name, value in named.items()) else ""
        parts = [
            *((f"json_extract(body, '$.{_field(name)}') = ?", value) for name, value in named.items()),
            (f"{plus}stream = ?", stream),
            (f"{plus}type = ?", type),
            ("idx < ?", size),
        ]
        wanted = [(part, value) for part, value in parts if value is not None]
        where = " AND ".join(part for part, _ in wanted) or "1"
        limit = "" if last is None else f" LIMIT {int(last)}"
        rows = self._file.connection.execute(
            f"SELECT idx FROM events WHERE {where} ORDER BY idx DESC{limit}",  # noqa: S608 - constants and names; values go through parameters
            tuple(value for _, value in wanted),
        )
        return [int(row[0]) for row in rows][::-1]

    def strays(self, naming: str = "", *, size: int | None = None) -> list[Stray]:
        """The entries that are not events and have this text in them, in order; of a log of this ``size``."""
        rows = self._file.connection.execute(
            "SELECT idx, field, expected, found FROM strays WHERE instr(text, ?) AND idx < ? ORDER BY idx",
            (naming, _ENDLESS if size is None else size),
        )
        return [Stray(*row) for row in rows]

    def latest(self, *, stream: str | None = None, type: str | None = None) -> tuple[int, Event] | None:
        """The newest event of this stream and type."""
        parts = [("stream = ?", stream), ("type = ?", type)]
        wanted = [(part, value) for part, value in parts if value is not None]
        where = " AND ".join(part for part, _ in wanted) or "1"
        rows = self._select(where, tuple(value for _, value in wanted), "idx DESC LIMIT 1")
        return next(iter(rows), None)

    def find(self, prefix: str, *, limit: int = 10) -> list[str]:
        """The ids of events that begin with ``prefix``, in order, ``limit`` of them at most."""
        rows = self._file.connection.execute(
            "SELECT id FROM events WHERE id >= ? AND id < ? ORDER BY id LIMIT ?", (prefix, f"{prefix}\U0010ffff", limit)
        )
        return [str(row[0]) for row in rows]

    def streams(self, prefix: str = "") -> list[str]:
        """The names of the streams that begin with ``prefix``, in order."""
        rows = self._file.connection.execute(
            "SELECT DISTINCT stream FROM events WHERE stream >= ? AND stream < ? ORDER BY stream",
            (prefix, f"{prefix}\U0010ffff"),
        )
        return [str(row[0]) for row in rows]

    def _select(self, where: str, values: tuple[str | int, ...], order: str = "idx") -> Iterator[tuple[int, Event]]:
        # `where` and `order` are put together from constants of this file; values always go through parameters.
        rows = self._file.connection.execute(f"SELECT {_COLUMNS} FROM events WHERE {where} ORDER BY {order}", values)  # noqa: S608
        for index, id, type, stream, seq, time, actor, body in rows:
            yield index, Event(id, type, stream, seq, time, actor, parse_canonical(body.encode()))

    def _catch_up(self) -> int:
        target = self._reader.checkpoint()
        while True:
            with self._file.transaction() as db:
                origin, size, root = self._cursor()
                if size > target.size:  # another process folded what was appended since this reader looked
                    target = self._reader.refresh()
                if size and (origin != target.origin or size > target.size or self._reader.root(size) != root):
                    raise DoesNotFit(f"its {size} events are not the beginning of this log")
                if size == target.size:
                    return size
                end = min(size + _BATCH, target.size)
                db.executemany(
                    "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    _events_among(db, self._reader.entries(size, end)),
                )
                db.execute(
                    "INSERT OR REPLACE INTO cursor VALUES (1, ?, ?, ?)", (target.origin, end, self._reader.root(end))
                )

    def _cursor(self) -> tuple[str, int, bytes]:
        row = self._file.connection.execute("SELECT origin, size, root FROM cursor").fetchone()
        return ("", 0, b"") if row is None else (str(row[0]), int(row[1]), bytes(row[2]))

    def _failed(self, error: Exception) -> LedgerError:
        if isinstance(error, DoesNotFit):
            return Refused("the projection of events cannot follow the log", found=str(error))
        return self._file.failed(error)


_Row = tuple[int, str, str, str, int, str, str, str]


def _events_among(db: sqlite3.Connection, entries: Iterable[tuple[int, bytes]]) -> Iterator[_Row]:
    """The rows of the entries that are events: whose ids are their own, and which are the next of their streams. An operator
    who gives two events one number, or leaves a number out, could show one of them to some and another to others. Others
    are kept as strays.

    Raises:
        Malformed: one that is not speaks of the keys of the log.
    """
    numbers: dict[str, int] = {}
    ids = set[str]()
    for index, entry in entries:
        try:
            event = parse_event(entry)
            body = canonical_bytes(event["body"]).decode()
        except Malformed as error:
            found = ": ".join(part for part in (error.what, error.where, error.found) if part)
            _keep(db, Stray(index, "", error.expected or "an event", found), entry)
            continue
        id, stream, seq = event["id"], event["stream"], event["seq"]
        if stream not in numbers:
            (last,) = db.execute("SELECT MAX(seq) FROM events WHERE stream = ?", (stream,)).fetchone()
            numbers[stream] = 0 if last is None else last + 1
        if seq != numbers[stream]:
            _keep(db, Stray(index, "seq", f"number {numbers[stream]} of stream {stream}", f"number {seq}"), entry)
        elif id in ids or db.execute("SELECT 1 FROM events WHERE id = ?", (id,)).fetchone():
            _keep(db, Stray(index, "id", "an id of its own", f"{id}, which an event before it has"), entry)
        else:
            numbers[stream] += 1
            ids.add(id)
            yield index, id, event["type"], stream, seq, event["time"], event["actor"], body


def _keep(db: sqlite3.Connection, stray: Stray, entry: bytes) -> None:
    """Keep it, with what it says without escapes: in JSON, a name may be written with some."""
    text = _ESCAPE.sub(lambda found: chr(int(found[1], 16)), entry.decode("utf-8", "replace")).replace("\0", "")
    if _OF_KEYS in text:
        raise Malformed(
            "an entry that speaks of the log's keys is no event of it",
            where=f"entry {stray.index}{', ' * bool(stray.field)}{stray.field}",
            expected=stray.expected,
            found=stray.found,
            cure="no writer makes such: do not trust the signer of this log",
        )
    plain = text.encode("utf-8", "replace").decode()
    db.execute("INSERT INTO strays VALUES (?, ?, ?, ?, ?)", (*astuple(stray), plain))


def _field(name: str) -> str:
    if not name.isidentifier():  # it becomes a part of a statement
        raise Refused("no name of a field", where="the projection of events", found=name[:80])
    return name
