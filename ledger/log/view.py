"""One consistent, authenticated view of a log: what a checkpoint signs, and the bytes below it.

Loading is also the writer's recovery; there is no other. It takes the published checkpoint, adds the records
of the journal that continue it, and ends with the newest signed checkpoint. Every hash that leaves this file
hangs on that signature: the partial tiles at the right edge must fold to the signed root, a complete tile to
its hash in the tile above, and an entry to its leaf.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence

from ledger.errors import LedgerError, Malformed, NotFound, Refused, Tampered
from ledger.format import tlog
from ledger.format.bundle import unpack_entries
from ledger.format.checkpoint import LogCheckpoint, open_checkpoint
from ledger.format.layout import LOG, checkpoint_path, entries_path, journal_path, tile_path
from ledger.format.note import VerifierKey
from ledger.log.journal import Record, read_records
from ledger.storage.port import Storage

_PathOf = Callable[[tlog.Tile, str], str]

_CACHED_TILES = 256
_LOAD_ATTEMPTS = 20


class LogView:
    """A log at the size of its newest checkpoint. A reader loads another when the log has grown."""

    def __init__(
        self,
        storage: Storage,
        log: str,
        published: LogCheckpoint,
        checkpoint: LogCheckpoint,
        note: bytes,
        edge: tlog.TileEdge,
        pending: Sequence[bytes],
    ) -> None:
        self._storage = storage
        self._log = log
        self.published = published
        self.checkpoint = checkpoint
        self.note = note
        self.edge = edge
        self.pending = list(pending)
        self.records: Sequence[Record] = ()
        """What stood in the journal when this was loaded, published or not."""
        self.pending_leaves = [tlog.leaf_hash(entry) for entry in pending]
        self._tiles: OrderedDict[tuple[int, int], list[bytes]] = OrderedDict()

    @classmethod
    def load(
        cls, storage: Storage, keys: Sequence[VerifierKey], *, log: str = LOG, origin: str | None = None
    ) -> LogView:
        """The newest state that a known key signed; raises where bytes and signatures do not agree."""
        attempts = 0
        while True:
            attempts += 1
            # The journal first: whatever is committed or published after this changes it, which a guarded writer
            # notices.
            records = list(read_records(storage, journal_path(log)))
            data = _read_checkpoint(storage, log)
            published, _ = open_checkpoint(data, keys, origin=origin, own_name=log == LOG)
            try:
                if records and records[0].old_size > published.size:
                    raise _rolled_back(log, records[0].old_size, published.size)
                edge = _load_edge(storage, published, log)
                fresh = [record for record in records if record.old_size >= published.size]
                view = cls._with_records(storage, log, keys, published, data, edge, fresh)
                view.records = records
                return view
            except (NotFound, Tampered):
                # A writer may publish while this reads: only what also holds for an unchanged checkpoint is final.
                if attempts == _LOAD_ATTEMPTS or _read_checkpoint(storage, log) == data:
                    raise

    @classmethod
    def _with_records(
        cls,
        storage: Storage,
        log: str,
        keys: Sequence[VerifierKey],
        published: LogCheckpoint,
        note: bytes,
        edge: tlog.TileEdge,
        records: Sequence[Record],
    ) -> LogView:
        checkpoint, frontier = published, edge.frontier()
        pending: list[bytes] = []
        for record in records:
            if record.old_size != checkpoint.size:
                raise _journal_differs(log, f"a record after {checkpoint.size} entries", f"after {record.old_size}")
            following, _ = open_checkpoint(record.note, keys, origin=published.origin, own_name=log == LOG)
            frontier.extend(map(tlog.leaf_hash, record.entries))
            if (following.size, following.root) != (frontier.size, frontier.root()):
                raise _journal_differs(
                    log,
                    f"size {following.size}, root {following.root.hex()}, as signed",
                    f"size {frontier.size}, root {frontier.root().hex()}",
                )
            checkpoint, note = following, record.note
            pending += record.entries
        return cls(storage, log, published, checkpoint, note, edge, pending)

    def extend(self, checkpoint: LogCheckpoint, note: bytes, entries: Sequence[bytes], leaves: Sequence[bytes]) -> None:
        """For the writer alone: these entries have just been committed under this checkpoint."""
        self.checkpoint, self.note = checkpoint, note
        self.pending += entries
        self.pending_leaves += leaves

    # Hashes

    def hash(self, level: int, index: int) -> bytes:
        """The hash of the complete subtree (level, index): a ``HashReader``."""
        if (index + 1) << level <= self.published.size:
            tile_level, tile_index, part = tlog.tile_of(level, index)
            return tlog.fold(self._tile(tile_level, tile_index)[part])
        if level:
            return tlog.node_hash(self.hash(level - 1, 2 * index), self.hash(level - 1, 2 * index + 1))
        return self.pending_leaves[index - self.published.size]

    def _tile(self, level: int, index: int) -> list[bytes]:
        tile = tlog.tile_at(level, index, self.published.size)
        if tile.partial:
            return self.edge.hashes(level)
        cached = self._tiles.get((level, index))
        if cached is not None:
            self._tiles.move_to_end((level, index))
            return cached
        path = tile_path(tile, self._log)
        hashes = _tile_hashes(self._storage.read(path), tlog.TILE_WIDTH, path)
        expected, found = self.hash(tlog.TILE_HEIGHT * (level + 1), index), tlog.fold(hashes)
        if expected != found:
            raise Tampered(
                "a tile does not fold to its hash in the tree",
                where=path,
                expected=expected.hex(),
                found=found.hex(),
                cure="the file was changed: restore it from a copy",
            )
        self._tiles[level, index] = hashes
        if len(self._tiles) > _CACHED_TILES:
            self._tiles.popitem(last=False)
        return hashes

    # Entries

    def entries(self, start: int = 0, end: int | None = None) -> Iterator[tuple[int, bytes]]:
        """(index, entry) from ``start`` to before ``end``, each checked against its leaf.

        Raises:
            Refused: no such range of entries.
        """
        stop = self.checkpoint.size if end is None else end
        if not 0 <= start <= stop <= self.checkpoint.size:
            raise Refused(
                "no such range of entries",
                where=f"{start} to {stop}",
                expected=f"within 0 to {self.checkpoint.size}",
                cure="the log has no more entries at this checkpoint",
            )
        size = self.published.size
        at = start
        while at < min(stop, size):
            bundle = at // tlog.TILE_WIDTH
            first = bundle * tlog.TILE_WIDTH
            for index, entry in enumerate(self._bundle(bundle)[at - first :], at):
                if index >= stop:
                    return
                yield index, entry
            at = first + tlog.TILE_WIDTH
        for index in range(max(start, size), stop):
            yield index, self.pending[index - size]

    def _bundle(self, index: int) -> list[bytes]:
        tile = tlog.tile_at(0, index, self.published.size)
        data, path = _read_or_full(self._storage, tile, entries_path, self._log)
        try:
            entries = unpack_entries(data)
        except Malformed as error:
            raise Malformed(
                error.what, where=f"{path}, {error.where}", expected=error.expected, found=error.found
            ) from None
        # A complete bundle may stand for a partial one, but none may have more or fewer than its own name says.
        if len(entries) != (tile.width if path == entries_path(tile, self._log) else tlog.TILE_WIDTH):
            raise Tampered(
                "a bundle has another number of entries", where=path, expected=f"{tile.width}", found=f"{len(entries)}"
            )
        leaves = self._tile(0, index)
        for offset, (entry, leaf) in enumerate(zip(entries, leaves, strict=False)):
            found = tlog.leaf_hash(entry)
            if found != leaf:
                raise Tampered(
                    "an entry does not hash to its leaf",
                    where=f"{path}, entry {index * tlog.TILE_WIDTH + offset}",
                    expected=leaf.hex(),
                    found=found.hex(),
                    cure="the entry was changed: restore the file from a copy",
                )
        return entries[: tile.width]


def _read_checkpoint(storage: Storage, log: str) -> bytes:
    try:
        return storage.read(checkpoint_path(log))
    except NotFound as error:
        raise NotFound(
            "there is no log here",
            where=f"{storage.describe()}: {checkpoint_path(log)}",
            cure="name the right root, or create a log in it",
        ) from error


def _load_edge(storage: Storage, checkpoint: LogCheckpoint, log: str) -> tlog.TileEdge:
    found, paths = [], []
    for tile in tlog.partial_tiles(checkpoint.size):
        data, path = _read_or_full(storage, tile, tile_path, log)
        width = tile.width if path == tile_path(tile, log) else tlog.TILE_WIDTH
        found.append((tile, b"".join(_tile_hashes(data, width, path)[: tile.width])))
        paths.append(path)
    edge = tlog.TileEdge(checkpoint.size, found)
    root = edge.frontier().root()
    if root != checkpoint.root:
        raise Tampered(
            "the tiles at the edge of the tree do not give the signed root",
            where=", ".join(paths) or checkpoint_path(log),
            expected=checkpoint.root.hex(),
            found=root.hex(),
            cure="one of these files was changed: `ledger fsck` finds out which",
        )
    return edge


def _read_or_full(storage: Storage, tile: tlog.Tile, path_of: _PathOf, log: str) -> tuple[bytes, str]:
    """The bytes of a tile or bundle and their path; a complete one stands in for a partial one that is gone."""
    path = path_of(tile, log)
    try:
        return storage.read(path), path
    except NotFound as error:
        if tile.partial:
            full = path_of(tlog.Tile(tile.level, tile.index), log)
            try:
                return storage.read(full), full
            except NotFound:
                pass
        raise NotFound(
            "a file of the log is missing", where=path, cure="restore it from a copy; the signed root needs it"
        ) from error


def _tile_hashes(data: bytes, width: int, path: str) -> list[bytes]:
    if len(data) != width * tlog.HASH_SIZE:
        raise Tampered(
            "a tile has another length",
            where=path,
            expected=f"{width * tlog.HASH_SIZE} bytes",
            found=f"{len(data)} bytes",
        )
    return tlog.split_hashes(data)


def _rolled_back(log: str, journal: int, published: int) -> Tampered:
    return Tampered(
        "the published checkpoint is older than the journal",
        where=checkpoint_path(log),
        expected=f"a size of at least {journal}",
        found=f"{published}",
        cure="an older checkpoint was put back: restore the newest copy",
    )


def _journal_differs(log: str, expected: str, found: str) -> LedgerError:
    return Tampered(
        "a record of the journal does not continue the log",
        where=journal_path(log),
        expected=expected,
        found=found,
        cure="restore the log's folder from a copy",
    )
