"""One train step whose arithmetic does not depend on how many devices execute it.

The batch is cut into L logical shards and the state into L logical slices (:mod:`marin.training.step.slices`); a device has
L/D of both. Every multiplication happens in a program whose shapes are those of one shard or of one slice, so that
what is compiled is the same for every number of devices D:

1. ``gradient``: loss sum, weight sum and gradient *sum* of one logical shard, in microbatches;
2. ``square``: sum of squares of one slice of the gradient;
3. ``update``: clipping, optimizer and fingerprint of one slice of the state.

Between them are programs that only move and add, along one fixed binary tree over the shards (the slices):

4. ``add``: one node of the tree; a device folds its own shards depth first, holding at most log2(L/D) + 1 sums;
5. ``exchange``: every device gets the other devices' sums of its own slices and folds them along the same tree;
6. ``total``: the same fold for the sums of squares;
7. ``gather``: whole parameters from their slices.

They are never merged with the first three: a compiler that sees both together may contract a product of the one with a
sum of the other into a fused multiply-add, differently for each D.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields
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
from levanter.models.lm_model import LmExample

from marin.provenance.plugins import load_plugin
from marin.recipe.model import BLANKS
from marin.recipe.schema import Recipe
from marin.training.loss import routed_losses, token_losses
from marin.training.model import attention_mask, compute_dtype
from marin.training.optimizers.rule import optimizer
from marin.training.runtime.compilation import give_back_memory
from marin.training.runtime.objective import objective_plugin
from marin.training.runtime.parts import adapters
from marin.training.runtime.products import foreign_products
from marin.training.state import DATA, TrainState
from marin.training.step.contract import Arrays, Memory, Program, Step, StepOutcome, as_words, logical_shards, nbytes
from marin.training.step.slices import Layout, Leaves, SlicedState, without_axis_names
from marin.training.step.update import slice_square, slice_update

COMPILERS = 3
"""Programs that are compiled at once. The gradient takes as long as all others together."""
Sums = tuple[Arrays, jax.Array, jax.Array]
"""Of gradient, loss and token weight."""


def shard_sums(
    static: Any, recipe: Recipe, arrays: Arrays, tokens: jax.Array, weights: jax.Array, *, blank: bool = False
) -> Sums:
    """Sums over one logical shard: gradient pytree, loss (float32), token weight (float32).

    ``tokens``: int32[sequences, seq_len]; ``weights``: float32 of the same shape. Sums and not means: a mean of means
    is wrong for ragged masks, and its divisor would belong to a shard instead of the batch. ``blank``: positions below 0
    are blank (:mod:`marin.training.blank`). What is not trained (``recipe.lora``) has a gradient of zeros. Of preferences the
    loss is that of :mod:`marin.training.adapters`, and each weighs 1. Of completions (``recipe.objective``)
    ``weights`` has the columns of :mod:`marin.training.runtime.objective`.
    """
    return sums_and_loads(static, recipe, arrays, tokens, weights, blank=blank)[:3]


def sums_and_loads(
    static: Any, recipe: Recipe, arrays: Arrays, tokens: jax.Array, weights: jax.Array, *, blank: bool = False
) -> tuple[Arrays, jax.Array, jax.Array, tuple[jax.Array, ...]]:
    """:func:`shard_sums`, and of a mixture of experts how many tokens each of them got: float32[layers, experts]."""
    blanks = load_plugin(*BLANKS, "exclude") if blank else None
    weights = weights if blanks is None else blanks.weighted(tokens, weights)
    micro = recipe.arithmetic.microbatch_size
    dtype = compute_dtype(recipe)
    Pos = Axis("position", tokens.shape[1])
    Batch = Axis("batch", micro)

    moving = arrays if recipe.lora is None else adapters().adapters_of(arrays)
    beta = None if recipe.lora is None else recipe.lora.dpo_beta
    completions = None if recipe.objective is None else objective_plugin()

    def loss_sum(moving: Arrays, tokens: jax.Array, weights: jax.Array) -> Any:
        whole = eqx.combine(moving, arrays)
        model = eqx.combine(jax.tree.map(lambda x: x.astype(dtype), whole), static)
        if beta is not None:
            return adapters().preferred(recipe, model, tokens, weights, beta)
        if completions is not None:
            return completions.loss(recipe, model, tokens, weights)
        mask = attention_mask(recipe, hax.named(tokens, (Batch, Pos)), blank=blank)
        ids = hax.named(tokens if blanks is None else blanks.embedded(tokens), (Batch, Pos))
        example = LmExample(tokens=ids, loss_weight=hax.named(weights, (Batch, Pos)), attn_mask=mask)
        if recipe.model.sparse:
            per_token, loads = routed_losses(model, example, recipe.trainer.z_loss)
            return hax.sum(per_token).array, loads
        per_token = token_losses(model, example, recipe.trainer.z_loss)
        return hax.sum(per_token.astype(jnp.float32)).array

    def filled(grads: Arrays) -> Arrays:
        return grads if recipe.lora is None else eqx.combine(grads, jax.tree.map(jnp.zeros_like, arrays))

    def counted() -> jax.Array:
        if completions is not None:
            return completions.counted(recipe, tokens, weights)
        return jnp.sum(weights) if beta is None else jnp.float32(tokens.shape[0] // recipe.together)

    sparse = recipe.model.sparse
    grad = jax.value_and_grad(loss_sum, has_aux=sparse)
    count = tokens.shape[0] // micro
    if count == 1:
        sums, grads = grad(moving, tokens, weights)
        return filled(grads), *_parts(sums, counted())

    def body(carry: tuple[Arrays, Any], piece: tuple[jax.Array, jax.Array]) -> tuple[tuple[Arrays, Any], None]:
        sums, grads = grad(moving, *piece)
        return (jax.tree.map(jnp.add, carry[0], grads), jax.tree.map(jnp.add, carry[1], sums)), None

    loads = (jnp.zeros((recipe.model.num_layers, recipe.model.num_experts or 0), jnp.float32),) if sparse else ()
    none = jnp.zeros((), jnp.float32)
    zero = (jax.tree.map(jnp.zeros_like, moving), (none, *loads) if sparse else none)
    pieces = (tokens.reshape(count, micro, -1), weights.reshape(count, micro, -1))
    (grads, sums), _ = jax.lax.scan(body, zero, pieces)
    return filled(grads), *_parts(sums, counted())


def _parts(sums: Any, weight: jax.Array) -> tuple[jax.Array, jax.Array, tuple[jax.Array, ...]]:
    """Sum of losses, of weights, and loads where there are some."""
    return (sums[0], weight, tuple(sums[1:])) if isinstance(sums, tuple) else (sums, weight, ())


def fold(x: jax.Array) -> jax.Array:
    """Sum over the first axis, whose length is a power of two, by the fixed binary tree: neighbours first."""
    while x.shape[0] > 1:
        x = x[0::2] + x[1::2]
    return x[0]


@dataclass(frozen=True)
class Programs:
    """What is compiled for a train step, in the order in which one needs them. Each takes and gives arrays that lie over
    the mesh; what a program does is said where :meth:`TrainStep.compiled` defines it."""

    gather: Program
    select: Program
    gradient: Program
    add: Program
    exchange: Program
    square: Program
    total: Program
    update: Program
    prints: Program
    blank: Program | None = None
    """The gradient of a shard of a batch with blank positions, where the recipe excludes documents."""


class TrainStep(Step):
    """A train step in logical shards and slices."""

    def __init__(self, recipe: Recipe, mesh: Mesh, example: TrainState) -> None:
        shards = logical_shards(recipe, mesh)
        super().__init__(recipe, mesh, Layout(example, optimizer(recipe), shards))
        self.local_shards = shards // self.devices
        self.shard_size = recipe.trainer.batch_size // shards
        self.shard_numbers = [np.int32(j) for j in range(self.local_shards)]
        self.slice_numbers = [
            self._per_device([d * self.local_shards + j for d in range(self.devices)]) for j in range(self.local_shards)
        ]
        self.programs = self.compiled()

    def _per_device(self, values: list[int]) -> jax.Array:
        rows = np.asarray(values, np.uint32)
        return jax.make_array_from_callback(rows.shape, self.by_batch, lambda index: rows[index])

    def _compile(self, lowered: jax.stages.Lowered) -> Program:
        return lowered.compile()

    def compiled(self) -> Programs:
        """The programs, compiled for this mesh, as many at a time as there are :data:`COMPILERS`."""
        over = partial(jax.shard_map, mesh=self.mesh, check_vma=False)
        each, same = P(DATA), P()
        recipe, layout, local, size = self.recipe, self.layout, self.local_shards, self.shard_size

        # A program sees one row of each array that lies over the devices, as an axis of length one.
        def mine(tree: Any) -> Any:
            return jax.tree.map(lambda x: x[0], tree)

        def lifted(tree: Any) -> Any:
            return jax.tree.map(lambda x: x[None], tree)

        def select(tokens: jax.Array, weights: jax.Array, index: jax.Array) -> tuple[jax.Array, ...]:
            return tuple(jax.lax.dynamic_slice_in_dim(x, index * size, size, axis=0) for x in (tokens, weights))

        def gradient(arrays: Arrays, tokens: jax.Array, weights: jax.Array, blank: bool = False) -> Any:
            return lifted(shard_sums(layout.static, recipe, arrays, tokens, weights, blank=blank))

        # The order of every sum is the program's: rows travel as words, without arithmetic, and each device folds what it gets by
        # the same tree. A reduction by the backend would add in an order that depends on how many devices there are.
        def exchange(sums: Any) -> tuple[tuple[Leaves, ...], jax.Array, jax.Array]:
            grads, loss, weight = mine(sums)
            slices = []
            for grad in jax.tree.leaves(without_axis_names(grads)):
                rows = layout.rows(grad).reshape(self.devices, local, -1)
                theirs = as_words(lambda x: jax.lax.all_to_all(x, DATA, 0, 0), rows) if self.devices > 1 else rows
                slices.append(fold(theirs))
            pieces = tuple(tuple(rows[j][None] for rows in slices) for j in range(local))
            return pieces, across(loss), across(weight)

        def together(x: jax.Array) -> jax.Array:
            return jax.lax.all_gather(x, DATA, tiled=True)

        def across(value: jax.Array) -> jax.Array:
            return fold(as_words(lambda x: jax.lax.all_gather(x, DATA), value))

        # The norm for clipping needs all slices before any of them is updated: squares are a program of their own.
        def square(grads: Leaves) -> jax.Array:
            return slice_square(mine(grads))[None]

        def total(squares: Leaves) -> jax.Array:
            return fold(as_words(together, jnp.concatenate(squares)))

        def update(
            params: Leaves,
            moments: Leaves,
            grads: Leaves,
            number: jax.Array,
            square: jax.Array,
            loss: jax.Array,
            weight: jax.Array,
        ) -> Any:
            params, moments, grads, number = mine((params, moments, grads, number))
            *after, loss, norm = slice_update(recipe, layout, params, moments, grads, square, loss, weight, number)
            return lifted(tuple(after)), loss, norm

        def gather(params: tuple[Leaves, ...]) -> Arrays:
            stacked = [jnp.concatenate([piece[i] for piece in params]) for i in range(len(layout.params))]
            return layout.whole_params([as_words(together, rows) for rows in stacked])

        # Fingerprints are sums of integers, for which the order does not matter: the one place where the backend may add.
        def prints(pieces: tuple[jax.Array, ...]) -> jax.Array:
            return jax.lax.psum(jnp.sum(jnp.concatenate(pieces), axis=0, dtype=jnp.uint32), DATA)

        whole = NamedSharding(self.mesh, P())
        width = (self.devices,)

        def split(tree: Any) -> Any:
            """What a program is given: arrays whose first axis lies over the devices."""
            return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=self.by_batch), tree)

        def full(tree: Any) -> Any:
            return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=whole), tree)

        def pieces(tensors: Leaves) -> Leaves:
            return tuple(split(jax.ShapeDtypeStruct(width + layout.sliced_shape(x.shape), x.dtype)) for x in tensors)

        # Programs are compiled for shapes: no array of the model's size need be there for it.
        params, moments = pieces(layout.params), pieces(layout.moments)
        scalar, number = full(jax.ShapeDtypeStruct((), jnp.float32)), split(jax.ShapeDtypeStruct(width, jnp.uint32))
        rows = (self.devices * size, recipe.model.seq_len)
        shard = split((jax.ShapeDtypeStruct(rows, jnp.int32), jax.ShapeDtypeStruct(rows, jnp.float32)))
        batch = split(tuple(jax.ShapeDtypeStruct((recipe.trainer.batch_size, x.shape[1]), x.dtype) for x in shard))
        index = full(jax.ShapeDtypeStruct((), jnp.int32))

        # The interpreter traces one program after the other; the compiler takes each in a thread, the longest first.
        with ThreadPoolExecutor(max_workers=COMPILERS, thread_name_prefix="compiler") as compilers:

            def compiled(function: Any, *given: Any, donate: tuple[int, ...] = ()) -> tuple[Future[Any], Any]:
                """A program on its way, and what it gives."""
                lowered = jax.jit(function, donate_argnums=donate).lower(*given)
                return compilers.submit(self._compile, lowered), lowered.out_info

            coming: dict[str, Future[Any]] = {}
            coming["gradient"], sums = compiled(
                over(gradient, in_specs=(same, each, each), out_specs=each), full(layout.named), *shard
            )
            sums = split(sums)
            if recipe.exclude is not None:
                coming["blank"], _ = compiled(
                    over(partial(gradient, blank=True), in_specs=(same, each, each), out_specs=each),
                    full(layout.named),
                    *shard,
                )
            # Parameters and moments are given up to it: otherwise each would be there twice at the end of a train step.
            coming["update"], ((_, _, piece), _, _) = compiled(
                over(update, in_specs=(each,) * 4 + (same,) * 3, out_specs=(each, same, same)),
                params,
                moments,
                params,
                number,
                scalar,
                scalar,
                scalar,
                donate=(0, 1),
            )
            coming["exchange"], _ = compiled(over(exchange, in_specs=(each,), out_specs=(each, same, same)), sums)
            coming["gather"], _ = compiled(over(gather, in_specs=(each,), out_specs=same), (params,) * local)
            coming["add"], _ = compiled(
                over(lambda a, b: jax.tree.map(jnp.add, a, b), in_specs=each, out_specs=each), sums, sums, donate=(0,)
            )
            coming["square"], one = compiled(over(square, in_specs=(each,), out_specs=each), params)
            coming["total"], _ = compiled(over(total, in_specs=(each,), out_specs=same), (split(one),) * local)
            coming["prints"], _ = compiled(over(prints, in_specs=(each,), out_specs=same), (split(piece),) * local)
            coming["select"], _ = compiled(over(select, in_specs=(each, each, same), out_specs=each), *batch, index)
            programs = Programs(**{name: program.result() for name, program in coming.items()})
        give_back_memory()
        return programs

    @property
    def named(self) -> Mapping[str, Program]:
        found = {one.name: getattr(self.programs, one.name) for one in fields(self.programs)}
        return {name: program for name, program in found.items() if program is not None}

    @property
    def computing(self) -> frozenset[str]:
        return frozenset({"gradient", "blank", "add", "square", "update"} & self.named.keys())

    @property
    def executions(self) -> Mapping[str, int]:
        """As in every step; of batches without blanks."""
        own = self.local_shards
        times = dict.fromkeys(self.named, 1) | {"gradient": own, "select": own, "add": own - 1, "blank": 0}
        return times | {"update": own, "square": own}

    @property
    def memory(self) -> Memory:
        """As in every step: of a device with several shards, a sum at each level of the tree; all parameters lie between
        ``gather`` and the last gradient."""
        layout, own = self.layout, self.local_shards
        slice_of = {name: 4 * math.prod(layout.shapes[name]) for name in layout.names}
        params = own * sum(slice_of[name] for name in layout.param_names)
        moments = own * sum(slice_of[name] for name in layout.moment_names)
        whole = nbytes(layout.named)
        lying = {
            "gather": params + whole,
            "gradient": 2 * whole,
            "blank": 2 * whole,
            "add": 2 * whole,
            "exchange": whole,
        }
        lying |= {"update": (2 * params + moments) // own, "square": params // own}
        return Memory(params + moments, params + (own.bit_length()) * whole, whole, lying)

    def gradient(self, blank: bool) -> Program:
        """What computes the gradient of a shard; one program for the whole of a batch."""
        return self.programs.gradient if not blank else self.programs.blank

    def sums(self, arrays: Arrays, tokens: jax.Array, weights: jax.Array, *, blank: bool = False) -> Any:
        """Each device's sums over its own logical shards, depth first."""
        pending: list[tuple[int, Any]] = []
        for number in self.shard_numbers:
            part = self.gradient(blank)(arrays, *self.programs.select(tokens, weights, number))
            level = 0
            while pending and pending[-1][0] == level:
                part = self.programs.add(pending.pop()[1], part)
                level += 1
            pending.append((level, part))
        ((_, folded),) = pending
        return folded

    def run(
        self, state: SlicedState, tokens: jax.Array, weights: jax.Array, *, blank: bool = False
    ) -> tuple[SlicedState, StepOutcome]:
        sums = self.sums(self.programs.gather(state.params), tokens, weights, blank=blank)
        grads, loss, weight = self.programs.exchange(sums)
        square = self.programs.total(tuple(self.programs.square(piece) for piece in grads))
        outputs = [
            self.programs.update(params, moments, piece, number, square, loss, weight)
            for params, moments, piece, number in zip(
                state.params, state.moments, grads, self.slice_numbers, strict=True
            )
        ]
        prints = self.programs.prints(tuple(output[0][2] for output in outputs))
        (_, *scalars) = outputs[0]
        params, moments = tuple(o[0][0] for o in outputs), tuple(o[0][1] for o in outputs)
        return self.after(state, params, moments, tuple(scalars), prints)

    def foreign_products(self) -> list[str]:
        """Matrix products of the compiled gradient whose bits depend on the processor
        (:mod:`marin.training.runtime.products`)."""
        both = (self.programs.gradient, self.programs.blank)
        return [line for one in both if one is not None for line in foreign_products(one.as_text())]

    def program(self) -> Mapping[str, str]:
        """sha256 of the StableHLO of each program that computes, lowered for one device: the same on any mesh. ``fold``
        stands for the additions between devices, as many as there can be; what only moves numbers is not among them."""
        layout = self.layout
        shape = (self.shard_size, self.recipe.model.seq_len)
        scalar = jax.ShapeDtypeStruct((), jnp.float32)
        tokens, weights = jax.ShapeDtypeStruct(shape, jnp.int32), jax.ShapeDtypeStruct(shape, jnp.float32)
        params = tuple(jax.ShapeDtypeStruct(layout.sliced_shape(x.shape), x.dtype) for x in layout.params)
        moments = tuple(jax.ShapeDtypeStruct(layout.sliced_shape(x.shape), x.dtype) for x in layout.moments)
        sums = (layout.named, scalar, scalar)
        lowered = {
            "gradient": jax.jit(partial(shard_sums, layout.static, self.recipe)).lower(layout.named, tokens, weights),
            "add": jax.jit(lambda a, b: jax.tree.map(jnp.add, a, b)).lower(sums, sums),
            "fold": jax.jit(lambda rows: jax.tree.map(fold, rows)).lower(
                tuple(jax.ShapeDtypeStruct((layout.slices, *x.shape), x.dtype) for x in (*params, scalar))
            ),
            "square": jax.jit(slice_square).lower(params),
            "update": jax.jit(partial(slice_update, self.recipe, layout)).lower(
                params, moments, params, scalar, scalar, scalar, jax.ShapeDtypeStruct((), jnp.uint32)
            ),
        }
        if self.recipe.exclude is not None:
            blank = partial(shard_sums, layout.static, self.recipe, blank=True)
            lowered["blank"] = jax.jit(blank).lower(layout.named, tokens, weights)
        return {
            name: "sha256:" + hashlib.sha256(program.as_text().encode()).hexdigest()
            for name, program in lowered.items()
        }
