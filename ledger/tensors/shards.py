"""The digest of an array whose parts lie in several processes: each hashes what it holds, and nobody holds the whole.

    mine = hash_shards("float32", (4096, 1024), [((slice(0, 2048), slice(None)), array)])
    parcels = mine.parcels(processes)         # exchange: parcels[p] goes to process p (all-to-all)
    leaves = merge_shards(parcels_for_me)            # the tiles that are mine to finish
    digest = merge_shards(leaves_of_all).digest()    # 32 bytes for each MiB, on every process or on one

A tensor's digest is a Merkle root over tiles of 1 MiB in C order (``tensors``). A tile that lies wholly in one process
is hashed there and only its 32 bytes travel. A tile that is cut travels in pieces to the one process that finishes it
(number of the tile modulo processes): at most two tiles for each shard where shards are runs of rows, and the bytes
once where they are cut across columns, but never more than its share of them to any process. Replicas may be given too:
equal bytes are taken once, and others are a finding (Conflict). How parcels travel is the caller's: they are plain
bytes.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from ledger.errors import Conflict, LedgerError, Malformed, Refused
from ledger.format.canonical import canonical_bytes, parse_canonical
from ledger.tensors.tensors import TILE_SIZE, item_size, little_endian_bytes, root_digest

if TYPE_CHECKING:
    from numpy.typing import NDArray

Index = Sequence[slice]
"""Where a shard lies in its array: one slice for each axis, with step 1, as ``jax.Shard.index`` gives it."""

Tiles = Literal["all", "whole", "cut"]

_SEPARATOR: Final = b"\n"


@dataclass(frozen=True)
class PartialTensor:
    """What is known of a tensor in one place: hashes of whole tiles by number, and pieces of others by first byte."""

    dtype: str
    shape: tuple[int, ...]
    leaves: Mapping[int, bytes] = field(default_factory=dict)
    pieces: Mapping[int, bytes] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of the whole tensor."""
        return math.prod(self.shape) * item_size(self.dtype)

    def parcels(self, processes: int) -> list[bytes]:
        """What to send to each process: to the first all hashes, to each the pieces of the tiles that it finishes."""
        pieces: list[dict[int, bytes]] = [{} for _ in range(processes)]
        for start, data in self.pieces.items():
            pieces[start // TILE_SIZE % processes][start] = data
        return [
            PartialTensor(self.dtype, self.shape, {} if process else self.leaves, mine).encode()
            for process, mine in enumerate(pieces)
        ]

    def encode(self) -> bytes:
        """A line of canonical JSON that says what follows, then the hashes and the pieces."""
        leaves, pieces = sorted(self.leaves.items()), sorted(self.pieces.items())
        head = canonical_bytes(
            {
                "dtype": self.dtype,
                "kind": "partial tensor",
                "shape": list(self.shape),
                "tiles": [tile for tile, _ in leaves],
                "pieces": [[start, len(data)] for start, data in pieces],
                "version": 1,
            }
        )
        return b"".join([head, _SEPARATOR, *(leaf for _, leaf in leaves), *(data for _, data in pieces)])

    @classmethod
    def parse(cls, data: bytes) -> PartialTensor:
        """What ``encode`` made. Malformed if it is something else."""
        head, separator, rest = data.partition(_SEPARATOR)
        try:
            fields = parse_canonical(head)
            tiles, spans = fields["tiles"], fields["pieces"]
            ends = list(itertools.accumulate((length for _, length in spans), initial=32 * len(tiles)))
            if not separator or ends[-1] != len(rest) or fields["version"] != 1:
                raise ValueError("another length")
            leaves = {tile: rest[32 * i : 32 * i + 32] for i, tile in enumerate(tiles)}
            pieces = {start: rest[ends[i] : ends[i + 1]] for i, (start, _) in enumerate(spans)}
            return cls(fields["dtype"], tuple(fields["shape"]), leaves, pieces)
        except (LedgerError, KeyError, TypeError, ValueError) as error:
            raise Malformed("partial tensor", expected="one of version 1", found=str(error)) from error

    def digest(self) -> str:
        """The tensor's digest, the same as ``tensor_digest`` of the whole. Refused while a tile is missing."""
        tiles = -(-self.nbytes // TILE_SIZE)
        missing = [tile for tile in range(tiles) if tile not in self.leaves]
        if missing or len(self.leaves) != tiles:
            raise Refused(
                "digest of a tensor in parts",
                expected=f"all of {tiles} tiles",
                found=f"{len(missing)} missing, the first is {missing[0] if missing else 'none'}",
                cure="merge what every process holds",
            )
        return root_digest(self.dtype, self.shape, [self.leaves[tile] for tile in range(tiles)])


def hash_shards(
    dtype: str, shape: Sequence[int], shards: Iterable[tuple[Index, Any]], tiles: Tiles = "all"
) -> PartialTensor:
    """Hash the shards of one array that lie here: (index, array) of each. Tiles that are cut stay as pieces.

    ``tiles``: look at those that lie here as a whole, or at the pieces of the others, alone: what has to travel is known
    without hashing what does not.
    """
    whole = PartialTensor(dtype, tuple(shape))
    leaves: dict[int, bytes] = {}
    pieces: dict[int, bytes] = {}
    for index, array in shards:
        for start, run in _runs(whole, index, array):
            _cut(whole.nbytes, start, run, leaves, pieces, tiles)
    return merge_shards([PartialTensor(dtype, tuple(shape), leaves, pieces)])


def merge_shards(parts: Iterable[PartialTensor | bytes]) -> PartialTensor:
    """Put together what several places know of one tensor; tiles whose pieces are complete become hashes.

    Raises:
        Refused: there are no parts, or they are of several dtypes or shapes.
        Conflict: two places know a tile by different bytes.
    """
    known = [part if isinstance(part, PartialTensor) else PartialTensor.parse(part) for part in parts]
    if not known or any((part.dtype, part.shape) != (known[0].dtype, known[0].shape) for part in known):
        raise Refused(
            "parts of a tensor", expected="one or more, of one dtype and shape", found=f"{len(known)} of others"
        )
    leaves: dict[int, bytes] = {}
    pieces: dict[int, bytes] = {}
    for part in known:
        for tile, leaf in part.leaves.items():
            if leaves.setdefault(tile, leaf) != leaf:
                raise _differs(tile)
        for start, data in part.pieces.items():
            if len(pieces.get(start, b"")) < len(data):
                pieces[start] = data
    by_tile: dict[int, list[tuple[int, bytes]]] = {}
    for start, data in sorted(pieces.items()):
        by_tile.setdefault(start // TILE_SIZE, []).append((start, data))
    left: dict[int, bytes] = {}
    for tile, found in by_tile.items():
        finished = _finished(tile, found, known[0].nbytes)
        if finished is None:
            if tile not in leaves:
                left.update(found)
        elif leaves.setdefault(tile, finished) != finished:
            raise _differs(tile)
    return PartialTensor(known[0].dtype, known[0].shape, leaves, left)


def _finished(tile: int, pieces: list[tuple[int, bytes]], nbytes: int) -> bytes | None:
    """The leaf hash of a tile whose pieces leave no gap; None where one is missing. Overlaps must agree."""
    position, end = tile * TILE_SIZE, min(nbytes, (tile + 1) * TILE_SIZE)
    whole = bytearray()
    for start, data in pieces:
        if start > position:
            return None
        overlap = position - start
        if whole[len(whole) - overlap :][: len(data)] != data[:overlap] and overlap:
            raise _differs(tile)
        whole += data[overlap:]
        position = max(position, start + len(data))
    if position < end:
        return None
    return hashlib.sha256(b"\x00" + whole).digest()


def _cut(
    nbytes: int, start: int, run: memoryview, leaves: dict[int, bytes], pieces: dict[int, bytes], tiles: Tiles
) -> None:
    """Split a run of bytes at tiles: whole ones are hashed, the ends are kept."""
    offset = 0
    while offset < len(run):
        tile = (start + offset) // TILE_SIZE
        end = min(len(run), (tile + 1) * TILE_SIZE - start)
        data = run[offset:end]
        whole = start + offset == tile * TILE_SIZE and start + end in ((tile + 1) * TILE_SIZE, nbytes)
        if whole and tiles != "cut":
            leaf = hashlib.sha256(b"\x00")
            leaf.update(data)
            if leaves.setdefault(tile, leaf.digest()) != leaf.digest():
                raise _differs(tile)
        elif not whole and tiles != "whole":
            first = start + offset
            if len(pieces.get(first, b"")) < len(data):
                pieces[first] = bytes(data)
        offset = end


def _runs(whole: PartialTensor, index: Index, array: Any) -> Iterator[tuple[int, memoryview]]:
    """(first byte in the whole array's C order, bytes) of each stretch of a shard that is contiguous there."""
    import numpy as np

    values: NDArray[Any] = np.asarray(array)
    starts, extents = _place(whole, index, values)
    size = item_size(whole.dtype)
    # The trailing axes that the shard has in full make one run together with the axis before them.
    axis = len(extents)
    while axis > 0 and extents[axis - 1] == whole.shape[axis - 1]:
        axis -= 1
    lead = max(0, axis - 1)
    strides = [math.prod(whole.shape[i + 1 :]) for i in range(len(extents))]
    base = sum(start * stride for start, stride in zip(starts, strides, strict=True))
    for position in itertools.product(*(range(extent) for extent in extents[:lead])):
        first = base + sum(at * stride for at, stride in zip(position, strides, strict=False))
        run = values[position]
        if run.size:
            yield first * size, little_endian_bytes(run)


def _place(whole: PartialTensor, index: Index, values: NDArray[Any]) -> tuple[list[int], list[int]]:
    if len(index) != len(whole.shape) or values.dtype.name != whole.dtype:
        raise Refused(
            "shard of a tensor",
            expected=f"{whole.dtype} with {len(whole.shape)} slices",
            found=f"{values.dtype.name} with {len(index)}",
        )
    spans = [part.indices(extent) for part, extent in zip(index, whole.shape, strict=True)]
    extents = [max(0, stop - start) for start, stop, _ in spans]
    if any(step != 1 for _, _, step in spans) or extents != list(values.shape):
        raise Refused(
            "shard of a tensor", expected=f"slices with step 1 of shape {list(values.shape)}", found=f"{extents}"
        )
    return [start for start, _, _ in spans], extents


def _differs(tile: int) -> Conflict:
    return Conflict(
        "copies of one tile are not the same",
        where=f"tile {tile}",
        expected="equal bytes in every replica",
        cure="one of the processes computed something else: compare their states",
    )
