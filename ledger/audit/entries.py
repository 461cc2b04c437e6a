"""What must hold for entries that are events, one after the other: the part of an audit that reads inside them.

Looking into a bundle needs nothing but its bytes, so several processes can do it; what they send back is small: leaf
hashes, eight bytes of a hash for each id, the numbers of a stream from where to where. Anyone who puts it together
keeps the hashes in a file, so that this part of an audit takes memory for streams and artifacts, and not for events.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from ledger.errors import LedgerError, Malformed, StorageFailed
from ledger.format.bundle import unpack_entries
from ledger.format.digest import parse_digest
from ledger.format.event import KEY_TYPES, Event, parse_event
from ledger.format.finding import Finding
from ledger.format.proof import LogProof
from ledger.format.tlog import TILE_WIDTH, Tile, fold, leaf_hash
from ledger.log.trust import read_links
from ledger.storage.port import Storage
from ledger.store.store import Store

if TYPE_CHECKING:
    from concurrent.futures import Future

    import numpy

_CHUNK = 24
_AHEAD = 4
_ID_BYTES = 8
_IDS_AT_ONCE = 1 << 18
"""About so many are in memory when they are compared."""
_MOST_BITS = 8


class Run(NamedTuple):
    """Neighbouring numbers of one stream: from ``first`` to before ``end``, the first of them in entry ``at``."""

    stream: str
    first: int
    end: int
    at: int


@dataclass
class Facts:
    """What an audit remembers of some neighbouring entries, from index ``start`` on."""

    start: int
    count: int
    ids: bytes
    """A hash of eight bytes for each entry's id; zeros where the entry is not an event."""
    runs: list[Run]
    artifacts: list[tuple[int, str]]
    events: list[tuple[int, Event]]
    """The events of the types that were asked for."""
    findings: list[Finding]


def examine(start: int, entries: Sequence[bytes], wanted: frozenset[str]) -> Facts:
    """What there is to remember of these entries, and which are not events. Needs nothing but the bytes."""
    facts = Facts(start, len(entries), b"", [], [], [], [])
    ids: list[bytes] = []
    runs: list[tuple[str, list[int]]] = []
    open_runs: dict[str, list[int]] = {}
    for at, entry in enumerate(entries, start):
        try:
            event = parse_event(entry)
        except Malformed as error:
            where = f"entry {at}" + (f", {error.where}" if error.where else "")
            facts.findings.append(Finding(error.what, where, error.expected, error.found, stray=True))
            ids.append(bytes(_ID_BYTES))
            continue
        ids.append(hashlib.blake2b(event["id"].encode(), digest_size=_ID_BYTES).digest())
        stream, seq = event["stream"], event["seq"]
        last = open_runs.get(stream)
        if last is not None and last[1] == seq:
            last[1] = seq + 1
        else:
            open_runs[stream] = last = [seq, seq + 1, at]
            runs.append((stream, last))
        if b'"artifact"' in entry:
            facts.artifacts += [(at, digest) for digest in _artifacts(event["body"])]
        if event["type"] in wanted:
            facts.events.append((at, Event(**event)))
    facts.ids = b"".join(ids)
    facts.runs = [Run(stream, first, end, at) for stream, (first, end, at) in runs]
    return facts


@dataclass(frozen=True)
class Examined:
    """What a bundle holds: how many entries, the leaf hashes and the facts of those that were asked for."""

    count: int
    leaves: bytes
    folded: bytes
    """The hash over all of these leaves."""
    facts: Facts | None


class Bundle(NamedTuple):
    """A bundle's place, and its bytes if they were read already; without a path there is none."""

    tile: Tile
    path: str
    data: bytes | None


def examine_bundles(
    bundles: Iterable[Bundle], wanted: frozenset[str] | None, workers: int, read: Callable[[str], bytes] | None
) -> Iterator[tuple[Bundle, Examined | Finding | None]]:
    """Look into bundles, in order; above one worker in so many processes, some chunks ahead and no more.

    ``wanted`` are types of events to give back whole; None where the entries are not events. ``read`` is called, in the
    process that looks, for bundles that come without their bytes.
    """
    if workers < 2:
        for bundle in bundles:
            yield bundle, _examine_bundle(bundle, wanted, read)
        return
    from concurrent.futures import ProcessPoolExecutor  # here: most logs are too small for several processes
    from multiprocessing import get_context

    chunks = itertools.batched(bundles, _CHUNK)
    ahead: deque[tuple[tuple[Bundle, ...], Future[list[Examined | Finding | None]]]] = deque()
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        while True:
            for chunk in itertools.islice(chunks, _AHEAD * workers - len(ahead)):
                ahead.append((chunk, pool.submit(_examine_chunk, chunk, wanted, read)))
            if not ahead:
                return
            chunk, future = ahead.popleft()
            yield from zip(chunk, future.result(), strict=True)


def _examine_chunk(
    bundles: Sequence[Bundle], wanted: frozenset[str] | None, read: Callable[[str], bytes] | None
) -> list[Examined | Finding | None]:
    return [_examine_bundle(bundle, wanted, read) for bundle in bundles]


def _examine_bundle(
    bundle: Bundle, wanted: frozenset[str] | None, read: Callable[[str], bytes] | None
) -> Examined | Finding | None:
    if not bundle.path:
        return None
    try:
        data = bundle.data
        if data is None:
            assert read is not None  # bundles come without bytes only from storages that can be read anywhere
            data = read(bundle.path)
        entries = unpack_entries(data)
    except LedgerError as error:
        return Finding(error.what, error.where, error.expected, error.found)
    counted = entries[: bundle.tile.width]
    leaves = [leaf_hash(entry) for entry in counted]
    facts = None if wanted is None else examine(bundle.tile.index * TILE_WIDTH, counted, wanted)
    return Examined(len(entries), b"".join(leaves), fold(leaves) if leaves else b"", facts)


class EventAudit:
    """Told of all entries in order: canonical form, ids that occur once, streams without gaps, artifacts that exist."""

    def __init__(
        self, storage: Storage, of_type: Mapping[str, list[tuple[int, Event]]], *, artifacts: bool = True
    ) -> None:
        """Events of the types in ``of_type`` are put into its lists. ``artifacts``: whether what events name must be
        stored."""
        self._stored = artifacts
        self.wanted = frozenset(of_type) | KEY_TYPES
        self._of_type = of_type
        self._storage = storage
        self._store = Store(storage)
        self._findings: list[Finding] = []
        self._ids = EntryIds()
        self._streams: dict[str, int] = {}
        self._artifacts: dict[str, int] = {}
        self._key_events: dict[int, str] = {}
        self._gaps = False

    def add(self, facts: Facts) -> None:
        self._gaps = self._gaps or bool(facts.findings)
        self._findings += facts.findings
        self._ids.add(facts.ids)
        for run in facts.runs:
            expected = self._streams.get(run.stream, 0)
            if run.first != expected and not self._gaps:
                where = f"entry {run.at}, stream {run.stream}"
                self._findings.append(
                    Finding("a stream has a gap or a repetition", where, str(expected), str(run.first), stray=True)
                )
            self._streams[run.stream] = run.end
        for at, digest in facts.artifacts if self._stored else ():
            self._artifacts.setdefault(digest, at)
        for at, event in facts.events:
            if event.type in KEY_TYPES:
                self._key_events[at] = event.id
            if event.type in self._of_type:
                self._of_type[event.type].append((at, event))

    def skip(self, count: int) -> None:
        """Entries that could not be read, and are reported elsewhere: numbers after them cannot be judged."""
        self._gaps = self._gaps or count > 0
        self._ids.add(bytes(_ID_BYTES * count))

    def finish(self, entry_at: Callable[[int], bytes], is_later: Callable[[LogProof], bool]) -> list[Finding]:
        """All findings, with those about ids, artifacts and keys. ``entry_at`` reads an entry once more; ``is_later``: whether a
        link of keys is of an event that was not looked at, since it was published meanwhile."""
        links = self._links(entry_at, is_later)
        return [*self._findings, *self._repeated_ids(entry_at), *links, *self._missing_artifacts()]

    def _repeated_ids(self, entry_at: Callable[[int], bytes]) -> Iterator[Finding]:
        first: dict[str, int] = {}
        for index in self._ids.suspects():  # equal hashes: now look at the ids themselves
            id = str(parse_event(entry_at(index))["id"])
            before = first.setdefault(id, index)
            if before != index:
                yield Finding("an id occurs twice", f"entries {before} and {index}", found=id, stray=True)

    def _missing_artifacts(self) -> Iterator[Finding]:
        for digest, index in self._artifacts.items():
            try:
                there = self._store.has(digest)
            except LedgerError as error:
                yield Finding(error.what, digest, error.expected, error.found)
                continue
            if not there:
                yield Finding("an artifact is missing", digest, found=f"named by entry {index}")

    def _links(self, entry_at: Callable[[int], bytes], is_later: Callable[[LogProof], bool]) -> Iterator[Finding]:
        """Every event about keys has its link, and no link stands for anything else."""
        expected, links = dict(self._key_events), list[tuple[str, LogProof]]()
        try:
            links.extend(read_links(self._storage))
        except LedgerError as error:  # those before it are there
            yield Finding(error.what, error.where, error.expected, error.found)
        try:
            for path, proof in links:
                known = expected.pop(proof.index, None) is not None
                if not (entry_at(proof.index) == proof.extra if known else is_later(proof)):
                    yield Finding("a link of keys is not of an event of this log", path, found=f"entry {proof.index}")
        except LedgerError as error:
            yield Finding(error.what, error.where, error.expected, error.found)
        for index, id in expected.items():
            yield Finding("an event about keys has no link", f"entry {index}", "a file below keys/", id)


class EntryIds:
    """The hashes of all ids, in the order of their entries, in a file that has no name."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it goes with its owner

    def __del__(self) -> None:
        with suppress(AttributeError):  # no file could be made
            self._file.close()

    def add(self, hashes: bytes) -> None:
        with _room():
            self._file.write(hashes)

    def suspects(self) -> list[int]:
        """The entries whose hash another one has too."""
        import numpy  # here: most of this package's users never audit, and it takes a tenth of a second

        def blocks(file: IO[bytes]) -> Iterator[numpy.ndarray]:
            file.seek(0)
            while data := file.read(_IDS_AT_ONCE * _ID_BYTES):
                yield numpy.frombuffer(data, dtype="<u8")

        repeated = []
        with _room(), ExitStack() as stack:
            for part in self._parts(stack, blocks):
                hashes = numpy.fromfile(part, dtype="<u8")
                hashes.sort()
                again = hashes[1:][(hashes[1:] == hashes[:-1]) & (hashes[1:] != 0)]
                once = numpy.ones(len(again), bool)  # numpy.unique would import numpy.ma
                once[1:] = again[1:] != again[:-1]
                repeated.append(again[once])
        wanted = numpy.concatenate(repeated)
        if not len(wanted):
            return []
        starts = itertools.count(0, _IDS_AT_ONCE)
        found: list[int] = []
        for start, block in zip(starts, blocks(self._file), strict=False):
            found += [start + int(at) for at in numpy.flatnonzero(numpy.isin(block, wanted))]
        return found

    def _parts(self, stack: ExitStack, blocks: Callable[[IO[bytes]], Iterator[numpy.ndarray]]) -> Iterator[IO[bytes]]:
        """The hashes in files of those that begin with the same bits: equal ones are in one of them."""
        import numpy

        count = self._file.seek(0, os.SEEK_END) // _ID_BYTES
        bits = min(_MOST_BITS, max(0, (count - 1) // _IDS_AT_ONCE).bit_length())
        if not bits:
            self._file.seek(0)
            yield self._file
            return
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(2**bits)]  # noqa: SIM115
        for block in blocks(self._file):
            first = block >> numpy.uint64(64 - bits)
            for part, file in enumerate(files):
                file.write(block[first == part].tobytes())
        for file in files:
            file.seek(0)
            yield file
            file.truncate(0)


@contextmanager
def _room() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageFailed(
            "no room for what an audit remembers",
            where=tempfile.gettempdir(),
            found=str(error.strerror),
            cure="free some space, or set TMPDIR",
        ) from error


def _artifacts(value: Any) -> Iterator[str]:
    """The digests that a body names as stored: those under a key ``artifact``, at any depth."""
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
