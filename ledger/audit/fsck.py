"""Audit of a log: everything is derived again, and every file that does not agree is named.

Works on any tlog-tiles folder. It shares with the writer and the readers only the pure parts (hashes, tiles,
notes, codecs): it looks at the bytes its own way, and never stops at the first finding.

From below: the entries of each bundle give leaf hashes, 256 of them fold to a hash of the tile above, and so
on to the root that must be the signed one. Where a stored tile differs from what lies below it, the hash
above (or the signed root) decides which of the two was changed: whichever still leads there is innocent. With
events as entries, also: canonical form, ids that occur once, streams without gaps, artifacts that are there.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

from ledger.audit.entries import Bundle, EventAudit, Examined, examine, examine_bundles
from ledger.audit.inventory import ENTRIES, Inventory, parse_tile_path
from ledger.authors.reading import Authors
from ledger.errors import LedgerError, NotFound, Unavailable
from ledger.format.budgets import BUDGETS
from ledger.format.bundle import pack_entries, unpack_entries
from ledger.format.checkpoint import LogCheckpoint, open_checkpoint
from ledger.format.event import AUTHOR_ENROLLED, AUTHOR_REVOKED, KEY_REVOKED, KEY_TYPES, KEY_VOUCHED, Event, parse_event
from ledger.format.finding import Finding
from ledger.format.layout import LOG, checkpoint_path, entries_path, journal_path, lock_path, tile_path
from ledger.format.note import VerifierKey, parse_note
from ledger.format.proof import LogProof, verify_proof
from ledger.format.tlog import HASH_SIZE, TILE_WIDTH, Frontier, Tile, TileEdge, fold, leaf_hash, split_hashes, tile_at
from ledger.log.journal import read_records
from ledger.log.reader import LogReader
from ledger.log.trust import follow_keys, named_keys, read_links
from ledger.log.vouching.events import check_revoked, check_vouched
from ledger.storage.port import Storage
from ledger.store.store import Store

_WORTH_WORKERS = 20_000


def check(
    storage: Storage,
    verifiers: Sequence[VerifierKey],
    *,
    deep: bool = False,
    log: str = LOG,
    entries_are_events: bool = True,
    workers: int = 1,
    of_type: Mapping[str, list[tuple[int, Event]]] | None = None,
    artifacts: bool = True,
    continues: LogCheckpoint | None = None,
) -> list[Finding]:
    """What is wrong with the log below ``log``; an empty list when it is whole.

    With ``artifacts``, those that events name (by a digest under the key ``artifact``) must be there; ``deep`` also hashes
    everything in the store again. ``entries_are_events=False`` audits the log of any other software. ``workers`` above 1
    lets that many processes look into the entries of a large log (a script that asks for them needs a ``__main__`` guard).
    Events of the types in ``of_type`` are put into its lists, so that a log need not be read twice. ``continues``: what else
    was read of the log before; what is audited must begin with it, whatever a storage shows to anyone who reads it again.
    """
    kinds = (*KEY_TYPES, KEY_VOUCHED, KEY_REVOKED, AUTHOR_ENROLLED, AUTHOR_REVOKED)
    wanted: dict[str, list[tuple[int, Event]]] = {**{kind: [] for kind in kinds}, **(of_type or {})}
    events = EventAudit(storage, wanted, artifacts=artifacts) if entries_are_events else None
    audit = _Audit(storage, verifiers, log, events, workers, continues)
    findings = audit.run()
    if log == LOG and entries_are_events and not findings:
        reader = LogReader(storage, verifiers)
        try:
            meanwhile = [item for item in reader.events(audit.end, lenient=True) if item[1].type in KEY_TYPES]
            reader.signers([*(item for kind in KEY_TYPES for item in wanted[kind]), *meanwhile])
            if audit.audited is not None:  # who signed another log does not vouch for this one
                reader.check_continues(audit.audited)
        except LedgerError as error:
            findings.append(Finding(error.what, error.where, error.expected, error.found))
        findings += _authors(reader, audit.end, wanted)
    findings += _vouched(audit.origin, wanted[KEY_VOUCHED], wanted[KEY_REVOKED])
    if deep:
        findings += Store(storage).verify_all()
    return findings


def _authors(reader: LogReader, end: int, found: Mapping[str, Sequence[tuple[int, Event]]]) -> Iterator[Finding]:
    """A log that enrolled nobody has no authors, and is asked nothing."""
    if not found[AUTHOR_ENROLLED] and not found[AUTHOR_REVOKED]:
        return
    try:
        told = {index: event for events in found.values() for index, event in events}
        origin = reader.checkpoint().origin
        authors = Authors(origin, reader.keys, lambda kind: [i for i, _ in found.get(kind, ())], told.__getitem__)
        yield from authors.findings
        yield from authors.check(reader.events(0, end, lenient=True))
    except LedgerError as error:
        yield Finding(error.what, error.where, error.expected, error.found)


def _vouched(
    origin: str, events: Sequence[tuple[int, Event]], revoked: Sequence[tuple[int, Event]]
) -> Iterator[Finding]:
    known = set[bytes]()
    for index, event in events:
        try:
            known.add(check_vouched(event.body, origin))
        except LedgerError as error:
            yield Finding(error.what, f"entry {index}", error.expected, error.found)
    for index, event in revoked:
        if check_revoked(event.body) not in known:
            yield Finding("a key is revoked that the log never vouched for", f"entry {index}")


@dataclass
class _Rival:
    """A stored tile claims another hash than what lies below it: who is to blame is decided from above."""

    stored: bytes
    blame_tile: list[Finding]
    blame_below: list[Finding]


@dataclass
class _Level:
    """The hashes of one level, derived from below: None where neither side could be read."""

    hashes: list[bytes | None] = field(default_factory=list)
    rivals: dict[int, _Rival] = field(default_factory=dict)


@dataclass
class _EdgeTile:
    """A partial tile at the right edge, in its two readings."""

    tile: Tile
    derived: list[bytes | None]
    rival: list[bytes] | None
    blame_tile: list[Finding]
    blame_below: list[Finding]


class _Beginning:
    """The leaves of an audited log, as far as those of an older checkpoint go."""

    def __init__(self, older: LogCheckpoint) -> None:
        self.older = older
        self._frontier = Frontier()

    def add(self, leaves: Iterable[bytes]) -> None:
        self._frontier.extend(itertools.islice(leaves, self.older.size - self._frontier.size))

    def root(self) -> str:
        """The root of these leaves; in words, where the log is shorter."""
        size = self._frontier.size
        return self._frontier.root().hex() if size == self.older.size else f"{size} entries"


class _TooMuch(Exception):
    """A log that asks for more than the budgets give (``ledger.format.budgets``)."""

    def __init__(self, what: str, most: str, found: str) -> None:
        super().__init__(what)
        self.what, self.most, self.found = what, most, found


class _Audit:
    def __init__(
        self,
        storage: Storage,
        anchors: Sequence[VerifierKey],
        log: str,
        events: EventAudit | None,
        workers: int,
        continues: LogCheckpoint | None,
    ) -> None:
        self._beginning = None if continues is None else _Beginning(continues)
        self._storage = storage
        self._anchors = self._verifiers = anchors
        self._log = log
        self._events = events
        self._workers = workers
        self._findings: list[Finding] = []
        self._files = Inventory(0)
        self._edge: list[_EdgeTile] = []
        self._local = storage.local_path(checkpoint_path(log)) is not None
        self._size, self.origin = 0, ""
        self.audited: LogCheckpoint | None = None
        """What was signed of all that was looked at."""
        self._missing = 0
        self._later: list[bytes] = []
        """Entries beyond the published size, which only the journal holds."""

    def run(self) -> list[Finding]:
        """All findings; where the log asks for more than the budgets give, those up to there."""
        try:
            return self._run()
        except _TooMuch as error:
            self._find(error.what, checkpoint_path(self._log), f"at most {error.most}", error.found)
            return self._findings

    def _run(self) -> list[Finding]:
        checkpoint = self._checkpoint()
        if checkpoint is None:
            return self._findings
        self._size, self.origin, self.audited = checkpoint.size, checkpoint.origin, checkpoint
        if self._size > BUDGETS.log_entries:
            raise _TooMuch("a log of so many entries", f"{BUDGETS.log_entries}", f"{self._size}")
        self._inventory()
        level = self._leaves(checkpoint.size)
        for height in itertools.count(1):
            if not level.hashes:
                break
            level = self._tiles(height, level, checkpoint.size)
        edge = self._decide_edge(checkpoint)
        self._pending(checkpoint, edge)
        for tile in self._files.left():
            end = (tile.index * TILE_WIDTH + tile.width) * TILE_WIDTH ** max(tile.level, 0)
            if end <= self._size or not self._has_grown:
                self._find("a file that belongs to no tile of this log", self._path(tile), found=f"width {tile.width}")
        if self._events is not None:
            self._findings += self._events.finish(self._entry_at, self._is_later)
        if self._beginning is not None and not self._findings:
            expected, found = self._beginning.older.root.hex(), self._beginning.root()
            if found != expected:
                what = "the root shows another log than the one that was read before"
                self._find(what, checkpoint_path(self._log), f"{expected} at size {self._beginning.older.size}", found)
        return self._findings

    # Checkpoint and files

    @cached_property
    def _has_grown(self) -> bool:
        """Whether somebody published more while this was read: what lies beyond the size that was read is the next audit's."""
        return self._now()[0] > self._size

    def _now(self) -> tuple[int, Sequence[VerifierKey]]:
        """The size of the log by now, and its keys, one of which signed that; 0 where none did."""
        with suppress(LedgerError):
            note, keys = self._storage.read(checkpoint_path(self._log)), self._follow()
            own = [key for key in keys if key.name == self.origin or self._log != LOG]
            return open_checkpoint(note, own, origin=self.origin)[0].size, own
        return 0, ()

    _at_the_end = cached_property(_now)

    def _is_later(self, link: LogProof) -> bool:
        """Whether a link of keys, which were all read by now, is of an event that was published while this was read."""
        size, keys = self._at_the_end
        with suppress(LedgerError):
            proven = verify_proof(link, keys, origin=self.origin)
            return self.end <= proven.index < size and parse_event(proven.entry)["type"] in KEY_TYPES
        return False

    def _follow(self) -> Sequence[VerifierKey]:
        """The keys that the log has by now: whatever was read before, one of these signed it."""
        with suppress(LedgerError):  # of a link of keys, and a finding already
            self._verifiers = follow_keys(self._storage, self._anchors) if self._log == LOG else self._anchors
        return self._verifiers

    @property
    def end(self) -> int:
        """How many entries were looked at, with those that only the journal has."""
        return self._size + len(self._later)

    def _checkpoint(self) -> LogCheckpoint | None:
        path = checkpoint_path(self._log)
        try:
            data = self._storage.read(path)
        except LedgerError as error:
            self._report(error, path)
            return None
        if self._log == LOG:
            self._verifiers, self._findings = audit_keys(self._storage, self._anchors)
        try:
            return open_checkpoint(data, self._verifiers, own_name=self._log == LOG)[0]
        except LedgerError as error:
            self._report(error, path)
        try:  # not believed, but its size tells where to look for more
            return LogCheckpoint.parse(parse_note(data).text)
        except LedgerError:
            return None

    def _inventory(self) -> None:
        """All files that are there, by tile; what is explained is taken out again."""
        self._files = Inventory(-(-self._size // TILE_WIDTH))
        base = f"{self._log}/" if self._log else ""
        known = {checkpoint_path(self._log), journal_path(self._log), lock_path(self._log)}
        try:
            for name in self._storage.list(base or "tile/"):
                try:
                    tile = parse_tile_path(name.removeprefix(base))
                except LedgerError:
                    # A log that is a root of its own may have files of other software beside the standard ones.
                    if name not in known and (base or name.startswith("tile/")):
                        self._find("a file that does not belong to a log", name)
                else:
                    self._files.add(tile)
        except Unavailable:
            pass  # a published root cannot be listed; what must be there is read by name

    # From the entries up

    def _leaves(self, size: int) -> _Level:
        """Level 0: bundles against tiles of leaf hashes."""
        above = _Level()
        bundles = (self._bundle(tile_at(0, index, size)) for index in range(-(-size // TILE_WIDTH)))
        workers = self._workers if size >= _WORTH_WORKERS else 1
        wanted = None if self._events is None else self._events.wanted
        # Only what lies on this machine can be read by another process of it.
        read = self._storage.read if self._local else None
        for bundle, found in examine_bundles(bundles, wanted, workers, read):
            tile = bundle.tile
            examined = None if found is None else self._accept(bundle, found)
            if examined is not None and self._beginning is not None:
                self._beginning.add(split_hashes(examined.leaves)[: tile.width])
            if self._events is not None:
                if examined is None or examined.facts is None:
                    self._events.skip(tile.width)
                else:
                    self._events.add(examined.facts)
            if examined is not None and self._agrees(tile, examined.leaves):
                above.hashes.append(examined.folded)
                continue
            derived: list[bytes | None] = [None] * tile.width
            if examined is not None:
                derived = list(split_hashes(examined.leaves))
            self._compare(tile, derived, {}, above)
        return above

    def _bundle(self, tile: Tile) -> Bundle:
        """Where the bundle is; those that were listed are read by anyone who looks into them."""
        path = entries_path(tile, self._log)
        listed = Tile(ENTRIES, tile.index)
        if self._local and not tile.partial and self._files.is_alone(listed):
            self._files.explain(listed)
            return Bundle(tile, path, None)
        data, path = self._read(tile, entries=True)
        return Bundle(tile, path if data is not None else "", data)

    def _agrees(self, tile: Tile, leaves: bytes) -> bool:
        """Whether a complete tile is just what its entries give: the common case, told by one comparison."""
        if tile.partial or not self._files.is_alone(tile):
            return False
        try:
            same = self._storage.read(tile_path(tile, self._log)) == leaves
        except LedgerError:
            return False
        if same:
            self._files.explain(tile)
        return same

    def _accept(self, bundle: Bundle, examined: Examined | Finding) -> Examined | None:
        """What was found in a bundle, if it has the right number of entries and narrower ones agree with it."""
        tile, path = bundle.tile, bundle.path
        if isinstance(examined, Finding):
            where = path if examined.where in ("", path) else f"{path}, {examined.where}"
            self._findings.append(replace(examined, where=where))
            return None
        expected = tile.width if path == entries_path(tile, self._log) else TILE_WIDTH
        if examined.count != expected:
            self._find("a bundle has another number of entries", path, str(expected), str(examined.count))
            return None
        for width in self._files.take(Tile(ENTRIES, tile.index), tile.width - 1):
            name = entries_path(Tile(0, tile.index, width), self._log)
            if name != path and not self._is_beginning(name, bundle.data or b"", width):
                self._find("a partial bundle is not the beginning of the later one", name)
        return examined

    def _entry_at(self, index: int) -> bytes:
        """An entry that was looked into before."""
        if index >= self._size:
            return self._later[index - self._size]
        tile = tile_at(0, index // TILE_WIDTH, self._size)
        data, _ = self._read(tile, entries=True)
        return unpack_entries(data or b"")[index % TILE_WIDTH]

    def _is_beginning(self, name: str, data: bytes, width: int) -> bool:
        try:
            narrower = self._storage.read(name)
            return data.startswith(narrower) and len(unpack_entries(narrower)) == width
        except LedgerError:
            return False

    def _tiles(self, height: int, below: _Level, size: int) -> _Level:
        """A level above the leaves: folded hashes against the tiles that hold them."""
        above = _Level()
        for index in range(-(-len(below.hashes) // TILE_WIDTH)):
            tile = tile_at(height, index, size)
            first = index * TILE_WIDTH
            derived = below.hashes[first : first + tile.width]
            rivals = {at - first: below.rivals[at] for at in range(first, first + tile.width) if at in below.rivals}
            self._compare(tile, derived, rivals, above)
        return above

    def _compare(self, tile: Tile, derived: list[bytes | None], rivals: dict[int, _Rival], above: _Level) -> None:
        """One stored tile against what lies below it; the outcome goes to the level above, or to the edge."""
        stored = self._stored(tile)
        agreed, differs = list(derived), []
        for at, value in enumerate(derived):
            rival = rivals.get(at)
            if stored is None:
                if rival is not None:
                    self._findings += rival.blame_tile + rival.blame_below
            elif value is None:
                agreed[at] = stored[at]
            elif stored[at] == value:
                self._findings += rival.blame_tile if rival else []
            elif rival is not None and stored[at] == rival.stored:
                self._findings += rival.blame_below
                agreed[at] = stored[at]
            else:
                self._findings += rival.blame_tile + rival.blame_below if rival else []
                differs.append(at)
        blame_tile = [self._tile_differs(tile, at, agreed[at], stored) for at in differs[:1]]
        blame_below = [self._below_differs(tile, at, agreed[at], stored) for at in differs]
        self._check_narrower(tile, stored if not differs else None)
        if tile.partial:
            rival_hashes = stored if differs else None
            self._edge.append(_EdgeTile(tile, agreed, rival_hashes, blame_tile, blame_below))
            return
        if differs and stored is not None:
            above.rivals[tile.index] = _Rival(fold(stored), blame_tile, blame_below)
        known = [value for value in agreed if value is not None]
        above.hashes.append(fold(known) if len(known) == len(agreed) else None)

    def _stored(self, tile: Tile) -> list[bytes] | None:
        data, path = self._read(tile, entries=False)
        if data is None:
            return None
        width = tile.width if path == self._path(tile) else TILE_WIDTH
        if len(data) != width * HASH_SIZE:
            self._find("a tile has another length", path, f"{width * HASH_SIZE} bytes", f"{len(data)} bytes")
            return None
        return split_hashes(data)[: tile.width]

    def _check_narrower(self, tile: Tile, hashes: list[bytes] | None) -> None:
        """Partial tiles of earlier sizes may stay, if they are the beginning of this one (when that is known)."""
        for width in self._files.take(tile, tile.width - 1):
            name = self._path(Tile(tile.level, tile.index, width))
            if hashes is not None and not self._holds(name, b"".join(hashes[:width])):
                self._find("a partial tile is not the beginning of the later one", name)

    # The right edge and beyond

    def _decide_edge(self, checkpoint: LogCheckpoint) -> TileEdge | None:
        """Which reading of the partial tiles leads to the signed root; the edge, if one does."""
        doubtful = [edge for edge in self._edge if edge.rival is not None]
        readable = all(None not in edge.derived for edge in self._edge)
        for choice in itertools.product((False, True), repeat=len(doubtful)) if readable else ():
            believed = {id(edge): take for edge, take in zip(doubtful, choice, strict=True)}
            hashes = [(e.tile, (believed.get(id(e)) and e.rival) or e.derived) for e in self._edge]
            tree = TileEdge(checkpoint.size, [(tile, b"".join(filter(None, values))) for tile, values in hashes])
            if tree.frontier().root() == checkpoint.root:
                for edge in doubtful:
                    self._findings += edge.blame_below if believed[id(edge)] else edge.blame_tile
                return tree
        for edge in doubtful:
            self._findings += edge.blame_tile + edge.blame_below
        if readable:
            path, other = checkpoint_path(self._log), "another root, whichever of the files is believed"
            self._find("the signed root is not that of the entries", path, checkpoint.root.hex(), other)
        return None

    def _pending(self, published: LogCheckpoint, edge: TileEdge | None) -> None:
        """Committed entries that only the journal holds, and what is there already of their tiles."""
        name = journal_path(self._log)
        complete: list[tuple[Tile, bytes]] = []
        entries: list[bytes] = []
        records, keys = list(read_records(self._storage, name)), self._follow()
        for record in records:
            if record.old_size < published.size:
                continue
            try:
                signed, _ = open_checkpoint(record.note, keys, origin=published.origin, own_name=self._log == LOG)
            except LedgerError as error:
                self._report(error, name)
                return
            if record.old_size != published.size + len(entries):
                if self._has_grown:
                    return
                self._find("a record of the journal does not continue the log", name, found=f"size {record.old_size}")
                return
            for entry in record.entries:
                if self._events is not None:
                    at = published.size + len(entries)
                    self._events.add(examine(at, [entry], self._events.wanted))
                    self._later.append(entry)
                entries.append(entry)
                if self._beginning is not None:
                    self._beginning.add([leaf_hash(entry)])
                if edge is not None:
                    complete += edge.append(leaf_hash(entry))
            if edge is not None and (signed.size, signed.root) != (edge.size, edge.frontier().root()):
                self._find("a record of the journal does not lead to its signed root", name, signed.root.hex())
                return
            self.audited = signed
        if edge is not None and entries:
            self._check_early(published.size, entries, [*complete, *edge.partial()])

    def _check_early(self, start: int, entries: list[bytes], tiles: list[tuple[Tile, bytes]]) -> None:
        """Files of the next publication: not needed yet, but what is there must be right."""
        for tile, data in tiles:
            hashes = split_hashes(data)
            self._check_early_files(Tile(tile.level, tile.index), hashes, b"".join)
        end = start + len(entries)
        for index in range(start // TILE_WIDTH, -(-end // TILE_WIDTH)):
            first = index * TILE_WIDTH
            part = entries[max(0, first - start) : first + TILE_WIDTH - start]
            if first < start:
                old, _ = self._read(Tile(0, index, start - first), entries=True)
                try:
                    part = [*unpack_entries(old or b"")[: start - first], *part]
                except LedgerError:
                    continue  # a finding already
            self._check_early_files(Tile(ENTRIES, index), part, pack_entries)

    def _check_early_files(self, tile: Tile, items: Sequence[bytes], pack: Callable[[Sequence[bytes]], bytes]) -> None:
        """Anyone who began to publish may have done so at any size up to now, and may have been fenced before the end."""
        for width in self._files.take(tile, len(items)):
            path = self._path(Tile(tile.level, tile.index, width))
            if not self._holds(path, pack(items[:width])):
                self._find("a file of the next publication differs from the journal", path)

    # Reading and reporting

    def _read(self, tile: Tile, *, entries: bool) -> tuple[bytes | None, str]:
        """The bytes of a tile or bundle, and their path; a complete one stands in for a partial one."""
        path_of = entries_path if entries else tile_path
        level = ENTRIES if entries else tile.level
        path = path_of(tile, self._log)
        for candidate in dict.fromkeys((tile, Tile(tile.level, tile.index))):
            try:
                data = self._storage.read(path_of(candidate, self._log))
            except NotFound:
                continue
            except LedgerError as error:
                self._report(error, path)
                return None, path
            self._files.explain(Tile(level, tile.index, candidate.width))
            return data, path_of(candidate, self._log)
        self._find("a file of the log is missing", path)
        self._missing += 1
        if self._missing > BUDGETS.missing_files:
            raise _TooMuch(
                "missing files of the log, and the rest was not looked for", f"{BUDGETS.missing_files}", "more"
            )
        return None, path

    def _holds(self, name: str, data: bytes) -> bool:
        try:
            return self._storage.read(name) == data
        except LedgerError:
            return False

    def _path(self, tile: Tile) -> str:
        if tile.level == ENTRIES:
            return entries_path(Tile(0, tile.index, tile.width), self._log)
        return tile_path(tile, self._log)

    def _tile_differs(self, tile: Tile, at: int, derived: bytes | None, stored: list[bytes] | None) -> Finding:
        what = "a leaf hash is not that of its entry" if tile.level == 0 else "a hash is not that of the tile below"
        return Finding(what, f"{self._path(tile)}, hash {at}", _hex(derived), _hex(stored[at] if stored else None))

    def _below_differs(self, tile: Tile, at: int, derived: bytes | None, stored: list[bytes] | None) -> Finding:
        index = tile.index * TILE_WIDTH + at
        expected, found = _hex(stored[at] if stored else None), _hex(derived)
        if tile.level:
            path = tile_path(Tile(tile.level - 1, index), self._log)
            return Finding("a tile does not fold to its hash in the tree", path, expected, found)
        path = entries_path(tile, self._log)
        return Finding("an entry does not hash to its leaf", f"{path}, entry {index}", expected, found)

    def _find(self, what: str, where: str, expected: str = "", found: str = "") -> None:
        self._findings.append(Finding(what, where, expected, found))

    def _report(self, error: LedgerError, path: str) -> None:
        if isinstance(error, Unavailable):  # a server that does not answer is not a finding about its log
            raise error
        where = path if error.where in ("", path) else f"{path}, {error.where}"
        self._find(error.what, where, error.expected, error.found)


def _hex(value: bytes | None) -> str:
    return "" if value is None else value.hex()


def audit_keys(storage: Storage, trusted: Sequence[VerifierKey]) -> tuple[list[VerifierKey], list[Finding]]:
    """As ``follow_keys``, for an audit: also what is wrong with the links. Each must hold under some key of the log."""
    try:
        keys = follow_keys(storage, trusted)
    except LedgerError as error:
        return list(trusted), [Finding(error.what, error.where, error.expected, error.found)]
    findings = []
    for path, proof in read_links(storage):
        try:
            # Anyone who trusts a newer key than the one that signed a link learns the older one from the event itself.
            before = named_keys(parse_event(proof.extra or b""), "by")
            # A key that was retired later was good when it signed this.
            verify_proof(proof, [replace(key, until=None) for key in (*keys, *before)])
        except LedgerError as error:
            findings.append(Finding(error.what, path, error.expected, error.found))
    return keys, findings
