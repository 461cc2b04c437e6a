"""The Merkle tree of RFC 6962 and its tiles (C2SP tlog-tiles): pure functions from bytes to bytes.

A tree over leaves D[0:n] has the root MTH(D[n]) of RFC 6962, section 2.1: a leaf is hashed with the prefix
0x00, a node with 0x01, and a range is split at the largest power of two below its length, so that [a,b,c] and
[a,b,c,c] differ.

Proofs are made from a ``HashReader``, which gives the hash of the complete subtree (level, index) over the
leaves [index·2^level, (index+1)·2^level). Verification is that of RFC 9162, sections 2.1.3.2 and 2.1.4.2,
which is the same tree. Nothing here trusts its input; a proof that does not hold raises ``Unverified``, hashes
of a wrong length ``Malformed``.

A subtree [start, end) is a range of leaves that begins at a multiple of the smallest power of two that is not below its length
(draft-ietf-plants-merkle-tree-certs-03, section 4); its root is that of a tree over these leaves alone. An older tree is the
subtree [0, old), and a consistency proof the proof of that subtree.

Tiles are 256 hashes wide. Tile (L, N) holds the subtrees of height 8·L from N·256 on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ledger.errors import Malformed, Refused, Unverified

HASH_SIZE = 32
TILE_HEIGHT = 8
TILE_WIDTH = 1 << TILE_HEIGHT
EMPTY_ROOT = hashlib.sha256(b"").digest()

HashReader = Callable[[int, int], bytes]


_sha256 = hashlib.sha256


def leaf_hash(entry: bytes) -> bytes:
    """The RFC 6962 hash of an entry."""
    return _sha256(b"\x00" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The RFC 6962 hash of an inner node."""
    return _sha256(b"\x01" + left + right).digest()


def fold(hashes: Sequence[bytes]) -> bytes:
    """The root over ``hashes``, taken as the hashes of equally high neighbouring subtrees; they number at least one.

    Level by level, an odd last one going up as it is: the same tree as the RFC's splits make.
    """
    while len(hashes) > 1:
        pairs = iter(hashes)
        folded = [_sha256(b"\x01" + left + right).digest() for left, right in zip(pairs, pairs, strict=False)]
        if len(hashes) % 2:
            folded.append(hashes[-1])
        hashes = folded
    return hashes[0]


def root_of(leaf_hashes: Sequence[bytes]) -> bytes:
    """The root of the tree over these leaf hashes."""
    return fold(leaf_hashes) if leaf_hashes else EMPTY_ROOT


class Frontier:
    """The right edge of a growing tree: one hash for each bit that is set in its size.

    Enough to append and to tell the root, in memory that grows with the logarithm of the size.
    """

    def __init__(self, size: int = 0, peaks: Iterable[bytes] = ()) -> None:
        self.size = size
        self._peaks = list(peaks)
        if len(self._peaks) != size.bit_count():
            raise Malformed(
                "not the peaks of a tree", expected=f"{size.bit_count()} hashes", found=f"{len(self._peaks)}"
            )

    def append(self, leaf: bytes) -> None:
        self.extend((leaf,))

    def extend(self, leaves: Iterable[bytes]) -> None:
        """Append all of ``leaves``, in order."""
        found, size = self._peaks, self.size
        for leaf in leaves:
            level = size
            while level & 1:
                leaf = _sha256(b"\x01" + found.pop() + leaf).digest()
                level >>= 1
            found.append(leaf)
            size += 1
        self.size = size

    def root(self) -> bytes:
        if not self._peaks:
            return EMPTY_ROOT
        root = self._peaks[-1]
        for peak in reversed(self._peaks[:-1]):
            root = node_hash(peak, root)
        return root

    def copy(self) -> Frontier:
        return Frontier(self.size, self._peaks)


def peaks(size: int) -> Iterator[tuple[int, int]]:
    """(level, index) of the complete subtrees that make up a tree of ``size`` leaves, the highest first."""
    yield from _cover(0, size)


def tree_root(size: int, read: HashReader) -> bytes:
    """The root of the first ``size`` leaves."""
    return Frontier(size, (read(level, index) for level, index in peaks(size))).root()


def inclusion_proof(index: int, size: int, read: HashReader) -> list[bytes]:
    """RFC 6962, 2.1.1: the siblings on the way from leaf ``index`` up to the root of ``size`` leaves.

    Raises:
        Refused: no such leaf.
    """
    if not 0 <= index < size:
        raise Refused("no such leaf", where=f"index {index}", expected=f"0 to {size - 1}" if size else "an entry")
    start, end, path = 0, size, []
    while end - start > 1:
        middle = start + _split(end - start)
        if index < middle:
            path.append((middle, end))
            end = middle
        else:
            path.append((start, middle))
            start = middle
    return [_range_hash(*bounds, read) for bounds in reversed(path)]


def consistency_proof(old: int, new: int, read: HashReader) -> list[bytes]:
    """RFC 6962, 2.1.2: that the first ``old`` leaves of the tree of ``new`` leaves are the whole of the older
    tree.

    From the empty tree, or between equal sizes, there is nothing to prove and the proof is empty.

    Raises:
        Refused: no such older tree.
    """
    if not 0 <= old <= new:
        raise Refused("no such older tree", where=f"size {old}", expected=f"0 to {new}")
    return [] if old in (0, new) else subtree_proof(0, old, new, read)


def is_subtree(start: int, end: int) -> bool:
    """Whether the leaves [start, end) are a subtree: not empty, and beginning where a tree of their height may."""
    return 0 <= start < end and start % (1 << (end - start - 1).bit_length()) == 0


def subtree_root(start: int, end: int, read: HashReader) -> bytes:
    """The root over the leaves [start, end) alone.

    Raises:
        Refused: they are not a subtree.
    """
    _check_subtree(start, end)
    return _range_hash(start, end, read)


def subtree_proof(start: int, end: int, size: int, read: HashReader) -> list[bytes]:
    """That the leaves [start, end) are a subtree of the tree of ``size`` leaves.

    Raises:
        Refused: they are not a subtree of it.
    """
    _check_subtree(start, end)
    if end > size:
        raise Refused("no such subtree", where=f"leaves {start} to {end}", expected=f"an end of at most {size}")
    first, last, path, whole = 0, size, [], True
    while (start, end) != (first, last):
        middle = first + _split(last - first)
        if end <= middle:
            path.append((middle, last))
            last = middle
        else:
            path.append((first, middle))
            first = middle
            if start < middle:  # only what lies right of the middle is still to be found
                start, whole = middle, False
    if not whole:
        path.append((first, last))
    return [_range_hash(*bounds, read) for bounds in reversed(path)]


def verify_inclusion(index: int, size: int, leaf: bytes, proof: Sequence[bytes], root: bytes) -> None:
    """Raise unless ``proof`` shows that ``leaf`` is leaf ``index`` of the tree with this size and root.

    Raises:
        Unverified: the proof does not lead to the root.
    """
    check_hashes((leaf, root, *proof))
    if not 0 <= index < size:
        raise Unverified("inclusion proof", expected=f"an index below {size}", found=f"{index}")
    node, last, found = index, size - 1, leaf
    for step in proof:
        if last == 0:
            raise Unverified("inclusion proof", where=f"index {index}", found="more hashes than the tree is high")
        if node & 1 or node == last:
            found = node_hash(step, found)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            found = node_hash(found, step)
        node, last = node >> 1, last >> 1
    if last:
        raise Unverified("inclusion proof", where=f"index {index}", found="fewer hashes than the tree is high")
    check_root("inclusion proof", size, root, found)


def verify_subtree(start: int, end: int, size: int, subtree: bytes, root: bytes, proof: Sequence[bytes]) -> None:
    """Raise unless ``proof`` shows that ``subtree`` is the root over the leaves [start, end) of this tree.

    Raises:
        Unverified: they are not a subtree of it, or the proof does not lead to both roots.
    """
    check_hashes((subtree, root, *proof))
    where = f"leaves {start} to {end} of {size}"
    if not is_subtree(start, end) or end > size:
        raise Unverified("subtree proof", where=where, expected="a subtree of the tree", found="none")
    hashes = iter(proof)
    try:
        found, above = _climb(start, end, size, subtree, hashes)
    except StopIteration:
        raise Unverified("subtree proof", where=where, found="fewer hashes than the tree is high") from None
    if next(hashes, None) is not None:
        raise Unverified("subtree proof", where=where, found="more hashes than the tree is high")
    if found != subtree:
        raise Unverified("subtree proof", where=where, expected=subtree.hex(), found=found.hex())
    check_root("subtree proof", size, root, above)


# Tiles


@dataclass(frozen=True, order=True)
class Tile:
    """Tile ``index`` of level ``level``, ``width`` hashes wide: 256 when complete."""

    level: int
    index: int
    width: int = TILE_WIDTH

    @property
    def partial(self) -> bool:
        return self.width < TILE_WIDTH


def tile_of(level: int, index: int) -> tuple[int, int, slice]:
    """Where the hash (level, index) is found: tile level, tile index, and the hashes of the tile that fold to it."""
    height = level % TILE_HEIGHT
    first = index << height
    offset = first % TILE_WIDTH
    return level // TILE_HEIGHT, first // TILE_WIDTH, slice(offset, offset + (1 << height))


def tile_at(level: int, index: int, size: int) -> Tile:
    """Tile (level, index) as a tree of ``size`` leaves has it; its width is 0 where that tree has no such tile."""
    hashes = size >> (TILE_HEIGHT * level)
    return Tile(level, index, max(0, min(TILE_WIDTH, hashes - index * TILE_WIDTH)))


def partial_tiles(size: int) -> list[Tile]:
    """The partial tiles at the right edge of a tree of ``size`` leaves, level by level; empty ones are left out."""
    found, level = [], 0
    while hashes := size >> (TILE_HEIGHT * level):
        if width := hashes % TILE_WIDTH:
            found.append(Tile(level, hashes // TILE_WIDTH, width))
        level += 1
    return found


def all_tiles(size: int) -> Iterator[Tile]:
    """Every tile of a tree of ``size`` leaves, level by level."""
    level = 0
    while hashes := size >> (TILE_HEIGHT * level):
        for index in range((hashes + TILE_WIDTH - 1) // TILE_WIDTH):
            yield tile_at(level, index, size)
        level += 1


class TileEdge:
    """The partial tiles at the right edge of a growing tree. ``append`` returns the tiles that it completes."""

    def __init__(self, size: int = 0, partial: Iterable[tuple[Tile, bytes]] = ()) -> None:
        self.size = size
        self._levels: list[list[bytes]] = []
        for tile, data in partial:
            self._level(tile.level).extend(split_hashes(data))
        for level in range(len(self._levels)):
            if len(self._levels[level]) != (size >> (TILE_HEIGHT * level)) % TILE_WIDTH:
                raise Malformed("partial tiles do not fit the size of the tree", where=f"level {level}, size {size}")

    def append(self, leaf: bytes) -> list[tuple[Tile, bytes]]:
        done: list[tuple[Tile, bytes]] = []
        self.size += 1
        level, carried = 0, leaf
        while True:
            hashes = self._level(level)
            hashes.append(carried)
            if len(hashes) < TILE_WIDTH:
                return done
            index = (self.size >> (TILE_HEIGHT * (level + 1))) - 1
            done.append((Tile(level, index), b"".join(hashes)))
            carried = fold(hashes)
            hashes.clear()
            level += 1

    def copy(self) -> TileEdge:
        return TileEdge(self.size, self.partial())

    def partial(self) -> list[tuple[Tile, bytes]]:
        return [(tile, b"".join(self._levels[tile.level])) for tile in partial_tiles(self.size)]

    def hashes(self, level: int) -> list[bytes]:
        """The hashes of the partial tile of this level."""
        return self._level(level)

    def frontier(self) -> Frontier:
        """The right edge as peaks; its root authenticates every hash that this edge holds."""
        found = []
        for hashes in reversed(self._levels):
            start = 0
            for level, _ in peaks(len(hashes)):
                found.append(fold(hashes[start : start + (1 << level)]))
                start += 1 << level
        return Frontier(self.size, found)

    def _level(self, level: int) -> list[bytes]:
        while len(self._levels) <= level:
            self._levels.append([])
        return self._levels[level]


def split_hashes(data: bytes) -> list[bytes]:
    """The hashes of a tile.

    Raises:
        Malformed: not a tile.
    """
    if len(data) % HASH_SIZE:
        raise Malformed("not a tile", expected=f"a multiple of {HASH_SIZE} bytes", found=f"{len(data)} bytes")
    return [data[at : at + HASH_SIZE] for at in range(0, len(data), HASH_SIZE)]


def _split(length: int) -> int:
    """The largest power of two below ``length``, which is at least 2."""
    return 1 << ((length - 1).bit_length() - 1)


def _cover(start: int, end: int) -> Iterator[tuple[int, int]]:
    """(level, index) of the complete subtrees that make up D[start:end], for a range that the RFC's splits produce."""
    while start < end:
        level = (end - start).bit_length() - 1
        yield level, start >> level
        start += 1 << level


def _range_hash(start: int, end: int, read: HashReader) -> bytes:
    hashes = [read(level, index) for level, index in _cover(start, end)]
    root = hashes[-1]
    for left in reversed(hashes[:-1]):
        root = node_hash(left, root)
    return root


def _climb(start: int, end: int, size: int, subtree: bytes | None, hashes: Iterator[bytes]) -> tuple[bytes, bytes]:
    """The roots over [start, end) and over all of ``size`` leaves, from the proof's hashes, the lowest first.

    ``subtree`` is the root that is taken as it is where the way down arrives at the whole subtree; None where only a right part
    of it is below, whose root is a hash of the proof.
    """
    if (start, end) == (0, size):
        known = next(hashes) if subtree is None else subtree
        return known, known
    middle = _split(size)
    if end <= middle:
        found, left = _climb(start, end, middle, subtree, hashes)
        return found, node_hash(left, next(hashes))
    if start >= middle:
        found, right = _climb(start - middle, end - middle, size - middle, subtree, hashes)
        return found, node_hash(next(hashes), right)
    found, right = _climb(0, end - middle, size - middle, None, hashes)
    left = next(hashes)
    return node_hash(left, found), node_hash(left, right)


def _check_subtree(start: int, end: int) -> None:
    if not is_subtree(start, end):
        raise Refused(
            "not a subtree",
            where=f"leaves {start} to {end}",
            expected="a start that is a multiple of the smallest power of two not below the length",
            found=f"{end - start} leaves",
        )


def check_hashes(hashes: Iterable[bytes]) -> None:
    """Raises Malformed where one is not of SHA-256's size."""
    for value in hashes:
        if len(value) != HASH_SIZE:
            raise Malformed("not a SHA-256 hash", expected=f"{HASH_SIZE} bytes", found=f"{len(value)} bytes")


def check_root(what: str, size: int, expected: bytes, found: bytes) -> None:
    """Raises Unverified where a root is another one."""
    if expected != found:
        raise Unverified(what, where=f"root of {size} leaves", expected=expected.hex(), found=found.hex())
