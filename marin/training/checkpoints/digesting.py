"""The digest of a state that lies in slices on devices, taken where it lies: no process ever holds the whole.

A slice of a tensor is one run of its bytes, or one for each of its lead rows, so each is hashed in place, by the process
that holds it. Tiles that two slices share are put together: of a process's own slices at once, of others' by sending the
pieces to the one process that finishes the tile (:mod:`ledger.tensors.shards`): at most two pieces of 1 MiB for each
run, and 32 bytes for every whole tile.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import accumulate, pairwise
from typing import Literal

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from ledger import PartialTensor, StateManifest, TensorInfo, hash_shards, merge_shards
from marin.training.step.slices import Layout, SlicedState

Held = Mapping[int, Mapping[str, np.ndarray]]
"""What a process holds (:meth:`marin.training.step.slices.Layout.held`): slice number -> tensor -> its elements there."""


def describe(state: SlicedState, layout: Layout) -> StateManifest:
    """Digest of every tensor, and of the whole; equals ``manifest_of(layout.join(state))``.

    Where several processes train as one, all of them must call this, and all get the answer.
    """
    parts = hashed(layout.held(state), layout)
    return manifest_from(parts if jax.process_count() == 1 else _together(parts), layout)


def hashed(held: Held, layout: Layout, tiles: Literal["all", "whole", "cut"] = "all") -> list[PartialTensor]:
    """What is known here of every tensor, in the order of ``layout.names``: hashes of whole tiles, pieces of others. Of
    nothing a process knows that has none of the slices but copies of them: those are another replica's to say."""
    if not held:
        return [PartialTensor(*layout.kinds[name]) for name in layout.names]

    def one(name: str, number: int) -> PartialTensor:
        dtype, shape = layout.kinds[name]
        lead, n = layout.form.rows(name, shape)
        first, last = layout.form.run(name, shape, number)
        run = held[number][name].reshape(lead, last - first)
        flat = hash_shards(dtype, (lead, n), [((slice(0, lead), slice(first, last)), run)] if run.size else [], tiles)
        return PartialTensor(dtype, shape, flat.leaves, flat.pieces)

    workers, found = os.cpu_count() or 1, []
    with ThreadPoolExecutor(workers) as pool:
        ahead: deque[list[Future[PartialTensor]]] = deque()
        for name in layout.names:
            ahead.append([pool.submit(one, name, number) for number in held])
            while len(ahead) * len(held) > workers + len(held):  # pieces of cut tiles, until they are put together
                found.append(merge_shards([part.result() for part in ahead.popleft()]))
        found += [merge_shards([part.result() for part in parts]) for parts in ahead]
    return found


def manifest_from(parts: Sequence[PartialTensor], layout: Layout) -> StateManifest:
    """The manifest of a state of which all tiles are known."""
    return StateManifest.of(
        TensorInfo(name, part.dtype, part.shape, part.digest(), part.nbytes)
        for name, part in zip(layout.names, parts, strict=True)
    )


def _together(parts: Sequence[PartialTensor]) -> list[PartialTensor]:
    """What all processes know of every tensor, in each of them."""
    said = _to_all(packed([part.encode() for part in finished(parts)]))
    return merged(said)


def finished(parts: Sequence[PartialTensor]) -> list[PartialTensor]:
    """Cut tiles go to anyone who finishes them; what this process knows then. All processes must call this."""
    for_each = list(zip(*(part.parcels(jax.process_count()) for part in parts), strict=True))
    return merged(_exchanged([packed(parcels) for parcels in for_each]))


def merged(said: Sequence[bytes]) -> list[PartialTensor]:
    """What several processes said of every tensor (:func:`packed`), put together."""
    return [merge_shards(copies) for copies in zip(*map(unpacked, said), strict=True)]


def packed(items: Sequence[bytes]) -> bytes:
    """Length in bytes of each item (8 bytes each, little-endian), after their count; then the items."""
    return np.array([len(items), *map(len, items)], "<u8").tobytes() + b"".join(items)


def unpacked(data: bytes) -> list[bytes]:
    """The items that :func:`packed` was given, whatever stands behind them."""
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
