"""What must hold for entries that are events, one after the other: the part of an audit that reads inside them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ledger.digest import parse_digest
from ledger.errors import LedgerError, Malformed
from ledger.event import Event
from ledger.finding import Finding
from ledger.storage.port import Storage
from ledger.store import Store


class EventAudit:
    """Fed with every entry in order: canonical form, ids that occur once, streams without gaps, artifacts that exist."""

    def __init__(self, storage: Storage) -> None:
        self._store = Store(storage)
        self._findings: list[Finding] = []
        self._ids: dict[str, int] = {}
        self._streams: dict[str, int] = {}
        self._artifacts: dict[str, int] = {}
        self._gaps = False

    def add(self, index: int, entry: bytes) -> None:
        try:
            event = Event.decode(entry)
        except Malformed as error:
            self._gaps = True
            where = f"entry {index}" + (f", {error.where}" if error.where else "")
            self._findings.append(Finding(error.what, where, error.expected, error.found))
            return
        first = self._ids.setdefault(event.id, index)
        if first != index:
            self._findings.append(
                Finding("an id occurs twice", f"entries {first} and {index}", found=event.id)
            )
        expected = self._streams.get(event.stream, 0)
        if event.seq != expected and not self._gaps:
            where = f"entry {index}, stream {event.stream}"
            self._findings.append(
                Finding("a stream has a gap or a repetition", where, str(expected), str(event.seq))
            )
        self._streams[event.stream] = event.seq + 1
        for digest in _artifacts(event.body):
            self._artifacts.setdefault(digest, index)

    def skip(self, count: int) -> None:
        """Entries that could not be read, and are reported elsewhere: numbers after them cannot be judged."""
        self._gaps = self._gaps or count > 0

    def finish(self) -> list[Finding]:
        """All findings, with those about artifacts."""
        for digest, index in self._artifacts.items():
            try:
                there = self._store.has(digest)
            except LedgerError as error:
                self._findings.append(Finding(error.what, digest, error.expected, error.found))
                continue
            if not there:
                self._findings.append(
                    Finding("an artifact is missing", digest, found=f"named by entry {index}")
                )
        return self._findings


def _artifacts(value: Any) -> Iterator[str]:
    """The digests that a body names as stored: those under a key `artifact`, at any depth."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key == "artifact" and isinstance(item, str):
                try:
                    parse_digest(item)
                except Malformed:
                    continue
                yield item
            else:
                yield from _artifacts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _artifacts(item)
