"""A train step in which no device ever holds all parameters: layer by layer.

Parameters and moments lie in L slices, as in the step by shards (:mod:`marin.training.step.shards`), cut within each layer. For
each layer of the forward pass its weights are gathered in the dtype that computes; only what goes from layer to layer is
kept. The backward pass gathers a layer again, computes it again, and its gradient leaves at once: each device gets the other
devices' gradients of its own slices, and folds them. So a device holds its slices of state and gradient, one layer, and what
goes between layers.

Programs that compute are those of one device: a part of the model on some sequences (``first``, ``layer``, ``last``,
``layer_back``, ``first_back``) or of one slice of the state (``square``, ``update``). They are compiled without a mesh, so
they are the same bytes whatever slice of chips executes them; a compiler that sees a mesh of one device fuses otherwise than
one that sees more. On a processor, whose devices are virtual, what is compiled for one serves them all.

Programs over the mesh only move words and add (``gather_*``, ``leave_*``, ``add``, ``total``, ``prints``, ``select``), but that
a gathering first rounds weights to the dtype that computes. Weights come to the programs that compute, and their gradients
leave them, as whole numbers: to read them as floats in a matrix product costs nothing, while a program that moves would have to
pass over all of them once more.

The order of the sums. The batch is cut into L equal blocks of neighbouring sequences, of which a device has L/D neighbours (D
devices). For each microbatch, blocks are summed by a binary tree over halves: block b with block b + L/2, and so on down. The
devices' numbers are the high bits of a block's, so the first levels are between devices, at once when a layer's gradient
leaves; then come the device's own blocks, one pass each. Microbatches are added one after the other. None of this depends on D.

Several slices of a pod, or pods: the mesh has a second axis, whose devices hold the same slices of the state; the fold goes on
over it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from marin.plugins.scale import hlo
from marin.plugins.scale.parts import PARTS, Part, Parts, stack_of
from marin.recipe.schema import CPU_PROFILES, Recipe
from marin.training.model import compute_dtype
from marin.training.optimizers.rule import optimizer
from marin.training.runtime.compilation import give_back_memory
from marin.training.runtime.products import foreign_products
from marin.training.state import DATA, REPLICA, TrainState
from marin.training.step import contract
from marin.training.step.slices import Layout, Leaves, SlicedState
from marin.training.step.update import slice_square, slice_update

COMPILERS = 3
"""Programs that are compiled at once."""
AHEAD = 2
"""How many layers the interpreter may be ahead of the devices."""
MULTIPLIES = ("layer", "last", "layer_back")
"""Programs that hold matrix products; embedding looks up, and what is of a slice is element by element."""
COMPUTES = ("first", "layer", "last", "layer_back", "first_back", "square", "update")
"""Programs of one device; with a suffix ``_blank`` for batches with blank positions."""
LEVELS = 3
"""How many levels of a tree over halves are added in one pass over the numbers."""


def halves(x: jax.Array, of: Callable[[jax.Array], jax.Array] = jnp.asarray) -> jax.Array:
    """Sum over the first axis, whose length is a power of two, by the binary tree over halves. ``of``: what is summed of each
    element, computed where it is added."""
    parts = [of(part) for part in jnp.split(x, min(2**LEVELS, x.shape[0]))]
    while len(parts) > 1:
        half = len(parts) // 2
        parts = [one + other for one, other in zip(parts[:half], parts[half:], strict=True)]
    (added,) = parts
    return halves(added) if added.shape[0] > 1 else added[0]


def passes(count: int) -> list[int]:
    """The order in which a device's own blocks are computed, so that their tree over halves is folded depth first."""
    bits = count.bit_length() - 1
    return [int(f"{number:0{bits}b}"[::-1], 2) if bits else 0 for number in range(count)]


class LayeredStep(contract.Step):
    """A train step layer by layer, in logical shards and slices."""

    def __init__(self, recipe: Recipe, mesh: Mesh, example: TrainState) -> None:
        shards = contract.logical_shards(recipe, mesh)
        super().__init__(recipe, mesh, Layout(example, optimizer(recipe), shards, stack_of(recipe)))
        self.replicas = mesh.shape.get(REPLICA, 1)
        self.within = self.devices // self.replicas
        self.local_slices = shards // self.within
        self.passes = passes(shards // self.devices)
        self.gatherings = gatherings(mesh.devices.reshape(self.within, -1)[:, 0])
        self.microbatches = recipe.trainer.batch_size // shards // recipe.arithmetic.microbatch_size
        names = self.layout.param_names
        self.parts = {False: Parts(recipe, example, names)}
        if recipe.exclude is not None:
            self.parts[True] = Parts(recipe, example, names, blank=True)
        self._scratch: Any = None
        self.programs = self._compiled()

    def _compile(self, lowered: jax.stages.Lowered) -> contract.Program:
        return lowered.compile()

    @property
    def named(self) -> Mapping[str, contract.Program]:
        return self.programs

    @property
    def computing(self) -> frozenset[str]:
        return frozenset(name for name in self.programs if name.removesuffix("_blank") in COMPUTES)

    @property
    def executions(self) -> Mapping[str, int]:
        """As in every step; of batches without blanks."""
        layers, turns = self.parts[False].layers, self.microbatches * len(self.passes)
        slices = self.local_slices
        times = {"select": turns, "add": turns - 1, "square": slices, "update": slices, "total": 1, "prints": 1}
        times |= {f"{kind}_{part}": turns for part in ("first", "last") for kind in ("gather", "leave")}
        times |= {"first": turns, "last": turns, "first_back": turns, "layer": turns * layers}
        return times | {"layer_back": turns * layers, "gather_layer": 2 * turns * layers, "leave_layer": turns * layers}

    @property
    def memory(self) -> contract.Memory:
        """As in every step. Of a gradient there is one copy, and one more for each level of the tree over passes and for
        microbatches; between the parts are what goes from layer to layer, weights that were gathered ahead, and the gradient
        by ``last`` of tied weights, which stays until ``leave_first``."""
        layout, parts = self.layout, self.parts[False]
        own = self.local_slices
        sizes = [own * 4 * math.prod(layout.shapes[name]) for name in layout.param_names]
        moments = sum(own * 4 * math.prod(layout.shapes[name]) for name in layout.moment_names)
        part = {name: sum(sizes[i] for i in parts.indices[name]) for name in PARTS}
        recipe = self.recipe
        x = recipe.arithmetic.microbatch_size * recipe.model.seq_len * recipe.model.hidden_dim
        x *= compute_dtype(recipe).itemsize
        copies = 1 + (len(self.passes) - 1).bit_length() + (self.microbatches > 1)
        lying = {f"gather_{name}": size for name, size in part.items()}
        lying |= {f"leave_{name}": sum(sizes[i] for i in self._leaving(name)) for name in PARTS}
        tied = contract.nbytes([parts.shapes("last")[parts.indices["last"].index(i)] for i in parts.tied])
        lying["leave_first"] += tied
        lying |= {"first": x, "layer": 2 * x, "layer_back": x, "last": x + tied}
        lying |= {"update": (2 * sum(sizes) + moments) // own, "square": sum(sizes) // own, "add": 2 * sum(sizes)}
        ahead = AHEAD * contract.nbytes(parts.shapes("layer"))
        return contract.Memory(sum(sizes) + moments, copies * sum(sizes), (parts.layers + 1) * x + ahead + tied, lying)

    # What is compiled

    def _compiled(self) -> dict[str, contract.Program]:
        with ThreadPoolExecutor(COMPILERS, thread_name_prefix="compiler") as compilers:
            coming: dict[str, Callable[[], contract.Program]] = {}
            for name, function, likes, how in self._definitions():
                if name.removesuffix("_blank") in COMPUTES:
                    coming[name] = self._each(compilers, function, likes, **how)
                else:
                    coming[name] = self._together(compilers, function, likes, **how)
            programs = {name: program() for name, program in coming.items()}
        give_back_memory()
        return programs

    def _together(
        self, compilers: ThreadPoolExecutor, function: Any, likes: Sequence[Any], out: Any, donate: tuple[int, ...] = ()
    ) -> Callable[[], contract.Program]:
        """A program over the mesh. ``out``: the sharding of what it gives."""
        specs = jax.tree.map(lambda x: x.sharding.spec, tuple(likes))
        over = jax.shard_map(
            function, mesh=self.mesh, in_specs=specs, out_specs=jax.tree.map(lambda s: s.spec, out), check_vma=False
        )
        lowered = jax.jit(over, donate_argnums=donate).lower(*likes)
        return compilers.submit(self._compile, lowered).result

    def _each(
        self, compilers: ThreadPoolExecutor, function: Any, likes: Sequence[Any], out: Any, donate: tuple[int, ...] = ()
    ) -> Callable[[], contract.Program]:
        """A program that each device executes by itself, on its rows of arrays whose first axis lies over the devices, and on
        whole scalars."""
        split = [jax.tree.map(_lies_over_devices, like) for like in likes]

        def own(*given: Any) -> Any:
            mine = [jax.tree.map(lambda x, s: x[0] if s else x, one, s) for one, s in zip(given, split, strict=True)]
            return jax.tree.map(lambda x: x[None], function(*mine))

        local = [jax.tree.map(self._local, like) for like in likes]
        made: dict[Any, Future[Any]] = {}
        for device in self._compiling_devices():
            placed = jax.tree.map(partial(_placed, SingleDeviceSharding(device)), tuple(local))
            lowered = jax.jit(own, donate_argnums=donate).lower(*placed)
            made[device] = compilers.submit(self._compile, lowered)
        return lambda: self._spread({device: one.result() for device, one in made.items()}, out, donate)

    def _compiling_devices(self) -> Sequence[Any]:
        """The devices for which programs are compiled: those of this process, or one of them where they are virtual."""
        here = [device for device in self.mesh.devices.ravel() if device.process_index == jax.process_index()]
        return here[:1] if self.recipe.arithmetic.profile in CPU_PROFILES else here

    def _spread(self, programs: Mapping[Any, Any], out: NamedSharding, donated: tuple[int, ...]) -> contract.Program:
        return EachDevice(programs, out, donated)

    def _local(self, like: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        shape = (1, *like.shape[1:]) if _lies_over_devices(like) else like.shape
        return jax.ShapeDtypeStruct(shape, like.dtype)

    def _definitions(self) -> Iterator[tuple[str, Any, Sequence[Any], dict[str, Any]]]:
        """(name, function, what it is given, {out, donate}) of every program, the longest to compile first."""
        recipe, layout, parts = self.recipe, self.layout, self.parts[False]
        dtype, micro, length = compute_dtype(recipe), recipe.arithmetic.microbatch_size, recipe.model.seq_len
        whole, by_slice, by_device = NamedSharding(self.mesh, P()), self.by_slice, self.by_batch

        def devices(tree: Any) -> Any:
            return jax.tree.map(
                lambda x: jax.ShapeDtypeStruct((self.devices, *x.shape), x.dtype, sharding=by_device), tree
            )

        def slices(names: Sequence[str], dtypes: Sequence[Any]) -> Leaves:
            return tuple(
                jax.ShapeDtypeStruct((self.within, *layout.shapes[name]), x.dtype, sharding=by_slice)
                for name, x in zip(names, dtypes, strict=True)
            )

        def scalar(kind: Any) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct((), kind, sharding=whole)

        # What the programs take, as shapes: every layer of a model has the same ones, so one program serves all of them.
        shape = (micro, length)
        x = devices(jax.ShapeDtypeStruct((*shape, recipe.model.hidden_dim), dtype))
        tokens = devices(jax.ShapeDtypeStruct(shape, jnp.int32))
        counted = devices(jax.ShapeDtypeStruct(shape, jnp.float32))
        weights = {part: devices(jax.eval_shape(contract.words, parts.shapes(part))) for part in PARTS}
        params = slices(layout.param_names, layout.params)
        moments = slices(layout.moment_names, layout.moments)
        grads = tuple(params for _ in range(self.local_slices))
        sum_ = scalar(jnp.float32)

        for blank, some in self.parts.items():
            end = "_blank" if blank else ""

            # What a layer makes on the way forward is not kept: the way back makes it again from the layer's input.
            def layer_back(w: Any, x: Any, tokens: Any, dy: Any, some: Parts = some) -> Any:
                _, back = jax.vjp(lambda w, x: some.layer(w, x, tokens), contract.floats(w, dtype), x)
                dw, dx = back(dy)
                return contract.words(dw), dx

            def last(w: Any, x: Any, tokens: Any, counted: Any, some: Parts = some) -> Any:
                def summed(w: Any, x: Any) -> Any:
                    return some.last(w, x, tokens, counted)

                (loss, (dw, dx)), weight = _grad(summed)(contract.floats(w, dtype), x)
                return contract.words(dw), dx, loss, weight

            def layer(w: Any, x: Any, tokens: Any, some: Parts = some) -> Any:
                return some.layer(contract.floats(w, dtype), x, tokens)

            def first(w: Any, tokens: Any, some: Parts = some) -> Any:
                return some.first(contract.floats(w, dtype), tokens)

            def first_back(tokens: Any, dx: Any, some: Parts = some) -> Any:
                zeros = tuple(jnp.zeros(x.shape, x.dtype) for x in some.shapes("first"))  # it is linear in its weights
                return contract.words(jax.vjp(lambda w: some.first(w, tokens), zeros)[1](dx)[0])

            # The longest first, because compilers work side by side and the last one decides when training begins.
            lifted = {"out": by_device}
            yield f"layer_back{end}", layer_back, (weights["layer"], x, tokens, x), lifted
            yield f"last{end}", last, (weights["last"], x, tokens, counted), lifted
            yield f"layer{end}", layer, (weights["layer"], x, tokens), lifted
            yield f"first_back{end}", first_back, (tokens, x), lifted
            yield f"first{end}", first, (weights["first"], tokens), lifted

        number = jax.ShapeDtypeStruct((self.within,), jnp.uint32, sharding=by_slice)

        def update(params: Any, moments: Any, grads: Any, number: Any, square: Any, loss: Any, weight: Any) -> Any:
            return slice_update(recipe, layout, params, moments, grads, square, loss, weight, number, apart=True)

        # Loss and norm come out once for each device, as everything of such a program does.
        yield "update", update, (params, moments, params, number, sum_, sum_, sum_), {"out": by_slice, "donate": (0, 1)}
        yield "square", slice_square, (params,), {"out": by_slice}
        for part in PARTS:
            chosen = tuple(tuple(params[i] for i in parts.indices[part]) for _ in range(self.local_slices))
            at = (scalar(jnp.int32),)
            yield f"gather_{part}", partial(self._gather, part), (chosen, *at), {"out": by_device}
            # A tied embedding gets its gradient from both ends of the model: it leaves with the first, when both are there.
            leaving = [parts.indices[part].index(i) for i in self._leaving(part)]
            tied = tuple(weights["last"][parts.indices["last"].index(i)] for i in parts.tied)
            yield (
                f"leave_{part}",
                partial(self._leave, part),
                (
                    tuple(weights[part][position] for position in leaving),
                    tuple(tuple(piece[position] for position in leaving) for piece in chosen),
                    *at,
                    *(devices((sum_, sum_)) if part == "last" else tied if part == "first" else ()),
                ),
                {"out": (by_slice, whole) if part == "last" else by_slice, "donate": (1,)},
            )
        sums = (grads, (sum_, sum_))
        yield "add", lambda a, b: jax.tree.map(jnp.add, a, b), (sums, sums), {"out": (by_slice, whole), "donate": (0,)}
        squares = tuple(jax.ShapeDtypeStruct((self.within,), jnp.float32, sharding=by_slice) for _ in grads)
        yield "total", self._total, (squares,), {"out": whole}
        count = len(layout.params) + len(layout.moments)
        prints = tuple(jax.ShapeDtypeStruct((self.within, count, 2), jnp.uint32, sharding=by_slice) for _ in grads)
        yield "prints", self._prints, (prints,), {"out": whole}
        rows = (recipe.trainer.batch_size, length)
        batch = [jax.ShapeDtypeStruct(rows, kind, sharding=by_device) for kind in (jnp.int32, jnp.float32)]
        yield "select", self._select, (*batch, scalar(jnp.int32)), {"out": by_device}

    # Over the mesh: what moves, and what adds

    def _gather(self, part: Part, pieces: Sequence[Leaves], layer: jax.Array) -> Leaves:
        """The words of the whole weights of a part, rounded to the dtype that computes, from all slices."""
        dtype, found = compute_dtype(self.recipe), []
        for position, like in enumerate(self.parts[False].shapes(part)):
            mine = [piece[position][0] for piece in pieces]
            rows: jax.Array = contract.words(
                jnp.stack([x[layer] if part == "layer" else x for x in mine]).astype(dtype)
            )
            if self.within > 1:
                for groups in self.gatherings:
                    rows = jax.lax.all_gather(rows, DATA, tiled=True, axis_index_groups=groups)
            found.append(rows.reshape(-1)[: math.prod(like.shape)].reshape(1, *like.shape))
        return tuple(found)

    def _leave(self, part: Part, grads: Leaves, kept: Sequence[Leaves], layer: jax.Array, *more: jax.Array) -> Any:
        """The gradient of a part on its way to anyone who holds its slices, folded over the devices, into ``kept``. ``more``: of
        ``last``, loss and weight, which are folded too; of ``first``, gradients by ``last`` of the weights that both have. They
        are added here, of one block, before anything is folded: a tree over blocks then has the same leaves on any mesh."""
        pieces: list[list[jax.Array]] = [[] for _ in kept]
        tied = dict(zip(self.parts[False].tied, more, strict=True)) if part == "first" else {}
        for position, index in enumerate(self._leaving(part)):
            dtype = compute_dtype(self.recipe)
            grad = grads[position][0].reshape(-1)
            if index in tied:
                grad = contract.words(_float32(dtype, tied[index][0].reshape(-1)) + _float32(dtype, grad))
                dtype = jnp.dtype(jnp.float32)
            shape = kept[0][position].shape[2 if part == "layer" else 1 :]
            grad = jnp.pad(grad, (0, self.layout.slices * math.prod(shape) - grad.size))
            rows = grad.reshape(self.within, self.local_slices, *shape)
            moved = jax.lax.all_to_all(rows, DATA, 0, 0) if self.within > 1 else rows
            folded = self._over_replicas(halves(moved, partial(_float32, dtype)))
            for j, (piece, own) in enumerate(zip(pieces, kept, strict=True)):
                if part == "layer":
                    piece.append(jax.lax.dynamic_update_index_in_dim(own[position], folded[j][None], layer, 1))
                else:
                    piece.append(folded[j][None])
        left = tuple(map(tuple, pieces))
        if part != "last":
            return left
        return left, tuple(self._over_replicas(halves(self._together_words(one[0], DATA))) for one in more)

    def _leaving(self, part: Part) -> Sequence[int]:
        """The weights whose gradients leave with a part: what both ends have leaves with the first."""
        parts = self.parts[False]
        return [i for i in parts.indices[part] if part != "last" or i not in parts.tied]

    def _together_words(self, x: jax.Array, axis: str) -> jax.Array:
        return contract.as_words(lambda x: jax.lax.all_gather(x, axis), x)

    def _over_replicas(self, x: jax.Array) -> jax.Array:
        return halves(self._together_words(x, REPLICA)) if self.replicas > 1 else x

    def _total(self, squares: Leaves) -> jax.Array:
        together = contract.as_words(lambda x: jax.lax.all_gather(x, DATA, tiled=True), jnp.concatenate(squares))
        return halves(together)

    def _prints(self, pieces: tuple[jax.Array, ...]) -> jax.Array:
        return jax.lax.psum(jnp.sum(jnp.concatenate(pieces), axis=0, dtype=jnp.uint32), DATA)

    def _select(self, tokens: jax.Array, weights: jax.Array, start: jax.Array) -> tuple[jax.Array, ...]:
        size = self.recipe.arithmetic.microbatch_size
        return tuple(jax.lax.dynamic_slice_in_dim(x, start, size, axis=0)[None] for x in (tokens, weights))

    # A step

    def run(
        self, state: SlicedState, tokens: jax.Array, weights: jax.Array, *, blank: bool = False
    ) -> tuple[SlicedState, contract.StepOutcome]:
        whole: Any = None
        size = self.recipe.trainer.batch_size // self.recipe.arithmetic.logical_shards
        for micro in range(self.microbatches):
            pending: list[tuple[int, Any]] = []
            for number in self.passes:
                start = np.int32(number * size + micro * self.recipe.arithmetic.microbatch_size)
                part = self._sums(state.params, *self.programs["select"](tokens, weights, start), blank=blank)
                level = 0
                while pending and pending[-1][0] == level:
                    part = self.programs["add"](pending.pop()[1], part)
                    level += 1
                pending.append((level, part))
            ((_, folded),) = pending
            whole = folded if whole is None else self.programs["add"](whole, folded)
        grads, (loss, weight) = whole
        square = self.programs["total"](tuple(self.programs["square"](piece) for piece in grads))
        outputs = [
            self.programs["update"](params, moments, piece, self._numbers(j), square, loss, weight)
            for j, (params, moments, piece) in enumerate(zip(state.params, state.moments, grads, strict=True))
        ]
        self._scratch = grads
        prints = self.programs["prints"](tuple(output[2] for output in outputs))
        params, moments = tuple(o[0] for o in outputs), tuple(o[1] for o in outputs)
        return self.after(state, params, moments, outputs[0][3:], prints)

    def _sums(self, params: Sequence[Leaves], tokens: jax.Array, weights: jax.Array, *, blank: bool) -> Any:
        """Of one microbatch of each device's block: the gradient of each slice, loss and weight, over all devices."""
        programs, end = self.programs, "_blank" if blank else ""
        parts = self.parts[False]
        none = np.int32(0)

        def gathered(part: Part, layer: np.int32 = none) -> Leaves:
            chosen = tuple(tuple(piece[i] for i in parts.indices[part]) for piece in params)
            return tuple(programs[f"gather_{part}"](chosen, layer))

        kept = [list(piece) for piece in self._fresh(params)]

        def left(part: Part, grads: Leaves, layer: np.int32 = none, *more: jax.Array) -> Any:
            leaving = self._leaving(part)
            chosen = tuple(tuple(piece[i] for i in leaving) for piece in kept)
            mine = tuple(grads[parts.indices[part].index(i)] for i in leaving)
            made = programs[f"leave_{part}"](mine, chosen, layer, *more)
            found, rest = made if part == "last" else (made, None)
            for piece, own in zip(kept, found, strict=True):
                for index, value in zip(leaving, own, strict=True):
                    piece[index] = value
            return rest

        layers = [np.int32(number) for number in range(parts.layers)]
        inputs = [programs[f"first{end}"](gathered("first"), tokens)]
        for layer in layers:
            inputs.append(programs[f"layer{end}"](gathered("layer", layer), inputs[-1], tokens))
            _not_too_far_ahead(inputs)
        grads, dy, loss, weight = programs[f"last{end}"](gathered("last"), inputs.pop(), tokens, weights)
        sums = left("last", grads, none, loss, weight)
        tied = tuple(grads[parts.indices["last"].index(i)] for i in parts.tied)
        ahead = [dy]
        for layer in reversed(layers):
            grads, dy = programs[f"layer_back{end}"](gathered("layer", layer), inputs.pop(), tokens, dy)
            left("layer", grads, layer)
            ahead.append(dy)
            _not_too_far_ahead(ahead)
        left("first", programs[f"first_back{end}"](tokens, dy), none, *tied)
        return tuple(map(tuple, kept)), sums

    def _fresh(self, params: Sequence[Leaves]) -> Sequence[Leaves]:
        """Arrays for a gradient's slices, all of which is written: those of the step before, or new ones."""
        scratch, self._scratch = self._scratch, None
        if scratch is not None:
            return tuple(scratch)
        return tuple(tuple(jnp.zeros(x.shape, x.dtype, device=x.sharding) for x in piece) for piece in params)

    def _numbers(self, j: int) -> jax.Array:
        rows = np.asarray([d * self.local_slices + j for d in range(self.within)], np.uint32)
        return jax.make_array_from_callback(rows.shape, self.by_slice, lambda index: rows[index])

    # What it is

    def program(self) -> Mapping[str, str]:
        """sha256 of the StableHLO of each program that computes, lowered for one device: the same on any mesh; and of the
        additions (``fold``, over as many as there can be)."""
        found = {}
        for name, function, likes, _ in self._definitions():
            if name.removesuffix("_blank") in COMPUTES:
                local = jax.tree.map(
                    lambda x: jax.ShapeDtypeStruct(x.shape[1:] if _lies_over_devices(x) else x.shape, x.dtype),
                    tuple(likes),
                )
                found[name] = jax.jit(function).lower(*local)
        grads = [
            jax.ShapeDtypeStruct((self.layout.slices, *self.layout.shapes[name]), jnp.float32)
            for name in self.layout.param_names
        ]
        found["fold"] = jax.jit(lambda rows: jax.tree.map(halves, rows)).lower(grads)
        return {
            name: "sha256:" + hashlib.sha256(lowered.as_text().encode()).hexdigest() for name, lowered in found.items()
        }

    @cached_property
    def optimised(self) -> Mapping[str, str]:
        return {name: hlo.Program.read(self.programs[name].as_text()).identity for name in sorted(self.computing)}

    def foreign_products(self) -> list[str]:
        """As in the step by shards."""
        multiply = [name for name in sorted(self.computing) if name.removesuffix("_blank") in MULTIPLIES]
        return [line for name in multiply for line in foreign_products(self.programs[name].as_text())]


class EachDevice:
    """A program that each device of this process executes by itself, called with arrays that lie over the mesh. What was
    compiled for one device of a processor serves the others: their rows are brought to it. ``donated``: arguments that are
    given up, as the programs were compiled; of rows that are brought, what they were brought from."""

    def __init__(self, programs: Mapping[Any, Any], out: NamedSharding, donated: tuple[int, ...] = ()) -> None:
        self._programs, self._out, self._donated = programs, out, donated
        self._any = next(iter(programs))

    def __call__(self, *given: Any) -> Any:
        flat, tree = jax.tree.flatten(given)
        gone = [number in self._donated for number, one in enumerate(given) for _ in jax.tree.leaves(one)]
        rows = [
            {shard.device: shard.data for shard in x.addressable_shards} if isinstance(x, jax.Array) else {}
            for x in flat
        ]
        made = []
        for device in next(row for row in rows if row):
            at = device if device in self._programs else self._any
            own = [row[device] if row else x for x, row in zip(flat, rows, strict=True)]
            if at != device:
                own = jax.device_put(own, at, donate=gone)
            found = self._programs[at](*jax.tree.unflatten(tree, own))
            made.append(found if at == device else jax.device_put(found, device, donate=True))
            del own, found  # or what was brought, and what became of it, would lie beside those of the next device
        for x in (x for x, donated in zip(flat, gone, strict=True) if donated):
            x.delete()
        total = math.prod(self._out.mesh.shape[axis] for axis in _axes(self._out.spec))

        def joined(*pieces: jax.Array) -> jax.Array:
            shape = (total, *pieces[0].shape[1:])
            return jax.make_array_from_single_device_arrays(shape, self._out, list(pieces))

        return jax.tree.map(joined, *made)

    def as_text(self) -> str:
        """The optimised program, which is the same for every device."""
        return str(self._programs[self._any].as_text())

    def memory_analysis(self) -> Any:
        """Of one device."""
        return self._programs[self._any].memory_analysis()

    def cost_analysis(self) -> Any:
        """Of one device."""
        with suppress(jax.errors.JaxRuntimeError):
            return self._programs[self._any].cost_analysis()
        return None


def _float32(dtype: Any, x: jax.Array) -> jax.Array:
    """Words of ``dtype`` as float32."""
    return jnp.asarray(contract.floats(x, dtype), jnp.float32)


def _not_too_far_ahead(made: Sequence[jax.Array]) -> None:
    """Wait for what was made :data:`AHEAD` layers ago: an accelerator's memory is taken when a program is sent to it, so
    anyone who sends all layers at once has room for the weights of all."""
    if len(made) > AHEAD:
        made[-1 - AHEAD].block_until_ready()


def _lies_over_devices(x: jax.ShapeDtypeStruct) -> bool:
    """Whether an argument has a row for each device, or is the same for all of them."""
    return len(x.sharding.spec) > 0


def _placed(sharding: SingleDeviceSharding, x: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)


def _axes(spec: P) -> tuple[str, ...]:
    (first, *_) = spec
    return first if isinstance(first, tuple) else (first,)


def _grad(summed: Callable[..., tuple[jax.Array, jax.Array]]) -> Callable[..., Any]:
    """((loss, gradients), weight) of a function that gives loss and weight."""

    def found(*given: Any) -> Any:
        (loss, weight), grads = jax.value_and_grad(summed, argnums=(0, 1), has_aux=True)(*given)
        return (loss, grads), weight

    return found


def gatherings(devices: Sequence[Any]) -> Sequence[Sequence[Sequence[int]] | None]:
    """How to gather over devices in the order of ``mesh_over``: one gathering after the other, each as the groups of
    devices, by their numbers, that gather among themselves; None stands for one group of all. libtpu gathers along one or two
    axes of a torus; of a gathering along three it makes a sum over zeros, which brings twice the bytes and writes the zeros."""
    places = [getattr(device, "coords", ()) for device in devices]
    sides = [len(set(along)) for along in zip(*places, strict=True)]
    if len([side for side in sides if side > 1]) < 3 or math.prod(sides) != len(devices):
        return [None]
    numbers = np.arange(len(devices)).reshape(-1, sides[-1])
    return [numbers.tolist(), numbers.T.tolist()]
