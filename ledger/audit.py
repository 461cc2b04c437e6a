"""What must hold for entries that are events, one after the other: the part of an audit that reads inside them."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

from ledger.bundle import unpack_entries
from ledger.digest import parse_digest
from ledger.errors import LedgerError, Malformed
from ledger.event import Event
from ledger.finding import Finding
from ledger.storage.port import Storage
from ledger.store import Store
from ledger.tlog import TILE_WIDTH, Tile, leaf_hash

_CHUNK = 16
_AHEAD = 4


@dataclass(frozen=True)
class Fact:
    """What an audit remembers of an event."""

    id: str
    stream: str
    seq: int
    artifacts: tuple[str, ...]


def examine(index: int, entry: bytes) -> Fact | Finding:
    """What there is to remember of an entry, or why it is no event. Needs nothing but the bytes."""
    try:
        event = Event.decode(entry)
    except Malformed as error:
        where = f"entry {index}" + (f", {error.where}" if error.where else "")
        return Finding(error.what, where, error.expected, error.found)
    return Fact(event.id, event.stream, event.seq, tuple(_artifacts(event.body)))


@dataclass(frozen=True)
class Examined:
    """What the entries of a bundle are: their leaf hashes, one behind the other, and as events."""

    leaves: bytes
    facts: tuple[Fact | Finding, ...]


Read = tuple[Tile, bytes | None, str]
"""A bundle's place, its bytes if there are any, and the path they were read from."""


def examine_bundles(
    read: Iterable[Read], events: bool, workers: int
) -> Iterator[tuple[Tile, bytes | None, str, Examined | Finding | None]]:
    """Look into bundles, in order; above one worker in so many processes, some chunks ahead and no more."""
    if workers < 2:
        for tile, data, path in read:
            yield tile, data, path, None if data is None else _examine_bundle(tile, data, events)
        return
    chunks = itertools.batched(read, _CHUNK)
    ahead: deque[tuple[tuple[Read, ...], Future[list[Examined | Finding | None]]]] = deque()
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        while True:
            for chunk in itertools.islice(chunks, _AHEAD * workers - len(ahead)):
                ahead.append(
                    (chunk, pool.submit(_examine_chunk, [(tile, data) for tile, data, _ in chunk], events))
                )
            if not ahead:
                return
            chunk, future = ahead.popleft()
            for (tile, data, path), examined in zip(chunk, future.result(), strict=True):
                yield tile, data, path, examined


def _examine_chunk(
    bundles: Sequence[tuple[Tile, bytes | None]], events: bool
) -> list[Examined | Finding | None]:
    return [None if data is None else _examine_bundle(tile, data, events) for tile, data in bundles]


def _examine_bundle(tile: Tile, data: bytes, events: bool) -> Examined | Finding:
    try:
        entries = unpack_entries(data)
    except LedgerError as error:
        return Finding(error.what, error.where, error.expected, error.found)
    first = tile.index * TILE_WIDTH
    facts = tuple(examine(at, entry) for at, entry in enumerate(entries, first)) if events else ()
    return Examined(b"".join(map(leaf_hash, entries)), facts)


class EventAudit:
    """Told of every entry in order: canonical form, ids that occur once, streams without gaps, artifacts that exist."""

    def __init__(self, storage: Storage) -> None:
        self._store = Store(storage)
        self._findings: list[Finding] = []
        self._ids: dict[str, int] = {}
        self._streams: dict[str, int] = {}
        self._artifacts: dict[str, int] = {}
        self._gaps = False

    def add(self, index: int, examined: Fact | Finding) -> None:
        if isinstance(examined, Finding):
            self._gaps = True
            self._findings.append(examined)
            return
        first = self._ids.setdefault(examined.id, index)
        if first != index:
            self._findings.append(
                Finding("an id occurs twice", f"entries {first} and {index}", found=examined.id)
            )
        expected = self._streams.get(examined.stream, 0)
        if examined.seq != expected and not self._gaps:
            where = f"entry {index}, stream {examined.stream}"
            found = str(examined.seq)
            self._findings.append(Finding("a stream has a gap or a repetition", where, str(expected), found))
        self._streams[examined.stream] = examined.seq + 1
        for digest in examined.artifacts:
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
