"""The state cut into logical slices, as many as the batch has logical shards: what lies where on a mesh.

Every tensor is flattened, padded with zeros and cut into S slices of equal width; slice number s of all tensors makes
logical slice s. On D devices, device d holds slices ``d * S/D ... (d + 1) * S/D - 1``, each as arrays of its own, so
that the optimizer's update is one compiled program of one slice's shapes whatever D is. On the mesh, local slice j is
a global array [D, width] whose row d is on device d.

Scalars (an optimizer's counters) are in every slice; all copies are equal, and the first one counts.

A stack of layers may be cut layer by layer (``layered``): a slice then has its part of each of them, and lies as
[layers, rows, minor] where the rows of a layer divide over the slices, so that a layer is gathered by itself. Other matrices
lie as [rows, minor] too. Elements are in the same order as in a flat slice of the layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
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
from marin.training.state import REPLICA, TrainState, leaves

Leaves = tuple[jax.Array, ...]
FillRun = Callable[[str, int, np.ndarray], None]
"""Puts elements of a tensor, by its path and from a first one on in C order, into all of a flat array."""
OWN = 3
"""Tensors of a state that lie on the host: step, cursor and key come first of all."""
AT_ONCE = 2
"""Slices that are read or written side by side: one is hashed while the disk has another."""


@dataclass(frozen=True)
class SlicedState:
    """A training state on a mesh. ``params[j]`` and ``moments[j]``: leaves of local slice j, each [D, …].
    ``step``, ``cursor`` and ``key`` are on the host: they are known without computing anything."""

    step: np.ndarray
    cursor: np.ndarray
    key: np.ndarray
    params: tuple[Leaves, ...]
    moments: tuple[Leaves, ...]


def without_axis_names(tree: Any) -> Any:
    """``tree`` with plain arrays in place of haliax's named ones: same paths, same order of leaves."""
    return jax.tree.map(
        lambda x: x.array if isinstance(x, hax.NamedArray) else x, tree, is_leaf=lambda x: isinstance(x, hax.NamedArray)
    )


def whole(rows: jax.Array, shape: Sequence[int]) -> jax.Array:
    """A tensor of ``shape`` from its flat slices [S, width]; of a scalar, which is in every slice, the first."""
    return rows.reshape(-1)[: math.prod(shape)].reshape(tuple(shape))


class Layout:
    """How the state of one recipe is cut into ``slices`` slices, and back. ``names``: paths of all its tensors, in the order
    of :func:`marin.training.state.leaves`: step, cursor, key, parameters, moments; ``kinds``: their dtypes and shapes.
    """

    def __init__(
        self, example: TrainState, optimizer: optax.GradientTransformation, slices: int, layered: str | None = None
    ) -> None:
        """``layered``: where in the tree the stack of layers is whose layers are cut one by one."""
        self.slices = slices
        self.layered = layered
        named = list(leaves(example))
        self.names = tuple(name for name, _ in named)
        self.kinds = {name: (np.dtype(value.dtype).name, tuple(value.shape)) for name, value in named}
        arrays, self.static = eqx.partition(example.model, eqx.is_inexact_array)
        self.named = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), arrays)
        plain = without_axis_names(self.named)
        self.params = tuple(jax.tree.leaves(plain))
        self.tree = jax.tree.structure(plain)
        moments = jax.tree.leaves(example.moments)
        self.moments = tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in moments)
        self._optimizer = optimizer
        self.moments_named = jax.tree.structure(example.moments)
        sliced = zip(self.names[OWN:], (*self.params, *self.moments), strict=True)
        stack = None if layered is None else layered.removeprefix("model/") + "/"
        self.leads = {name: x.shape[0] for name, x in sliced if stack is not None and stack in name}
        self.form = SlicedForm(slices, {name: lead for name, lead in self.leads.items() if lead > 1})
        self.shapes = {name: self._sliced_shape(name, shape) for name, (_, shape) in self.kinds.items()}
        self.param_names, self.moment_names = (
            self.names[OWN : OWN + len(self.params)],
            self.names[OWN + len(self.params) :],
        )

    @cached_property
    def moments_tree(self) -> Any:
        """The structure of the moments of one slice, whose tensors have one axis.

        Raises:
            UsageError: the optimizer keeps tensors that are not shaped like parameters, so it looks across elements.
        """
        widths = [jax.ShapeDtypeStruct((math.prod(x.shape),), x.dtype) for x in self.params]
        flat = jax.eval_shape(self._optimizer.init, jax.tree.unflatten(self.tree, widths))
        if [(math.prod(x.shape),) if x.shape else () for x in self.moments] != [x.shape for x in jax.tree.leaves(flat)]:
            raise UsageError(
                "the optimizer looks across elements of a tensor",
                where="optimizer.name",
                expected="an element-wise optimizer (adamw, lion)",
                found="moments not shaped like parameters",
                cure="choose another one: its result would depend on how tensors are cut",
            )
        return jax.tree.structure(flat)

    def width(self, name: str) -> int:
        """Elements of one slice of a tensor, in one of its layers where it is cut by them; padding counted."""
        _, n = self.form.rows(name, self.kinds[name][1])
        return -(-n // self.slices)

    def sliced_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """What a flat slice of a tensor of ``shape`` is."""
        return (-(-math.prod(shape) // self.slices),) if len(shape) else ()

    def _sliced_shape(self, name: str, shape: Sequence[int]) -> tuple[int, ...]:
        if self.layered is None or not shape:
            return self.sliced_shape(shape)
        lead = (self.leads[name],) if name in self.leads else ()
        inner = shape[1:] if lead else shape
        rows = math.prod(inner[:-1])
        if len(inner) > 1 and rows % self.slices == 0:
            return (*lead, rows // self.slices, inner[-1])
        return (*lead, self.width(name))

    def cut(self, state: TrainState, sharding: NamedSharding) -> SlicedState:
        """``state`` (whole tensors on this host) on the mesh of ``sharding``, which shards the first axis."""
        whole = {name: np.asarray(value).reshape(-1) for name, value in leaves(state)}

        def fill(name: str, start: int, into: np.ndarray) -> None:
            into[:] = whole[name][start : start + len(into)]

        return self.place(fill, sharding)

    def place(self, fill: FillRun, sharding: NamedSharding, *, at_once: int = 1) -> SlicedState:
        """A state on the mesh of ``sharding``, which shards the first axis; ``fill`` is asked for the slices of this
        process's devices and for no others: one after the other, or for ``at_once`` of them in as many threads."""
        step, cursor, key = (np.empty(self.kinds[name][1], self.kinds[name][0]) for name in self.names[:OWN])
        for name, value in zip(self.names, (step, cursor, key), strict=False):
            fill(name, 0, value.reshape(-1))
        within = sharding.mesh.devices.size // sharding.mesh.shape.get(REPLICA, 1)
        devices = sharding.mesh.devices.reshape(within, -1)  # the devices that hold the same, side by side
        local, count = self.slices // within, len(self.params)
        tensors = list(zip(self.names[OWN:], (*self.params, *self.moments), strict=True))
        once = {name: self._row(name, like, 0, fill) for name, like in tensors if not like.shape}  # as its digest says
        own = {
            number: mine
            for number, alike in enumerate(devices)
            if (mine := [device for device in alike if device.process_index == jax.process_index()])
        }

        def rows(slice_: tuple[int, int]) -> list[list[jax.Array]]:
            """Of one device's slice, each tensor on every device that holds it."""
            j, number = slice_
            found = []
            for name, like in tensors:
                row = once[name].copy() if name in once else self._row(name, like, number * local + j, fill)
                found.append([jax.device_put(row, device) for device in own[number]])
            return found

        wanted = [(j, number) for j in range(local) for number in own]
        with ThreadPoolExecutor(at_once, thread_name_prefix="slices") as pool:
            made = list(map(rows, wanted) if at_once == 1 else pool.map(rows, wanted))
        pieces = [
            [
                jax.make_array_from_single_device_arrays(
                    (within, *self.shapes[name]), sharding, [x for found in by_device for x in found[i]]
                )
                for i, (name, _) in enumerate(tensors)
            ]
            for by_device in (made[j * len(own) : (j + 1) * len(own)] for j in range(local))
        ]
        return SlicedState(
            step=step,
            cursor=cursor,
            key=key,
            params=tuple(tuple(piece[:count]) for piece in pieces),
            moments=tuple(tuple(piece[count:]) for piece in pieces),
        )

    def _row(self, name: str, like: jax.ShapeDtypeStruct, number: int, fill: FillRun) -> np.ndarray:
        """A slice of a tensor as it lies on a device: padded with zeros, under an axis of one."""
        if not like.shape:
            scalar = np.empty(1, like.dtype)
            fill(name, 0, scalar)
            return scalar
        lead, n = self.form.rows(name, like.shape)
        start, stop = self.form.run(name, like.shape, number)
        row = np.zeros((lead, self.width(name)), like.dtype)
        for layer in range(lead):
            fill(name, layer * n + start, row[layer, : stop - start])
        return row.reshape(1, *self.shapes[name])

    def held(self, state: SlicedState, *, copied: bool = False) -> dict[int, dict[str, np.ndarray]]:
        """What this process holds: slice number -> tensor -> its elements there, [layers, elements] without padding (one
        layer for what is not cut by layers). They are views of what lies on a processor's device, unless ``copied``; a tensor
        without a place in a slice is empty there."""
        form = self.form
        found: dict[int, dict[str, np.ndarray]] = {}
        local = len(state.params)
        sliced = list(zip(self.names[OWN:], (*self.params, *self.moments), strict=True))
        for j, pieces in enumerate(zip(state.params, state.moments, strict=True)):
            for (name, like), array in zip(sliced, (*pieces[0], *pieces[1]), strict=True):
                for shard in array.addressable_shards:
                    number = (shard.index[0].start or 0) * local + j
                    if shard.replica_id:
                        continue
                    first, last = form.run(name, like.shape, number)
                    lead, _ = form.rows(name, like.shape)
                    here = np.asarray(shard.data).reshape(lead, -1)[:, : last - first]
                    found.setdefault(number, {})[name] = np.array(here) if copied else here
        for number, tensors in found.items():
            for name, value in zip(self.names, (state.step, state.cursor, state.key), strict=False):
                first, last = form.run(name, value.shape, number)
                tensors[name] = value.reshape(1, -1)[:, first:last]
        return found

    def join(self, state: SlicedState) -> TrainState:
        """The whole tensors, on this host. On several hosts every one of them must call this."""
        arrays = [self._whole([piece[i] for piece in state.params], name) for i, name in enumerate(self.param_names)]
        moments = [self._whole([piece[i] for piece in state.moments], name) for i, name in enumerate(self.moment_names)]
        model = eqx.combine(jax.tree.unflatten(jax.tree.structure(self.named), arrays), self.static)
        return TrainState(
            step=state.step,
            cursor=state.cursor,
            key=state.key,
            model=model,
            moments=jax.tree.unflatten(self.moments_named, moments),
        )

    def _whole(self, pieces: Sequence[jax.Array], name: str) -> np.ndarray:
        rows = [hosts.whole(piece) for piece in pieces]
        shape = self.kinds[name][1]
        if not shape:
            return np.asarray(rows[0][0])
        lead, n = self.form.rows(name, shape)
        stacked = np.stack(rows, axis=1).reshape(self.slices, lead, -1)  # of [D, S/D, …]
        return stacked.swapaxes(0, 1).reshape(lead, -1)[:, :n].reshape(shape)

    # Traced into programs: one device's view. A device holds the leaves of its slices.

    def whole_params(self, gathered: Sequence[jax.Array]) -> Any:
        """The model's tree of named arrays from one array [S, width] per parameter."""
        arrays = [whole(rows, x.shape) for rows, x in zip(gathered, self.params, strict=True)]
        return jax.tree.unflatten(jax.tree.structure(self.named), arrays)

    def rows(self, tensor: jax.Array) -> jax.Array:
        """[S, width]: a whole tensor as slices."""
        (width,) = self.sliced_shape(tensor.shape) or (1,)
        padding = self.slices * width - tensor.size
        return jnp.pad(tensor.reshape(-1), (0, padding)).reshape(self.slices, width)
