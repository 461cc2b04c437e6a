"""The digest of a state that lies in slices on devices, taken where it lies: no process ever holds the whole.

A slice of a tensor is a run of its bytes, so each is hashed in place, by the processes that hold it. Tiles that two
slices share are put together: of a process's own slices at once, of others' by sending the pieces to the one process
that finishes the tile (:mod:`ledger.tensors.shards`): at most two pieces of 1 MiB for each slice, and 32 bytes for
every whole tile.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, pairwise

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from ledger import PartialTensor, StateManifest, TensorInfo, hash_shards, merge_shards, tensor_info
from marin.training.step.slices import Layout, SlicedState


def describe(state: SlicedState, layout: Layout, names: Sequence[str]) -> StateManifest:
    """Digest of every tensor, and of the whole; equals ``manifest_of(layout.join(state))``.

    ``names``: of all tensors in the order of ``state.leaves``: step, cursor, key, parameters, moments. Where several
    processes train as one, all of them must call this, and all get the answer.
    """
    own = [tensor_info(name, value) for name, value in zip(names, (state.step, state.cursor, state.key), strict=False)]
    sliced, likes = names[len(own) :], (*layout.params, *layout.moments)
    pieces = [
        [piece[i] for piece in kept]
        for kept, count in ((state.params, len(layout.params)), (state.moments, len(layout.moments)))
        for i in range(count)
    ]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        parts = list(pool.map(_here, likes, pieces))
    digests = [part.digest() for part in (parts if jax.process_count() == 1 else _together(parts))]
    rows = zip(sliced, likes, digests, strict=True)
    return StateManifest.of(
        [
            *own,
            *(
                TensorInfo(name, like.dtype.name, like.shape, digest, like.size * like.dtype.itemsize)
                for name, like, digest in rows
            ),
        ]
    )


def _here(like: jax.ShapeDtypeStruct, pieces: Sequence[jax.Array]) -> PartialTensor:
    """What this process holds of one tensor. ``pieces[j]``: local slice j of every device, [devices, width]."""
    parts = []
    for j, piece in enumerate(pieces):
        for shard in piece.addressable_shards:
            device = shard.index[0].start or 0
            rows = np.asarray(shard.data)
            if not like.shape:
                return hash_shards(like.dtype.name, (), [((), rows[0])])
            width = rows.shape[1]
            start = min((device * len(pieces) + j) * width, like.size)
            run = rows[0, : like.size - start]  # what is beyond is padding
            parts.append(hash_shards(like.dtype.name, (like.size,), [((slice(start, start + run.size),), run)]))
    flat = merge_shards(parts)
    return PartialTensor(like.dtype.name, like.shape, flat.leaves, flat.pieces)


def _together(parts: Sequence[PartialTensor]) -> list[PartialTensor]:
    """What all processes know of every tensor: cut tiles go to whoever finishes them, then everybody hears of all
    hashes."""
    count = jax.process_count()
    for_each = list(zip(*(part.parcels(count) for part in parts), strict=True))
    heard = _exchanged([_packed(parcels) for parcels in for_each])
    mine = [merge_shards(copies) for copies in zip(*map(_unpacked, heard), strict=True)]
    said = _to_all(_packed([part.encode() for part in mine]))
    return [merge_shards(copies) for copies in zip(*map(_unpacked, said), strict=True)]


def _packed(items: Sequence[bytes]) -> bytes:
    """Length in bytes of each item (8 bytes each, little-endian), after their count; then the items."""
    return np.array([len(items), *map(len, items)], "<u8").tobytes() + b"".join(items)


def _unpacked(data: bytes) -> list[bytes]:
    count = int(np.frombuffer(data, "<u8", 1)[0])
    lengths = np.frombuffer(data, "<u8", count, 8).tolist()
    ends = list(accumulate(lengths, initial=8 * (count + 1)))
    return [data[begin:end] for begin, end in pairwise(ends)]


def _exchanged(items: Sequence[bytes]) -> list[bytes]:
    """``items[p]`` goes to process p; what every process had for this one."""
    count = len(items)
    length = _longest(items)
    rows = np.stack([_padded(item, length) for item in items])[None]
    devices = [next(device for device in jax.devices() if device.process_index == process) for process in range(count)]
    mesh = Mesh(np.array(devices), ("process",))
    sent = jax.make_array_from_process_local_data(NamedSharding(mesh, P("process")), rows, (count, count, length))
    received = jax.jit(lambda x: x, out_shardings=NamedSharding(mesh, P(None, "process")))(sent)
    return [row.tobytes() for row in np.asarray(received.addressable_data(0))[:, 0]]


def _to_all(item: bytes) -> list[bytes]:
    """Every process's ``item``, in their order."""
    length = _longest([item])
    return [row.tobytes() for row in np.asarray(multihost_utils.process_allgather(_padded(item, length)))]


def _longest(items: Sequence[bytes]) -> int:
    """The length of the longest item of all processes."""
    return int(np.max(multihost_utils.process_allgather(np.array([len(item) for item in items], np.int32))))


def _padded(item: bytes, length: int) -> np.ndarray:
    return np.frombuffer(item.ljust(length, b"\0"), np.uint8)
