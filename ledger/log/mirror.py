"""Publishing a log elsewhere: its standard files copied to another storage, so that a reader there never sees half.

Tiles and bundles first, then the links of keys, the checkpoint last: what the checkpoint signs is there before it.
Every byte that is copied was verified under the source's signed root, and the target must hold an earlier state of
the same log, or nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ledger.errors import NotFound
from ledger.format.bundle import pack_entries
from ledger.format.checkpoint import LogCheckpoint, open_checkpoint
from ledger.format.layout import checkpoint_path, entries_path, tile_path
from ledger.format.note import VerifierKey
from ledger.format.tlog import TILE_HEIGHT, TILE_WIDTH, Tile, all_tiles
from ledger.log.reader import LogReader
from ledger.log.trust import follow_keys, link_path, read_links
from ledger.storage.port import Storage

_GROUP = 64


@dataclass(frozen=True)
class Mirrored:
    """What a publication did: how many files went over, and from which size to which."""

    files: int
    old_size: int
    new_size: int


def mirror_log(source: Storage, target: Storage, keys: Sequence[VerifierKey]) -> Mirrored:
    """Bring the log below ``target`` to what is published at ``source``.

    Raises:
        Tampered: the target holds another history, or a longer one.
        Conflict: a file of the target differs from what the log says.
    """
    note = source.read(checkpoint_path())
    reader = LogReader(source, keys)
    published, _ = open_checkpoint(note, follow_keys(source, keys))
    reader.check_continues(published)
    there = _present(target, keys)
    if there is not None:
        reader.check_continues(there)
    old = 0 if there is None else there.size
    files = 0
    if there is None or old < published.size:
        pending: list[tuple[str, bytes]] = []
        for item in _files(reader, old, published.size):
            pending.append(item)
            if len(pending) == _GROUP:
                target.ensure_many(pending)
                files, pending = files + len(pending), []
        target.ensure_many(pending)
        files += len(pending)
    for number, (_, proof) in enumerate(read_links(source)):
        target.ensure(link_path(number), str(proof).encode())
    target.replace(checkpoint_path(), note)
    return Mirrored(files + 1, old, published.size)


def _present(target: Storage, keys: Sequence[VerifierKey]) -> LogCheckpoint | None:
    try:
        return LogReader(target, keys).published()
    except NotFound:
        return None


def _files(reader: LogReader, old: int, size: int) -> Iterator[tuple[str, bytes]]:
    """The tiles and bundles that a log of ``size`` has and one of ``old`` does not, the bundles first."""
    for index in range(old // TILE_WIDTH, -(-size // TILE_WIDTH)):
        first = index * TILE_WIDTH
        width = min(TILE_WIDTH, size - first)
        entries = [entry for _, entry in reader.entries(first, first + width)]
        yield entries_path(Tile(0, index, width)), pack_entries(entries)
    for tile in all_tiles(size):
        if (tile.index * TILE_WIDTH + tile.width) << (TILE_HEIGHT * tile.level) > old:
            first = tile.index * TILE_WIDTH
            hashes = [reader.hash(TILE_HEIGHT * tile.level, at) for at in range(first, first + tile.width)]
            yield tile_path(tile), b"".join(hashes)
