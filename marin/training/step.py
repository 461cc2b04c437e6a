"""One train step whose arithmetic does not depend on how many devices execute it.

The batch is cut into L logical shards. Four kinds of compiled programs, never merged (a compiler that sees two of them
together may contract a product of the one with a sum of the other, differently for each number of devices):

1. ``gradient``: loss sum, weight sum and gradient *sum* of one logical shard, in microbatches; the same for every shard;
2. ``add``: one node of the binary tree that folds the shards. A device folds its own subtree depth first, so that it
   holds at most log2(L / D) partial sums;
3. ``exchange``: one level of the same tree across devices, by a butterfly: every device adds its partner's partial sum
   to its own. Addition of two floats commutes bit for bit, so all devices hold the same sum;
4. ``update``: division by the token count, clipping, optimizer, on every device.

Every program runs under ``shard_map``, so what a device compiles are local shapes that do not mention the number of
devices. ``fingerprint`` adds, per tensor, integer sums of the state's bits weighted by position: the same for every
sharding, and cheap enough for every step.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import haliax as hax
import jax
import jax.numpy as jnp
import numpy as np
from haliax import Axis
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from levanter.layers.attention import AttentionMask
from levanter.models.lm_model import LmExample

from marin.errors import UsageError
from marin.recipe import Recipe
from marin.training.model import compute_dtype, optimizer
from marin.training.state import TrainState, leaves

DATA = "data"
Arrays = Any
"""A pytree of arrays (the dynamic half of an equinox module)."""


@dataclass(frozen=True)
class StepOutcome:
    """``loss``: mean over the batch's weighted tokens, float32. ``grad_norm``: before clipping, float32.
    ``fingerprint``: uint32[tensors, 2] over the state after the step."""

    loss: np.float32
    grad_norm: np.float32
    fingerprint: np.ndarray


def mesh_of(devices: int) -> Mesh:
    """A one-dimensional mesh over the first ``devices`` devices."""
    present = jax.devices()
    if devices > len(present):
        raise UsageError("not so many devices", where="--devices", expected=f"at most {len(present)}", found=str(devices),
                         cure="on a CPU they are virtual: start the process with --devices so that jax makes them")
    return Mesh(np.array(present[:devices]), (DATA,))


def shard_sums(static: Any, recipe: Recipe, arrays: Arrays, tokens: jax.Array, weights: jax.Array) -> tuple[Arrays, jax.Array, jax.Array]:
    """Sums over one logical shard: gradient pytree, loss (float32), token weight (float32).

    ``tokens``: int32[sequences, seq_len]; ``weights``: float32 of the same shape. Sums and not means: a mean of means
    is wrong for ragged masks, and its divisor would belong to a shard instead of the batch.
    """
    micro = recipe.arithmetic.microbatch_size
    dtype = compute_dtype(recipe)
    Pos = Axis("position", tokens.shape[1])
    Batch = Axis("batch", micro)

    def loss_sum(arrays: Arrays, tokens: jax.Array, weights: jax.Array) -> jax.Array:
        model = eqx.combine(jax.tree.map(lambda x: x.astype(dtype), arrays), static)
        example = LmExample(tokens=hax.named(tokens, (Batch, Pos)), loss_weight=hax.named(weights, (Batch, Pos)),
                            attn_mask=AttentionMask.causal())
        per_token = model.compute_next_token_loss(example, reduction=None)
        return hax.sum(per_token).array.astype(jnp.float32)

    grad = jax.value_and_grad(loss_sum)
    count = tokens.shape[0] // micro
    if count == 1:
        loss, grads = grad(arrays, tokens, weights)
        return grads, loss, jnp.sum(weights)

    def body(carry: tuple[Arrays, jax.Array], piece: tuple[jax.Array, jax.Array]) -> tuple[tuple[Arrays, jax.Array], None]:
        loss, grads = grad(arrays, *piece)
        return (jax.tree.map(jnp.add, carry[0], grads), carry[1] + loss), None

    zero = (jax.tree.map(jnp.zeros_like, arrays), jnp.zeros((), jnp.float32))
    pieces = (tokens.reshape(count, micro, -1), weights.reshape(count, micro, -1))
    (grads, loss), _ = jax.lax.scan(body, zero, pieces)
    return grads, loss, jnp.sum(weights)


def apply_update(recipe: Recipe, arrays: Arrays, moments: Arrays, sums: tuple[Arrays, jax.Array, jax.Array]
                 ) -> tuple[Arrays, Arrays, jax.Array, jax.Array]:
    """New parameters and moments, mean loss and gradient norm, from the batch's sums."""
    grads, loss, weight = sums
    grads = jax.tree.map(lambda g: g / weight, grads)
    norm = jnp.sqrt(sum(jnp.sum(jnp.square(g)) for g in jax.tree.leaves(grads)))
    updates, moments = optimizer(recipe).update(grads, moments, arrays)
    updated = jax.tree.map(jnp.add, arrays, updates)
    return updated, moments, loss / weight, norm


def tensor_fingerprint(x: jax.Array) -> jax.Array:
    """uint32[2]: sums of the tensor's 32-bit words times pseudo-random odd weights of their C-order index, modulo 2^32.

    An odd weight makes every change of a single word visible; the position makes permutations visible; integer sums
    do not depend on their order, hence not on sharding. Not collision-resistant against an adversary: the sha256 state
    digest at every recorded boundary is.
    """
    words = jax.lax.bitcast_convert_type(x, jnp.uint32) if x.dtype.itemsize == 4 else x.astype(jnp.uint32)
    words = words.reshape(-1)
    index = jax.lax.iota(jnp.uint32, words.shape[0])
    mixed = (index ^ (index >> 16)) * jnp.uint32(0x9E3779B1)
    mixed = mixed ^ (mixed >> 15)
    first = mixed | jnp.uint32(1)
    second = (mixed * jnp.uint32(0x85EBCA77)) | jnp.uint32(1)
    return jnp.stack([jnp.sum(words * first, dtype=jnp.uint32), jnp.sum(words * second, dtype=jnp.uint32)])


def fingerprint_program(tensors: list[jax.Array]) -> jax.Array:
    """uint32[tensors, 2] of a list of tensors."""
    return jnp.stack([tensor_fingerprint(x) for x in tensors])


class TrainStep:
    """The compiled programs of one recipe on one mesh; :meth:`run` executes one train step.

    ``state`` lives replicated on all devices of the mesh.
    """

    def __init__(self, recipe: Recipe, mesh: Mesh, example: TrainState) -> None:
        self.recipe = recipe
        self.mesh = mesh
        self.devices = mesh.devices.size
        shards = recipe.arithmetic.logical_shards
        if shards % self.devices:
            raise UsageError("logical shards do not divide over the devices", where="--devices",
                             expected=f"a divisor of arithmetic.logical_shards ({shards})", found=str(self.devices),
                             cure="use a power of two up to the number of logical shards")
        self.local_shards = shards // self.devices
        self.shard_size = recipe.trainer.batch_size // shards
        self._arrays, self._static = eqx.partition(example.model, eqx.is_inexact_array)
        self.replicated = NamedSharding(mesh, P())
        self.by_batch = NamedSharding(mesh, P(DATA))
        over = partial(jax.shard_map, mesh=mesh, check_vma=False)

        def first(tree: Any) -> Any:
            return jax.tree.map(lambda x: x[0], tree)

        def lifted(tree: Any) -> Any:
            return jax.tree.map(lambda x: x[None], tree)

        def select(batch: jax.Array, index: jax.Array) -> jax.Array:
            return jax.lax.dynamic_slice_in_dim(batch, index * self.shard_size, self.shard_size, axis=0)

        def gradient(arrays: Arrays, tokens: jax.Array, weights: jax.Array) -> Any:
            return lifted(shard_sums(self._static, recipe, arrays, tokens, weights))

        def update(arrays: Arrays, moments: Arrays, sums: Any) -> Any:
            return apply_update(recipe, arrays, moments, first(sums))

        def exchange(distance: int, sums: Any) -> Any:
            pairs = [(d, d ^ distance) for d in range(self.devices)]
            return jax.tree.map(lambda x: x + jax.lax.ppermute(x, DATA, pairs), sums)

        self._select = jax.jit(over(select, in_specs=(P(DATA), P()), out_specs=P(DATA)))
        self._gradient = jax.jit(over(gradient, in_specs=(P(), P(DATA), P(DATA)), out_specs=P(DATA)))
        self._add = jax.jit(over(lambda a, b: jax.tree.map(jnp.add, a, b), in_specs=P(DATA), out_specs=P(DATA)),
                            donate_argnums=(0,))
        self._exchange: list[Callable[[Any], Any]] = [
            jax.jit(over(partial(exchange, 1 << level), in_specs=(P(DATA),), out_specs=P(DATA)), donate_argnums=(0,))
            for level in range(self.devices.bit_length() - 1)
        ]
        self._update = jax.jit(over(update, in_specs=(P(), P(), P(DATA)), out_specs=P()), donate_argnums=(0, 1))
        self._fingerprint = jax.jit(fingerprint_program)

    def place(self, state: TrainState) -> TrainState:
        """``state`` replicated over the mesh."""
        return jax.tree.map(lambda x: jax.device_put(x, self.replicated) if eqx.is_array(x) else x, state)

    def fold(self, arrays: Arrays, tokens: jax.Array, weights: jax.Array) -> Any:
        """The batch's sums on every device: own subtree first, depth first, then across devices."""
        pending: list[tuple[int, Any]] = []
        for index in range(self.local_shards):
            position = np.int32(index)
            part = self._gradient(arrays, self._select(tokens, position), self._select(weights, position))
            level = 0
            while pending and pending[-1][0] == level:
                part = self._add(pending.pop()[1], part)
                level += 1
            pending.append((level, part))
        ((_, total),) = pending
        for exchange in self._exchange:
            total = exchange(total)
        return total

    def run(self, state: TrainState, tokens: jax.Array, weights: jax.Array) -> tuple[TrainState, StepOutcome]:
        """One train step. ``tokens``: int32[batch, seq_len], ``weights``: float32, both sharded over the batch axis.

        ``state`` is donated: use the returned one.
        """
        arrays, static = eqx.partition(state.model, eqx.is_inexact_array)
        total = self.fold(arrays, tokens, weights)
        arrays, moments, loss, norm = self._update(arrays, state.moments, total)
        after = TrainState(
            step=state.step + 1, cursor=state.cursor + np.uint32(self.recipe.trainer.batch_size), key=state.key,
            model=eqx.combine(arrays, static), moments=moments)
        prints = self._fingerprint([value.addressable_data(0) for _, value in leaves(after)])
        return after, StepOutcome(np.float32(loss.addressable_data(0)), np.float32(norm.addressable_data(0)),
                                  np.asarray(prints))

    def program(self) -> Mapping[str, str]:
        """sha256 of the StableHLO of each arithmetic program, lowered for one device: the same on any mesh."""
        shape = (self.shard_size, self.recipe.model.seq_len)
        tokens = jax.ShapeDtypeStruct(shape, jnp.int32)
        weights = jax.ShapeDtypeStruct(shape, jnp.float32)
        arrays = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), self._arrays)
        moments = jax.eval_shape(optimizer(self.recipe).init, self._arrays)
        sums = (arrays, jax.ShapeDtypeStruct((), jnp.float32), jax.ShapeDtypeStruct((), jnp.float32))
        texts = {
            "gradient": jax.jit(partial(shard_sums, self._static, self.recipe)).lower(arrays, tokens, weights).as_text(),
            "add": jax.jit(lambda a, b: jax.tree.map(jnp.add, a, b)).lower(sums, sums).as_text(),
            "update": jax.jit(partial(apply_update, self.recipe)).lower(arrays, moments, sums).as_text(),
        }
        return {name: "sha256:" + hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
