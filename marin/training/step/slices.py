"""The state cut into logical slices, as many as the batch has logical shards: what lies where on a mesh.

Every tensor is flattened, padded with zeros and cut into S slices of equal width; slice number s of all tensors makes
logical slice s. On D devices, device d holds slices ``d * S/D ... (d + 1) * S/D - 1``, each as arrays of its own, so
that the optimizer's update is one compiled program of one slice's shapes whatever D is. On the mesh, local slice j is
a global array [D, width] whose row d is on device d.

Scalars (an optimizer's counters) are in every slice; all copies are equal, and the first one counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import haliax as hax
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding

from marin.errors import UsageError
from marin.training.runtime import hosts
from marin.training.state import TrainState

Leaves = tuple[jax.Array, ...]


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
    """How the state of one recipe is cut into ``slices`` slices, and back.

    Raises:
        UsageError: the optimizer keeps tensors that are not shaped like parameters, so it looks across elements.
    """

    def __init__(self, example: TrainState, optimizer: optax.GradientTransformation, slices: int) -> None:
        self.slices = slices
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

    def cut(self, state: TrainState, sharding: NamedSharding) -> SlicedState:
        """``state`` (whole tensors on this host) on the mesh of ``sharding``, which shards the first axis."""
        devices = sharding.mesh.devices.size
        params = jax.tree.leaves(eqx.filter(state.model, eqx.is_inexact_array))
        moments = jax.tree.leaves(state.moments)
        local = self.slices // devices
        return SlicedState(
            step=np.asarray(state.step),
            cursor=np.asarray(state.cursor),
            key=np.asarray(state.key),
            params=tuple(self._slice(params, j, local, sharding) for j in range(local)),
            moments=tuple(self._slice(moments, j, local, sharding) for j in range(local)),
        )

    def _slice(self, tensors: Sequence[Any], j: int, local: int, sharding: NamedSharding) -> Leaves:
        return tuple(self._place(np.asarray(tensor), j, local, sharding) for tensor in tensors)

    def _place(self, tensor: np.ndarray, j: int, local: int, sharding: NamedSharding) -> jax.Array:
        devices = sharding.mesh.devices.size
        if tensor.ndim == 0:
            rows = np.broadcast_to(tensor, (devices,))
        else:
            width = self.width(tensor.shape)
            rows = np.zeros((devices, width), tensor.dtype)
            flat = tensor.reshape(-1)
            for device in range(devices):
                start = (device * local + j) * width
                piece = flat[start : start + width]
                rows[device, : piece.size] = piece
        return jax.make_array_from_callback(rows.shape, sharding, lambda index: rows[index])

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
