"""The state cut into logical slices, as many as the batch has logical shards: what lies where on a mesh.

Every tensor is flattened, padded with zeros and cut into S slices of equal width; slice number s of all tensors makes
logical slice s. On D devices, device d holds slices ``d * S/D ... (d + 1) * S/D - 1``, each as arrays of its own, so
that the optimizer's update is one compiled program of one slice's shapes whatever D is. On the mesh, local slice j is
a global array [D, width] whose row d is on device d.

Scalars (an optimizer's counters) are in every slice; all copies are equal, and the first one counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import haliax as hax
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding

from ledger import SlicedForm
from marin.errors import UsageError
from marin.training.runtime import hosts
from marin.training.state import TrainState, leaves

Leaves = tuple[jax.Array, ...]
ReadRun = Callable[[str, int, int], np.ndarray]
"""Elements of a tensor by its path, the first and one past the last in C order, as a flat array."""
OWN = 3
"""Tensors of a state that lie on the host: step, cursor and key come first of all."""


@dataclass(frozen=True)
class SlicedState:
    """A training state on a mesh. ``params[j]`` and ``moments[j]``: leaves of local slice j, each [D, width].
    ``step``, ``cursor`` and ``key`` are on the host: they are known without computing anything."""

    step: np.ndarray
    cursor: np.ndarray
    key: np.ndarray
    params: tuple[Leaves, ...]
    moments: tuple[Leaves, ...]


def unnamed(tree: Any) -> Any:
    """``tree`` with plain arrays in place of haliax's named ones: same paths, same order of leaves."""
    return jax.tree.map(
        lambda x: x.array if isinstance(x, hax.NamedArray) else x, tree, is_leaf=lambda x: isinstance(x, hax.NamedArray)
    )


class Layout:
    """How the state of one recipe is cut into ``slices`` slices, and back. ``names``: paths of all its tensors, in the order
    of :func:`marin.training.state.leaves`: step, cursor, key, parameters, moments; ``kinds``: their dtypes and shapes.

    Raises:
        UsageError: the optimizer keeps tensors that are not shaped like parameters, so it looks across elements.
    """

    def __init__(self, example: TrainState, optimizer: optax.GradientTransformation, slices: int) -> None:
        self.slices = slices
        named = list(leaves(example))
        self.names = tuple(name for name, _ in named)
        self.kinds = {name: (np.dtype(value.dtype).name, tuple(value.shape)) for name, value in named}
        arrays, self.static = eqx.partition(example.model, eqx.is_inexact_array)
        self.named = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), arrays)
        plain = unnamed(self.named)
        self.params = tuple(jax.tree.leaves(plain))
        self.tree = jax.tree.structure(plain)
        widths = [jax.ShapeDtypeStruct((self.width(x.shape),), x.dtype) for x in self.params]
        sliced = jax.eval_shape(optimizer.init, jax.tree.unflatten(self.tree, widths))
        self.moments_tree = jax.tree.structure(sliced)
        moments = jax.tree.leaves(example.moments)
        self.moments = tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in moments)
        if [self.sliced_shape(x.shape) for x in self.moments] != [x.shape for x in jax.tree.leaves(sliced)]:
            raise UsageError(
                "the optimizer looks across elements of a tensor",
                where="optimizer.name",
                expected="an element-wise optimizer (adamw, lion)",
                found="moments not shaped like parameters",
                cure="choose another one: its result would depend on how tensors are cut",
            )
        self._moments_named = jax.tree.structure(example.moments)

    def width(self, shape: Sequence[int]) -> int:
        """Elements of one slice of a tensor."""
        return -(-math.prod(shape) // self.slices)

    def sliced_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return (self.width(shape),) if len(shape) else ()

    @property
    def form(self) -> SlicedForm:
        """How the state lies in a checkpoint's files."""
        return SlicedForm(self.slices)

    def cut(self, state: TrainState, sharding: NamedSharding) -> SlicedState:
        """``state`` (whole tensors on this host) on the mesh of ``sharding``, which shards the first axis."""
        whole = {name: np.asarray(value).reshape(-1) for name, value in leaves(state)}
        return self.place(lambda name, start, stop: whole[name][start:stop], sharding)

    def place(self, read: ReadRun, sharding: NamedSharding) -> SlicedState:
        """A state on the mesh of ``sharding``, which shards the first axis; ``read`` is asked for the slices of this
        process's devices, one after the other, and for no others."""
        step, cursor, key = (read(name, 0, size) for name, size in zip(self.names, (1, 1, 2), strict=False))
        devices = sharding.mesh.devices.ravel().tolist()
        local, count = self.slices // len(devices), len(self.params)
        tensors = list(zip(self.names[OWN:], (*self.params, *self.moments), strict=True))
        pieces = []
        for j in range(local):
            rows: list[list[jax.Array]] = [[] for _ in tensors]
            for number, device in enumerate(devices):
                if device.process_index != jax.process_index():
                    continue
                for (name, like), kept in zip(tensors, rows, strict=True):
                    kept.append(jax.device_put(self._row(name, like, number * local + j, read), device))
            pieces.append(
                [
                    jax.make_array_from_single_device_arrays(
                        (len(devices), *self.sliced_shape(like.shape)), sharding, kept
                    )
                    for (_, like), kept in zip(tensors, rows, strict=True)
                ]
            )
        return SlicedState(
            step=np.asarray(step).reshape(()),
            cursor=np.asarray(cursor).reshape(()),
            key=np.asarray(key),
            params=tuple(tuple(piece[:count]) for piece in pieces),
            moments=tuple(tuple(piece[count:]) for piece in pieces),
        )

    def _row(self, name: str, like: jax.ShapeDtypeStruct, number: int, read: ReadRun) -> np.ndarray:
        """A slice of a tensor as it lies on a device: padded with zeros, under an axis of one."""
        if not like.shape:
            return np.asarray(read(name, 0, 1), like.dtype)
        start, stop = self.form.run(name, like.shape, number)
        row = np.zeros((1, self.width(like.shape)), like.dtype)
        row[0, : stop - start] = read(name, start, stop)
        return row

    def held(self, state: SlicedState, *, copied: bool = False) -> dict[int, dict[str, np.ndarray]]:
        """What this process holds: slice number -> tensor -> its elements there, flat and without padding. They are views
        of what lies on a processor's device, unless ``copied``; a tensor without a place in a slice is empty there."""
        form = self.form
        found: dict[int, dict[str, np.ndarray]] = {}
        local = len(state.params)
        sliced = list(zip(self.names[OWN:], (*self.params, *self.moments), strict=True))
        for j, pieces in enumerate(zip(state.params, state.moments, strict=True)):
            for (name, like), array in zip(sliced, (*pieces[0], *pieces[1]), strict=True):
                for shard in array.addressable_shards:
                    number = (shard.index[0].start or 0) * local + j
                    first, last = form.run(name, like.shape, number)
                    here = np.asarray(shard.data).reshape(-1)[: last - first]
                    found.setdefault(number, {})[name] = np.array(here) if copied else here
        for number, tensors in found.items():
            for name, value in zip(self.names, (state.step, state.cursor, state.key), strict=False):
                first, last = form.run(name, value.shape, number)
                tensors[name] = value.reshape(-1)[first:last]
        return found

    def join(self, state: SlicedState) -> TrainState:
        """The whole tensors, on this host. On several hosts every one of them must call this."""
        arrays = [self._whole([piece[i] for piece in state.params], x) for i, x in enumerate(self.params)]
        moments = [self._whole([piece[i] for piece in state.moments], x) for i, x in enumerate(self.moments)]
        model = eqx.combine(jax.tree.unflatten(jax.tree.structure(self.named), arrays), self.static)
        return TrainState(
            step=state.step,
            cursor=state.cursor,
            key=state.key,
            model=model,
            moments=jax.tree.unflatten(self._moments_named, moments),
        )

    def _whole(self, pieces: Sequence[jax.Array], like: jax.ShapeDtypeStruct) -> np.ndarray:
        rows = [hosts.whole(piece) for piece in pieces]
        if not like.shape:
            return np.asarray(rows[0][0])
        stacked = np.stack(rows, axis=1)  # [D, S/D, width]
        return stacked.reshape(-1)[: math.prod(like.shape)].reshape(like.shape)

    # Traced into programs: one device's view. A device holds the leaves of its slices.

    def whole_params(self, gathered: Sequence[jax.Array]) -> Any:
        """The model's tree of named arrays from one array [S, width] per parameter."""
        arrays = [
            rows.reshape(-1)[: math.prod(x.shape)].reshape(x.shape)
            for rows, x in zip(gathered, self.params, strict=True)
        ]
        return jax.tree.unflatten(jax.tree.structure(self.named), arrays)

    def rows(self, tensor: jax.Array) -> jax.Array:
        """[S, width]: a whole tensor as slices."""
        width = self.width(tensor.shape)
        padding = self.slices * width - tensor.size
        return jnp.pad(tensor.reshape(-1), (0, padding)).reshape(self.slices, width)
