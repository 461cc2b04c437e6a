"""How stacks of layers are sharded while the gradient is computed, where no device may have all parameters
(``arithmetic.gather=layer``).

Each layer of a stack is sharded over the devices, as its slices of the state are or by its last axis. Inside the loops over
layers, forward and backward, the one layer that is computed is gathered, and its gradient is sharded again. Sharding
decides no bit of a sum without an order, so a run has the bits that it has without.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from marin.plugins.exact.compiled import Placement
from marin.training.state import DATA
from marin.training.step.slices import Layout

STACKED = "/stacked/"
"""What stands behind the stack of layers in the path of each of its tensors, as Haliax has it."""


def stack_of(names: Sequence[str]) -> str:
    """The path of the stack of layers in a state (``model/transformer/layers``). ``names``: of all tensors."""
    return next(name for name in names if STACKED in name).partition(STACKED)[0]


def axis_over(shape: tuple[int, ...], devices: int) -> int | None:
    """The axis by which a stack of ``shape`` is sharded: the first one of a layer, of which slices of the state are
    whole rows, or the last one; None where neither divides."""
    if shape[1] % devices == 0:
        return 1
    rows = math.prod(shape[1:-1])
    return len(shape) - 1 if rows % devices == 0 and shape[-1] % devices == 0 else None


@dataclass(frozen=True)
class Stacks(Placement):
    """The placement of a layout's arrays on one mesh; stacks are what the layout cuts layer by layer. ``batch``: the placement of
    all else that a loop takes row by row."""

    layout: Layout
    mesh: Mesh
    batch: Callable[[jax.Array], jax.Array]

    def _shard(self, x: jax.Array, axis: int | None) -> jax.Array:
        spec = P() if axis is None else P(*(None,) * axis, DATA)
        return jax.lax.with_sharding_constraint(x, NamedSharding(self.mesh, spec))

    def _is_stack(self, shape: tuple[int, ...]) -> bool:
        likes = zip(self.layout.param_names, self.layout.params, strict=True)
        return any(name in self.layout.leads and tuple(like.shape) == tuple(shape) for name, like in likes)

    def rows(self, x: jax.Array) -> jax.Array:
        """See there."""
        return self.carry(x) if self._is_stack(x.shape) else self.batch(x)

    def row(self, x: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """See there: a layer is gathered."""
        return self._shard(x, None) if self._is_stack(shape) else x

    def result(self, x: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """See there."""
        axis = axis_over(shape, self.layout.slices) if self._is_stack(shape) else None
        # Whole first: or the partitioner would have each device compute its part of a layer's gradient, of all sequences.
        return x if axis is None else self._shard(self._shard(x, None), axis - 1)

    def carry(self, x: jax.Array) -> jax.Array:
        """See there."""
        return self._shard(x, axis_over(x.shape, self.layout.slices)) if self._is_stack(x.shape) else x

    def whole(self, rows: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """A stack of ``shape`` from its slices, [S, layers, ...], sharded as in the loops."""
        axis, lead = axis_over(shape, self.layout.slices), shape[0]
        apart = rows.swapaxes(0, 1)
        if axis is None:
            width = math.prod(shape[1:])
            return self._shard(apart, None).reshape(lead, -1)[:, :width].reshape(shape)
        if axis == 1:
            return self._shard(apart.reshape(shape), 1)
        return self._reshard(apart.reshape(lead, -1, shape[-1]), 1, 2).reshape(shape)

    def slices(self, name: str, stack: jax.Array) -> jax.Array:
        """[S, layers, ...]: the slices of the stack ``name``; :meth:`whole` undone."""
        count, shape = self.layout.slices, stack.shape
        axis, own = axis_over(shape, count), self.layout.shapes[name]
        if axis is None:
            width = math.prod(own[1:])
            padded = jnp.pad(stack.reshape(shape[0], -1), ((0, 0), (0, count * width - math.prod(shape[1:]))))
            return padded.reshape(shape[0], count, *own[1:]).swapaxes(0, 1)
        flat = self._shard(stack, 1) if axis == 1 else self._reshard(stack.reshape(shape[0], -1, shape[-1]), 2, 1)
        return flat.reshape(shape[0], count, *own[1:]).swapaxes(0, 1)

    def _reshard(self, matrices: jax.Array, before: int, after: int) -> jax.Array:
        """Matrices [layers, rows, minor] that are sharded by one axis, sharded by the other. Written as an all-to-all: the
        partitioner would have them whole on every device in between."""
        specs = [P(*(None,) * axis, DATA) for axis in (before, after)]
        turn = partial(jax.lax.all_to_all, axis_name=DATA, split_axis=after, concat_axis=before, tiled=True)
        over = jax.shard_map(turn, mesh=self.mesh, in_specs=specs[0], out_specs=specs[1], check_vma=False)
        return jnp.asarray(over(matrices))
