"""Arrays in parts: whatever the sharding, the digest is that of the whole, and no process is sent more than its
share."""

from __future__ import annotations

import hashlib
import itertools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger import Conflict, Malformed, Refused, tensor_digest
from ledger.tensors import shards as module
from ledger.tensors.shards import PartialTensor, hash_shards, merge_shards
from ledger.tensors.tensors import TILE_SIZE


def split(shape, cuts):
    """Indices of a grid of shards: `cuts[axis]` inner bounds on each axis."""
    edges = [[0, *sorted(min(cut, extent) for cut in cuts[axis]), extent] for axis, extent in enumerate(shape)]
    spans = [[slice(a, b) for a, b in itertools.pairwise(edge)] for edge in edges]
    return list(itertools.product(*spans))


def through_processes(array, indices, processes):
    """The whole exchange, as several processes do it; the digest, and how many bytes each was sent."""
    held = [[(index, array[index]) for index in indices[process::processes]] for process in range(processes)]
    partial = [hash_shards(array.dtype.name, array.shape, mine) for mine in held]
    parcels = [part.parcels(processes) for part in partial]
    received = [[parcel[process] for parcel in parcels] for process in range(processes)]
    finished = [merge_shards(mine) for mine in received]
    assert all(not part.pieces for part in finished)
    return merge_shards([part.encode() for part in finished]).digest(), [sum(map(len, mine)) for mine in received]


@given(st.data())
def test_any_grid_of_shards_has_the_digest_of_the_whole(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(0, 9), max_size=4)))
    dtype = np.dtype(data.draw(st.sampled_from(["float32", ml_dtypes.bfloat16, "bool", "complex128", ">i4"])))
    array = np.random.default_rng(1).integers(0, 2, shape).astype(dtype)
    cuts = [data.draw(st.lists(st.integers(0, extent), max_size=2)) for extent in shape]
    processes = data.draw(st.integers(1, 4))
    indices = data.draw(st.permutations(split(shape, cuts)))
    before, module.TILE_SIZE = module.TILE_SIZE, data.draw(st.sampled_from([16, 48, 1 << 20]))
    try:
        leaves = [hashlib.sha256(b"\0" + tile).digest() for tile in tiles(array, module.TILE_SIZE)]
        found, _ = through_processes(array, indices, processes)
        assert found == module.root_digest(array.dtype.name, shape, leaves)
    finally:
        module.TILE_SIZE = before


def tiles(array, size):
    raw = array.astype(array.dtype.newbyteorder("<")).tobytes()
    return [raw[start : start + size] for start in range(0, len(raw), size)]


def test_rows_of_a_real_tile_size_send_hashes_and_edges_only() -> None:
    array = np.random.default_rng(2).standard_normal((3001, 700)).astype(np.float32)
    indices = [(slice(a, b), slice(None)) for a, b in itertools.pairwise([0, 700, 1501, 2200, 3001])]
    digest, sent = through_processes(array, indices, 4)
    assert digest == tensor_digest(array)
    assert sum(sent) < 4 * 2 * TILE_SIZE
    columns = [(slice(None), slice(a, b)) for a, b in itertools.pairwise([0, 175, 350, 525, 700])]
    digest, sent = through_processes(array, columns, 4)
    assert digest == tensor_digest(array)
    assert max(sent) < 0.5 * array.nbytes, "no process is sent the whole"


def test_replicas_agree_or_are_found() -> None:
    array = np.arange(600_000, dtype=np.int32).reshape(600, 1000)
    whole = (slice(None), slice(None))
    twice = hash_shards("int32", array.shape, [(whole, array), (whole, array.copy())])
    assert twice.digest() == tensor_digest(array)
    other = array.copy()
    other[300, 7] += 1
    for index in (whole, (slice(0, 301), slice(None))):
        with pytest.raises(Conflict, match="tile 1"):
            merge_shards(
                [
                    hash_shards("int32", array.shape, [(whole, array)]),
                    hash_shards("int32", array.shape, [(index, other[index])]),
                    hash_shards("int32", array.shape, [((slice(301, 600), slice(None)), array[301:])]),
                ]
            )


def test_what_is_missing_or_wrong_is_refused() -> None:
    array = np.zeros((600, 1000), np.int32)
    half = hash_shards("int32", array.shape, [((slice(0, 300), slice(None)), array[:300])])
    with pytest.raises(Refused, match="missing"):
        half.digest()
    with pytest.raises(Refused, match="step 1"):
        hash_shards("int32", (4,), [((slice(0, 4, 2),), array[0, :2])])
    with pytest.raises(Refused, match="shard"):
        hash_shards("int32", (4,), [((slice(0, 4),), np.zeros(4))])
    with pytest.raises(Refused, match="one dtype"):
        merge_shards([half, hash_shards("int32", (1,), [])])
    encoded = half.encode()
    assert PartialTensor.parse(encoded) == half
    for broken in (encoded[:-1], b"", b"{}\n", encoded.replace(b'"version":1', b'"version":2')):
        with pytest.raises(Malformed):
            PartialTensor.parse(broken)
