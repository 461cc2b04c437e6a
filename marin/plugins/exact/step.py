"""One train step in arithmetic without an order (docs/exact.md): the same bits on any processor and any number of devices.

Two exact programs compute: ``gradient`` (sums over the whole batch, by differentiation, and the sum of their squares) and
``update`` (clipping and optimizer). Their sums are of whole numbers, so a compiler may share them out over devices as it
likes. The state lies in one slice for each device; parameters are gathered for the gradient, whole or (tensor parallel) in
the shares of Levanter's own mapping. An optimizer that moves each number by itself updates, on every device, its own slice;
one that looks across a tensor gets whole tensors.

The digest of what is computed (:meth:`ExactStep.program`) is that of the exact programs over whole tensors, which no
device and no compiler enters.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, cast

import haliax as hax
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from levanter.utils.mesh import DEFAULT_SHARED_MAPPING

from marin.plugins.exact.compiled import Exact, exact
from marin.plugins.exact.devices import check_batch, check_shares
from marin.plugins.exact.guarded import MINUS_ZERO, unguarded
from marin.plugins.exact.integers import Products
from marin.plugins.exact.program import Program as ExactProgram
from marin.plugins.exact.program import factors_of
from marin.plugins.exact.stacks import Stacks, stack_of
from marin.recipe.schema import Recipe
from marin.training.initial import exact_initializer
from marin.training.optimizers.rule import optimizer
from marin.training.runtime.compilation import give_back_memory
from marin.training.state import EXPERT, TENSOR, TrainState, batch_axes, leaves, state_like
from marin.training.step.contract import Arrays, Memory, Program, Step, StepOutcome
from marin.training.step.fingerprint import words_sum
from marin.training.step.shards import sums_and_loads
from marin.training.step.slices import Layout, Leaves, SlicedState, whole, without_axis_names
from marin.training.step.update import slice_after, slice_print, slice_square

EXPERTS, INNER = "experts", "mlp"
"""Axes that the matrices of experts have both, as Levanter calls them; the router has the first."""


class ExactStep(Step):
    """A train step of profile ``exact``. ``products``: the way its contractions are multiplied, which decides no bit.

    Raises:
        UsageError: the batch does not divide over the devices (with tensor parallelism over their groups), a matrix does not
            over a group's, or the model has an operation without an exact form.
    """

    products: Products = "chosen"

    def __init__(self, recipe: Recipe, mesh: Mesh, example: TrainState) -> None:
        devices, shared = mesh.devices.size, mesh.shape.get(TENSOR, 1)
        check_batch(recipe, devices, shared)
        stack = stack_of([name for name, _ in leaves(example)]) if recipe.arithmetic.gather == "layer" else None
        super().__init__(recipe, mesh, Layout(example, optimizer(recipe), devices, stack))
        self._stacks = Stacks(self.layout, mesh, self._shared_out)
        self._shares = shares_of(self.layout.named, shared, mesh.shape.get(EXPERT, 1))
        self._example = example
        self._gradient = self._with_products(gradient_of(recipe, self.layout))
        blank = gradient_of(recipe, self.layout, blank=True) if recipe.exclude is not None else None
        self._blank = blank and self._with_products(blank)
        self._programs = self._compiled()

    def _with_products(self, of: Exact) -> Exact:
        return replace(of, products=self.products)

    def _compile(self, lowered: jax.stages.Lowered) -> Program:
        return lowered.compile()

    def _compiled(self) -> dict[str, Program]:
        recipe, layout, devices = self.recipe, self.layout, self.devices
        whole, axes = NamedSharding(self.mesh, P()), self.mesh.axis_names
        lying = [NamedSharding(self.mesh, share) for share in self._shares]
        by_matrix = jax.tree.unflatten(jax.tree.structure(layout.named), lying)
        update = self._with_products(update_of(recipe, layout))

        def gradient_by(of: Exact) -> Any:
            def gradient(z: jax.Array, rows: Leaves, tokens: jax.Array, weights: jax.Array, *key: jax.Array) -> Any:
                gathered = self._parameters(rows)
                if {TENSOR, EXPERT} & {*self.mesh.axis_names}:
                    gathered = jax.lax.with_sharding_constraint(gathered, by_matrix)
                grads, *scalars = of(z, gathered, tokens, weights, **_named(key), placement=self._stacks)
                return self._gradient_slices(grads), *scalars

            return gradient

        def updated(z: jax.Array, params: Leaves, moments: Leaves, grads: Leaves, *scalars: jax.Array) -> Any:
            number = jax.lax.axis_index(axes).astype(jnp.uint32)
            own = [[_flat(x[0]) for x in leaves] for leaves in (params, moments, grads)]
            kept, loss, norm = update(z, *own, *scalars)
            named = zip(
                kept, (*layout.param_names, *layout.moment_names), (*layout.params, *layout.moments), strict=True
            )
            prints = jnp.stack([slice_print(x, like.shape, number, layout.leads.get(n, 1)) for x, n, like in named])
            rows = tuple(x.reshape(like.shape) for x, like in zip(kept, (*params, *moments), strict=True))
            return rows[: len(params)], rows[len(params) :], jax.lax.psum(prints, axes), loss, norm

        def split(tree: Any) -> Any:
            return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=self.by_slice), tree)

        def pieces(names: Sequence[str], tensors: Leaves) -> Leaves:
            named = zip(names, tensors, strict=True)
            return tuple(jax.ShapeDtypeStruct((devices, *layout.shapes[name]), x.dtype) for name, x in named)

        z = scalar = jax.ShapeDtypeStruct((), jnp.float32, sharding=whole)
        params, moments = (
            split(pieces(layout.param_names, layout.params)),
            split(pieces(layout.moment_names, layout.moments)),
        )
        batch = [jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=self.by_batch) for x in _batch(recipe)]
        each, same = self.by_slice.spec, P()
        shared = jax.shard_map(
            updated,
            mesh=self.mesh,
            in_specs=(same, each, each, each, same, same, same),
            out_specs=(each, each, same, same, same),
            check_vma=False,
        )
        # Tracing holds Python's lock and compiling does not: while one program compiles, the next is traced.
        with jax.enable_x64(True), ThreadPoolExecutor(max_workers=2, thread_name_prefix="compiler") as compilers:
            out = (tuple(self.by_slice for _ in params), whole, whole, whole, (whole,) if recipe.model.sparse else ())
            keys = [jax.ShapeDtypeStruct(one.shape, one.dtype, sharding=whole) for one in self._key(0)]
            coming = {
                name: compilers.submit(
                    self._compile, jax.jit(gradient_by(of), out_shardings=out).lower(z, params, *batch, *keys)
                )
                for name, of in (("gradient", self._gradient), ("blank", self._blank))
                if of is not None
            }
            by_slice = jax.jit(shared, donate_argnums=(1, 2))
            after = by_slice if recipe.optimizer.elementwise else self._of_whole_tensors(update)
            last = after.lower(z, params, moments, params, scalar, scalar, scalar)
            coming["update"] = compilers.submit(self._compile, last)
            programs = {name: program.result() for name, program in coming.items()}
        give_back_memory()
        return programs

    def _parameters(self, rows: Leaves) -> Any:
        """The model's tree from the slices of its parameters: whole on each device, but for stacks that lie over them."""
        layout, everywhere = self.layout, NamedSharding(self.mesh, P())
        arrays = [
            self._stacks.whole(x, like.shape)
            if name in layout.leads
            else whole(jax.lax.with_sharding_constraint(x, everywhere), like.shape)
            for x, name, like in zip(rows, layout.param_names, layout.params, strict=True)
        ]
        return jax.tree.unflatten(jax.tree.structure(layout.named), arrays)

    def _gradient_slices(self, grads: Leaves) -> Leaves:
        """The slices of a gradient."""
        layout = self.layout
        return tuple(
            self._stacks.slices(name, grad)
            if name in layout.leads
            else layout.rows(grad).reshape(self.devices, *layout.shapes[name])
            for name, grad in zip(layout.param_names, grads, strict=True)
        )

    def _of_whole_tensors(self, update: Exact) -> Any:
        """The program of an optimizer that looks across tensors: each is gathered, and cut again afterwards."""
        layout, devices = self.layout, self.devices
        everywhere, by_slice = NamedSharding(self.mesh, P()), self.by_slice

        def gathered(rows: Leaves, likes: Leaves) -> list[jax.Array]:
            same = (jax.lax.with_sharding_constraint(x, everywhere) for x in rows)
            return [whole(x, like.shape) for x, like in zip(same, likes, strict=True)]

        def updated(z: jax.Array, params: Leaves, moments: Leaves, grads: Leaves, *scalars: jax.Array) -> Any:
            own = (gathered(params, layout.params), gathered(moments, layout.moments), gathered(grads, layout.params))
            kept, loss, norm = update(z, *own, *scalars)
            rows = tuple(layout.rows(x) if x.ndim else jnp.broadcast_to(x, (devices,)) for x in kept)
            prints = jnp.stack([words_sum(x) for x in kept])
            return rows[: len(params)], rows[len(params) :], prints, loss, norm

        cut = tuple(by_slice for _ in layout.params), tuple(by_slice for _ in layout.moments)
        return jax.jit(updated, donate_argnums=(1, 2), out_shardings=(*cut, everywhere, everywhere, everywhere))

    def run(
        self, state: SlicedState, tokens: jax.Array, weights: jax.Array, *, blank: bool = False
    ) -> tuple[SlicedState, StepOutcome]:
        (params,), (moments,) = state.params, state.moments
        key = self._key(int(state.step))
        gradient = self.named["blank" if blank else "gradient"]
        grads, *sums, loads = gradient(MINUS_ZERO, params, tokens, weights, *key)
        params, moments, prints, loss, norm = self.named["update"](MINUS_ZERO, params, moments, grads, *sums)
        after, outcome = self.after(state, (params,), (moments,), (loss, norm), prints)
        return after, replace(outcome, loads=tuple(np.asarray(x.addressable_data(0)) for x in loads))

    def _shared_out(self, x: jax.Array) -> jax.Array:
        """What a loop goes through, if it is the batch in microbatches and devices divide them: each microbatch shared out over
        the devices. Cut as the batch is, a device would have whole ones; GSPMD would then share out what is inside of a
        sequence, and move far more often."""
        axes, micro = batch_axes(self.mesh), self.recipe.arithmetic.microbatch_size
        count = self.recipe.trainer.batch_size // micro
        widths = {self.recipe.model.seq_len, self.recipe.columns * self.recipe.model.seq_len}
        whole = x.ndim == 3 and x.shape[:2] == (count, micro) and x.shape[2] in widths
        if not whole or micro % math.prod(self.mesh.shape[a] for a in axes):
            return x
        return jax.lax.with_sharding_constraint(x, NamedSharding(self.mesh, P(None, axes)))

    def _key(self, step: int) -> tuple[np.ndarray, ...]:
        """Seed and number of the train step, where random bits round: uint32[2]."""
        words = np.asarray([(self.recipe.seed or 0) % 2**32, step], np.uint32)
        return (words,) if factors_of(self.recipe, step=True).stochastic else ()

    @property
    def named(self) -> Mapping[str, Program]:
        return self._programs

    @property
    def computing(self) -> frozenset[str]:
        """As in every step: all of them."""
        return frozenset(self.named)

    @property
    def executions(self) -> Mapping[str, int]:
        return {name: int(name != "blank") for name in self.named}

    @property
    def memory(self) -> Memory:
        """As in every step: the compiler decides what of the whole parameters lies where, and when."""
        params = sum(4 * math.prod(self.layout.shapes[name]) for name in self.layout.param_names)
        moments = sum(4 * math.prod(self.layout.shapes[name]) for name in self.layout.moment_names)
        lying = {"gradient": 2 * params, "update": 3 * params + 2 * moments}
        return Memory(params + moments, params, 0, lying)

    def program(self) -> Mapping[str, str]:
        """Digests of the exact programs over whole tensors (``Program.digest``), the same on every platform; and, as
        ``... here``, sha256 of the StableHLO that this compiler was given for one device."""
        layout = Layout(self._example, optimizer(self.recipe), 1)
        update = update_of(self.recipe, layout)
        scalar = jax.ShapeDtypeStruct((), jnp.float32)
        slices = [_updated(self.recipe, layout, x) for x in (layout.params, layout.moments, layout.params)]
        blank = {} if self._blank is None else {"blank": self._blank.program.digest}
        return blank | {
            "gradient": self._gradient.program.digest,
            "gradient here": _lowered(self._gradient, layout.named, *_batch(self.recipe), **_named(self._key(0))),
            "update": update.program.digest,
            "update here": _lowered(update, *slices, scalar, scalar, scalar),
        }

    def foreign_products(self) -> list[str]:
        """Products that the processor could contract with a sum (:mod:`marin.plugins.exact.guarded`): none, or the compiler
        took a guard away. Products of whole numbers are the same everywhere."""
        return [line for one in self.named.values() for line in unguarded(one.as_text())]


def shares_of(parameters: Any, shared: int, experts: int = 1) -> list[P]:
    """How each parameter of a tree of named arrays lies while the gradient is computed: in shares over ``shared`` devices, by
    Levanter's own mapping of axes, its experts in shares over ``experts``, or whole on each of them.

    Raises:
        UsageError: an axis does not divide, or there are no experts.
    """
    names = [name for name, axis in DEFAULT_SHARED_MAPPING.items() if axis == TENSOR]
    named = jax.tree.leaves(parameters, is_leaf=lambda x: isinstance(x, hax.NamedArray))
    sizes = {axis.name: axis.size for x in named for axis in x.axes}
    check_shares("--tensor-parallel", "matrices", {name: sizes[name] for name in names if name in sizes}, shared)
    check_shares("--expert-parallel", "experts", {EXPERTS: sizes.get(EXPERTS, 1)}, experts)
    mapping = dict.fromkeys(names, TENSOR) if shared > 1 else {}

    def lying(axes: Sequence[hax.Axis]) -> P:
        own = [axis.name for axis in axes]
        matrices = experts > 1 and EXPERTS in own and INNER in own  # every device has the whole router
        return P(*(EXPERT if matrices and name == EXPERTS else mapping.get(name) for name in own))

    return [lying(x.axes) for x in named]


def _flat(x: jax.Array) -> jax.Array:
    return x.reshape(-1) if x.ndim else x


def _named(key: Sequence[Any]) -> dict[str, Any]:
    return {"key": key[0]} if key else {}


def _batch(recipe: Recipe) -> tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
    size, length = recipe.trainer.batch_size, recipe.model.seq_len
    numbers = jax.ShapeDtypeStruct((size, recipe.columns * length), jnp.float32)
    return jax.ShapeDtypeStruct((size, length), jnp.int32), numbers


def gradient_of(recipe: Recipe, layout: Layout, *, blank: bool = False) -> Exact:
    """(parameters, tokens, weights) -> gradient sums (whole tensors), their sum of squares, sums of loss and weight, and of a
    mixture of experts how many tokens each of them got. ``blank``: of a batch with blank positions."""

    def gradient(arrays: Arrays, tokens: jax.Array, weights: jax.Array) -> Any:
        grads, loss, weight, loads = sums_and_loads(layout.static, recipe, arrays, tokens, weights, blank=blank)
        leaves = tuple(jax.tree.leaves(without_axis_names(grads)))
        return leaves, slice_square(leaves), loss, weight, loads

    return exact(gradient, layout.named, *_batch(recipe), factors=factors_of(recipe, step=True))


def update_of(recipe: Recipe, layout: Layout) -> Exact:
    """(parameters, moments, gradient, square, loss, weight) -> the same tensors after the step, mean loss, gradient norm: of
    one slice each, or of whole tensors where the optimizer looks across them."""
    scalar = jax.ShapeDtypeStruct((), jnp.float32)
    after = slice_after if recipe.optimizer.elementwise else whole_after
    params, moments = _updated(recipe, layout, layout.params), _updated(recipe, layout, layout.moments)
    return exact(partial(after, recipe, layout), params, moments, params, scalar, scalar, scalar)


def programs_of(recipe: Recipe, vocab_size: int) -> dict[str, ExactProgram]:
    """What a run under ``recipe`` executes, by the names that it records; nothing is compiled."""
    layout = Layout(state_like(recipe, vocab_size), optimizer(recipe), 1)
    return {
        "gradient": gradient_of(recipe, layout).program,
        "update": update_of(recipe, layout).program,
        "initial": cast("ExactProgram", exact_initializer(recipe, vocab_size).program),  # the profile is this one
    }


def _updated(recipe: Recipe, layout: Layout, tensors: Leaves) -> list[jax.ShapeDtypeStruct]:
    """What of these tensors an update is given at once: parameters, or moments."""
    if not recipe.optimizer.elementwise:
        return list(tensors)
    names = layout.moment_names if tensors is layout.moments else layout.param_names
    sizes = [layout.shapes[name] and (math.prod(layout.shapes[name]),) for name in names]
    return [jax.ShapeDtypeStruct(size, x.dtype) for size, x in zip(sizes, tensors, strict=True)]


def _lowered(function: Exact, *examples: Any, **key: Any) -> str:
    with jax.enable_x64(True):
        text = jax.jit(function.__call__).lower(MINUS_ZERO, *examples, **key).as_text()
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def whole_after(
    recipe: Recipe,
    layout: Layout,
    params: Leaves,
    moments: Leaves,
    grads: Leaves,
    square: jax.Array,
    loss: jax.Array,
    weight: jax.Array,
) -> tuple[list[jax.Array], jax.Array, jax.Array]:
    """:func:`slice_after` of whole tensors, for an optimizer that looks across them: it gets the batch's mean gradient by
    the model's names and axes, and clips it by itself."""
    mean_loss = loss / weight
    norm = jnp.sqrt(square) / weight
    finite = jnp.isfinite(mean_loss) & jnp.isfinite(norm)
    share = 1.0 / weight
    named = jax.tree.structure(layout.named)
    tree, mean = (jax.tree.unflatten(named, arrays) for arrays in (params, [g * share for g in grads]))
    updates, after = optimizer(recipe).update(mean, jax.tree.unflatten(layout.moments_named, moments), tree)
    changed = [*(p + u for p, u in zip(params, jax.tree.leaves(updates), strict=True)), *jax.tree.leaves(after)]
    kept = [jnp.where(finite, new, old) for new, old in zip(changed, [*params, *moments], strict=True)]
    return kept, mean_loss, norm
