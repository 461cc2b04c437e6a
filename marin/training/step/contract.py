"""What every train step is, whatever its arithmetic: compiled programs of one recipe on one mesh, and what a step leaves."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from marin.errors import UsageError
from marin.recipe.schema import Recipe
from marin.training.state import DATA, EXPERT, REPLICA, TENSOR, TrainState, batch_axes
from marin.training.step import fingerprint
from marin.training.step.slices import Layout, Leaves, SlicedState

Arrays = Any
"""A pytree of arrays (the dynamic half of an equinox module)."""

Program = Any
"""A ``jax.stages.Compiled``, which jax does not type as something to call."""


@dataclass(frozen=True)
class StepOutcome:
    """``loss``: mean over the batch's weighted tokens, float32. ``grad_norm``: before clipping, float32.
    ``fingerprint``: uint32[tensors, 2] over the state after the step, in the order of ``state.leaves``. ``loads``: of a mixture
    of experts, how many tokens each of them got, float32[layers, experts]."""

    loss: np.float32
    grad_norm: np.float32
    fingerprint: np.ndarray
    loads: tuple[np.ndarray, ...] = ()

    @property
    def finite(self) -> bool:
        """Whether the update took place: loss and gradient were finite. Otherwise the state is still the one before."""
        return bool(np.isfinite(self.loss) and np.isfinite(self.grad_norm))


def mesh_of(devices: int, replicas: int = 1, tensor: int = 1, experts: int = 1) -> Mesh:
    """A mesh over the first ``devices`` devices: of one axis, or of two where ``replicas`` parts of equal size hold the state
    once each (the devices of one after those of another, as they come from slices of a pod), or of an axis more where groups
    of ``tensor`` neighbours share the matrices of each layer, and where groups of ``experts`` such neighbours share its experts.

    Raises:
        UsageError: there are not so many devices, or they do not divide over replicas or groups.
    """
    present = jax.devices()
    if devices > len(present):
        raise UsageError(
            "not so many devices",
            where="--devices",
            expected=f"at most {len(present)}",
            found=str(devices),
            cure="on a CPU they are virtual: start the process with --devices so that jax makes them",
        )
    if devices % replicas:
        raise UsageError(
            "devices do not divide over the slices",
            where="--slices",
            expected=f"a divisor of --devices ({devices})",
            found=str(replicas),
            cure="every slice has as many devices",
        )
    for option, size, shared in (
        ("--tensor-parallel", tensor, "matrices"),
        ("--expert-parallel", tensor * experts, "experts"),
    ):
        if devices % size:
            times = f" over --tensor-parallel ({tensor})" if size > experts and shared == "experts" else ""
            raise UsageError(
                f"devices do not divide into groups that share {shared}",
                where=option,
                expected=f"a divisor of --devices ({devices}){times}",
                found=str(experts if shared == "experts" else tensor),
                cure="every group has as many devices",
            )
    axes = {EXPERT: experts, TENSOR: tensor}
    if several := {name: size for name, size in axes.items() if size > 1}:
        return Mesh(np.array(present[:devices]).reshape(-1, *several.values()), (DATA, *several))
    return mesh_over(present[:devices], replicas)


def mesh_over(devices: Sequence[Any], replicas: int = 1) -> Mesh:
    """A mesh over these devices, as :func:`mesh_of` makes it; chips of a torus by their place in it, so that neighbours in the
    mesh are neighbours there."""
    parts = np.array([sorted(part, key=_place) for part in np.array(list(devices)).reshape(replicas, -1)])
    return Mesh(parts[0], (DATA,)) if replicas == 1 else Mesh(parts.T, (DATA, REPLICA))


def _place(device: Any) -> tuple[int, ...]:
    """Where a chip is in its torus; nowhere, if it is in none."""
    return (*getattr(device, "coords", ()), getattr(device, "core_on_chip", 0))


def logical_shards(recipe: Recipe, mesh: Mesh) -> int:
    """How many logical shards a batch has, as many for each device of ``mesh``.

    Raises:
        UsageError: they do not divide over the devices.
    """
    shards = recipe.arithmetic.logical_shards
    if shards % mesh.devices.size:
        raise UsageError(
            "logical shards do not divide over the devices",
            where="--devices",
            expected=f"a divisor of arithmetic.logical_shards ({shards})",
            found=str(mesh.devices.size),
            cure="use a power of two up to the number of logical shards",
        )
    return shards


def words(tree: Any) -> Any:
    """The floats of a tree as whole numbers with the same bits: uint16 of bfloat16, uint32 of float32."""
    kinds = {2: jnp.uint16, 4: jnp.uint32}
    return jax.tree.map(lambda x: jax.lax.bitcast_convert_type(x, kinds[x.dtype.itemsize]), tree)


def floats(tree: Any, dtype: Any) -> Any:
    """The floats of ``dtype`` whose bits the whole numbers of a tree are: :func:`words` undone."""
    return jax.tree.map(lambda x: jax.lax.bitcast_convert_type(x, dtype), tree)


def as_words(move: Callable[[jax.Array], jax.Array], x: jax.Array) -> jax.Array:
    """``move(x)`` of floats, moved as whole numbers: XLA may make a sum over zeros of a movement, which would turn -0.0 into
    0.0."""
    return jnp.asarray(floats(move(words(x)), x.dtype))


@dataclass(frozen=True)
class Memory:
    """Bytes that lie on a device: ``state``, ``gradient`` (as many copies as are kept at once), and ``between`` the parts of a
    model. ``lying``: by program, how much of its arguments and results is counted there."""

    state: int
    gradient: int
    between: int
    lying: Mapping[str, int]


def nbytes(tree: Any) -> int:
    """Bytes of the arrays (or shapes) of a tree."""
    return sum(math.prod(x.shape) * jnp.dtype(x.dtype).itemsize for x in jax.tree.leaves(tree))


class Step(ABC):
    """The compiled programs of one recipe on one mesh; :meth:`run` executes one train step.

    ``layout`` says how the state lies on the mesh: in as many slices as the profile asks for, the first axis of each
    array over the devices (``by_slice``); ``by_batch``: how the rows of a batch do.
    """

    def __init__(self, recipe: Recipe, mesh: Mesh, layout: Layout) -> None:
        self.recipe = recipe
        self.mesh = mesh
        self.devices = mesh.devices.size
        self.layout = layout
        first, *others = (name for name in mesh.axis_names if name != REPLICA)
        self.by_slice = NamedSharding(mesh, P((first, *others) if others else first))
        self.by_batch = NamedSharding(mesh, P(batch_axes(mesh)))

    def place(self, state: TrainState) -> SlicedState:
        """``state`` on the mesh."""
        return self.layout.cut(state, self.by_slice)

    def collect(self, state: SlicedState) -> TrainState:
        """The whole state on this host."""
        return self.layout.join(state)

    def batch(self, rows: np.ndarray) -> jax.Array:
        """A host array [batch, ...] sharded over the batch axis; every host gives the whole array."""
        return jax.make_array_from_callback(rows.shape, self.by_batch, lambda index: rows[index])

    @abstractmethod
    def run(
        self, state: SlicedState, tokens: jax.Array, weights: jax.Array, *, blank: bool = False
    ) -> tuple[SlicedState, StepOutcome]:
        """One train step. ``tokens``: int32[batch, seq_len], ``weights``: float32, both sharded over the batch axis;
        ``blank``: whether any position of the batch is.

        ``state`` is donated: use the returned one, which equals it where the outcome is not finite.
        """

    @property
    @abstractmethod
    def named(self) -> Mapping[str, Program]:
        """Every compiled program by name."""

    @property
    @abstractmethod
    def computing(self) -> frozenset[str]:
        """Names of the programs that compute; the rest moves words between devices, and adds what comes from them."""

    @property
    @abstractmethod
    def executions(self) -> Mapping[str, int]:
        """How often a train step executes each program on a device."""

    @property
    @abstractmethod
    def memory(self) -> Memory:
        """What lies on a device while a step is executed."""

    @abstractmethod
    def program(self) -> Mapping[str, str]:
        """Digests of what computes, by name: the same on any mesh."""

    @property
    def optimised(self) -> Mapping[str, str]:
        """Identities (:mod:`marin.plugins.scale.hlo`) of the optimised programs that multiply, by name, where they are compiled
        for one device: one compiler makes the same for any mesh of one kind of device. Nothing where they are compiled for
        their mesh."""
        return {}

    @abstractmethod
    def foreign_products(self) -> list[str]:
        """Matrix products of what was compiled whose bits depend on the processor."""

    def after(
        self,
        state: SlicedState,
        params: tuple[Leaves, ...],
        moments: tuple[Leaves, ...],
        scalars: tuple[jax.Array, jax.Array],
        prints: jax.Array,
    ) -> tuple[SlicedState, StepOutcome]:
        """What a step leaves. ``scalars``: mean loss and gradient norm, ``prints``: fingerprints of parameters and
        moments; both the same on every device."""
        values = np.float32(_scalar(scalars[0])), np.float32(_scalar(scalars[1]))
        done = int(np.isfinite(values).all())
        step = np.asarray(state.step + np.int32(done))
        cursor = np.asarray(state.cursor + np.uint32(done * self.recipe.trainer.batch_size))
        own = np.stack([fingerprint.of(x) for x in (step, cursor, state.key)])
        whole = np.concatenate([own, np.asarray(prints.addressable_data(0))])
        return SlicedState(step, cursor, state.key, params, moments), StepOutcome(*values, whole)


def _scalar(array: jax.Array) -> np.ndarray:
    return np.asarray(array.addressable_data(0)).reshape(())
