"""A program as a jax function: traced, sharded and compiled like any other, and with the same bits wherever that is.

The function's first argument is -0.0 (:mod:`marin.plugins.exact.guarded`). It has to be traced where 64-bit types are allowed;
:func:`exact` sees to that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.random import threefry2x32_p

from marin.plugins.exact import functions, integers
from marin.plugins.exact.guarded import MINUS_ZERO, Guarded
from marin.plugins.exact.integers import Products
from marin.plugins.exact.program import BOOL, FLOAT, INT, LEAST, NEAREST, UINT, Factors, Operation, Program
from marin.plugins.exact.reading import read
from marin.training.runtime import threefry

F, W, U = np.float32, np.int32, np.uint32
NAN = np.float32(np.nan)
Array = Any


class Placement:
    """Where the arrays of a ``scan`` are on a mesh, which decides no bit; here, where the compiler likes. Each method takes an
    array and gives the same numbers. ``shape``: of all rows together."""

    def rows(self, x: Array) -> Array:
        """What the loop takes, all rows."""
        return x

    def row(self, x: Array, shape: tuple[int, ...]) -> Array:
        """One row of it, in the loop's body."""
        return x

    def result(self, x: Array, shape: tuple[int, ...]) -> Array:
        """One row of a result, in the loop's body."""
        return x

    def carry(self, x: Array) -> Array:
        """What one turn leaves to the next."""
        return x


ANYWHERE = Placement()


@dataclass(frozen=True)
class Exact:
    """A jax function made exact for arguments of one shape. ``program``: what it computes; ``shape``: its result as a
    tree of ``ShapeDtypeStruct``; ``products``: the way its contractions are multiplied, which decides no bit."""

    program: Program
    shape: Any
    products: Products = "chosen"

    def __call__(self, z: Array, *arguments: Any, key: Array | None = None, placement: Placement = ANYWHERE) -> Any:
        """To be traced: with ``z`` = -0.0 as an argument of the traced function, never as a constant. ``key`` and ``placement``:
        as :func:`run` has them."""
        with jax.enable_x64(True):
            outputs = run(self.program, z, jax.tree.leaves(arguments), self.products, key, placement)
        return jax.tree.unflatten(jax.tree.structure(self.shape), outputs)

    def jitted(self, **options: Any) -> Callable[..., Any]:
        """The function compiled at its first call, without ``z``; ``options`` are those of ``jax.jit`` (arguments are
        counted from ``z``)."""
        compiled = jax.jit(self.__call__, **options)

        def call(*arguments: Any) -> Any:
            with jax.enable_x64(True):
                return compiled(MINUS_ZERO, *arguments)

        return call


def exact(
    function: Callable[..., Any], *examples: Any, products: Products = "chosen", factors: Factors = NEAREST
) -> Exact:
    """``function`` with every rounding fixed, for arguments shaped like ``examples`` (arrays or ``ShapeDtypeStruct``, float32,
    int32, uint32 or bool). ``products``: the way its contractions are multiplied, which decides no bit; ``factors``: how
    their factors are rounded, which is part of the program.

    Raises:
        UsageError: an operation has no exact form; the error names it.
    """
    program, shape = read(function, *examples, factors=factors)
    return Exact(program, shape, products)


def run(
    program: Program,
    z: Array,
    inputs: Sequence[Array],
    products: Products = "chosen",
    key: Array | None = None,
    placement: Placement = ANYWHERE,
) -> list[Array]:
    """Trace a whole program: numbers that come in obey the rule for small ones, a NaN that goes out has jax's bits
    (0x7fc00000). ``inputs`` and what is returned are as the program's forms say.

    ``key``: uint32[2], seed and train step, of the random bits where factors are rounded stochastically.
    ``placement``: how the arrays of a ``scan`` lie on a mesh; a program says nothing of that.
    """
    to = Guarded(z)
    given = [
        to.rule(jnp.asarray(x, F)) if form.dtype == FLOAT else x
        for form, x in zip(program.of(program.inputs), inputs, strict=True)
    ]
    found = _body(_Tracing(to, products, key, placement), program, given)
    return [
        jnp.where(x != x, NAN, x) if form.dtype == FLOAT else x
        for form, x in zip(program.of(program.outputs), found, strict=True)
    ]


@dataclass(frozen=True)
class _Tracing:
    to: Guarded
    products: Products
    key: Array | None
    placement: Placement


def _body(tracing: _Tracing, program: Program, inputs: Sequence[Array]) -> list[Array]:
    known: dict[int, Array] = dict(zip(program.inputs, inputs, strict=True))
    for number, value in program.constants:
        small = value.dtype == np.float32
        known[number] = jnp.asarray(np.where(np.abs(value) < LEAST, np.float32(0), value) if small else value)
    for one in program.operations:
        values = [known[number] for number in one.inputs]
        if one.bodies:
            outputs = _LOOPS[one.name](tracing, one, values)
        else:
            outputs = [_OPERATIONS[one.name](tracing, program, one, values)]
        known |= dict(zip(one.outputs, outputs, strict=True))
    return [known[number] for number in program.outputs]


def _scan(tracing: _Tracing, one: Operation, values: list[Array]) -> list[Array]:
    consts, carried, placement = _int(one, "constants"), _int(one, "carried"), tracing.placement
    through, (body,) = values[consts + carried :], one.bodies
    length = _int(one, "length")
    results = [(length, *form.shape) for form in body.of(body.outputs)[carried:]]

    def step(carry: Sequence[Array], rows: Sequence[Array]) -> tuple[list[Array], list[Array]]:
        own = [placement.row(row, x.shape) for row, x in zip(rows, through, strict=True)]
        found = _body(tracing, body, [*values[:consts], *carry, *own])
        made = [placement.result(x, shape) for x, shape in zip(found[carried:], results, strict=True)]
        return [placement.carry(x) for x in found[:carried]], made

    last, stacked = lax.scan(
        step,
        [placement.carry(x) for x in values[consts : consts + carried]],
        [placement.rows(x) for x in through],
        length=length,
        reverse=bool(one.settings["reverse"]),
    )
    return [*last, *stacked]


def _while(tracing: _Tracing, one: Operation, values: list[Array]) -> list[Array]:
    asked, done = _int(one, "asked"), _int(one, "done")
    question, body = one.bodies
    last: list[Array] = lax.while_loop(
        lambda carry: _body(tracing, question, [*values[:asked], *carry])[0],
        lambda carry: _body(tracing, body, [*values[asked : asked + done], *carry]),
        values[asked + done :],
    )
    return last


def _cond(tracing: _Tracing, one: Operation, values: list[Array]) -> list[Array]:
    branches = [lambda *given, body=body: _body(tracing, body, given) for body in one.bodies]
    index = values[0].astype(W)
    found: list[Array] = lax.switch(index, branches, *values[1:])
    return found


_LOOPS: dict[str, Callable[[_Tracing, Operation, list[Array]], list[Array]]] = {
    "scan": _scan,
    "while": _while,
    "cond": _cond,
}


def _int(one: Operation, name: str) -> int:
    value = one.settings[name]
    assert isinstance(value, int)
    return value


def _ints(one: Operation, name: str) -> tuple[int, ...]:
    value: Any = one.settings[name]
    return tuple(value)


type Rule = Callable[[_Tracing, Program, Operation, list[Array]], Array]


def _plain(function: Callable[..., Array]) -> Rule:
    """An operation of its inputs alone that rounds nothing."""
    return lambda tracing, program, one, values: function(*values)


def _rounded(name: str, whole: Callable[..., Array]) -> Rule:
    """One rounding of float32; of whole numbers, ``whole``."""

    def rule(tracing: _Tracing, program: Program, one: Operation, values: list[Array]) -> Array:
        if values[0].dtype != F:
            return whole(*values)
        return getattr(tracing.to, name)(*values)

    return rule


def _ruled(function: Callable[..., Array]) -> Rule:
    """Exact, but for the sign of zero and small numbers."""

    def rule(tracing: _Tracing, program: Program, one: Operation, values: list[Array]) -> Array:
        found = function(*values)
        return tracing.to.rule(found) if found.dtype == F else found

    return rule


def _function(name: str) -> Rule:
    function = functions.NAMED[name]
    return lambda tracing, program, one, values: function(tracing.to, *values)


def _moved(function: Callable[[Operation, tuple[int, ...], list[Array]], Array]) -> Rule:
    """An operation that moves: of its settings, its result's shape and its inputs."""
    return lambda tracing, program, one, values: function(one, program.forms[one.outputs[0]].shape, values)


def _sum(tracing: _Tracing, program: Program, one: Operation, values: list[Array]) -> Array:
    (x,), axes = values, _ints(one, "axes")
    return integers.total(tracing.to, x, axes) if x.dtype == F else jnp.sum(x, axis=axes, dtype=x.dtype)


def _over(function: Callable[..., Array]) -> Rule:
    """A reduction without rounding."""
    return lambda tracing, program, one, values: function(values[0], axis=_ints(one, "axes"))


def _farthest(function: Callable[..., Array]) -> Callable[..., Array]:
    """A maximum or minimum. A NaN is asked for by itself: of parts that lie on several devices XLA leaves it out."""

    def farthest(x: Array, axis: tuple[int, ...]) -> Array:
        found = function(x, axis=axis)
        return jnp.where(jnp.any(x != x, axis=axis), NAN, found) if x.dtype == F else found

    return farthest


def _convert(tracing: _Tracing, program: Program, one: Operation, values: list[Array]) -> Array:
    """To whole numbers: towards zero, held inside the range, NaN as 0."""
    (x,), to = values, program.forms[one.outputs[0]].dtype
    if to == BOOL:
        return x != np.zeros((), x.dtype)
    if x.dtype == F and to in (INT, UINT):
        low, high = (-(2.0**31), 2.0**31) if to == INT else (0.0, 2.0**32)
        kind = np.dtype(to)
        inside = jnp.where((x > F(low)) & (x < F(high)), x, F(0)).astype(kind)
        inside = jnp.where(x >= F(high), np.array(np.iinfo(kind).max, kind), inside)
        return jnp.where(x <= F(low), np.array(np.iinfo(kind).min, kind), inside)
    return x.astype(to)


def _bitcast(tracing: _Tracing, program: Program, one: Operation, values: list[Array]) -> Array:
    (x,), to = values, np.dtype(program.forms[one.outputs[0]].dtype)
    if x.dtype == F:
        x = jnp.where(x != x, NAN, x)
    found = lax.bitcast_convert_type(x, to)
    return tracing.to.rule(found) if to == np.float32 else found


def _dot(tracing: _Tracing, program: Program, one: Operation, values: list[Array]) -> Array:
    summed: Any = one.settings["summed"]
    batch: Any = one.settings["batch"]
    factors = Factors.of(one.settings)
    numbers = (tuple(map(tuple, summed)), tuple(map(tuple, batch)))
    words = [_noise(tracing, x, side) for side, x in enumerate(values)] if factors.stochastic else [None, None]
    return integers.contraction(tracing.to, values[0], values[1], numbers, tracing.products, factors.bits, words)


def _noise(tracing: _Tracing, x: Array, side: int) -> Array:
    """One random word for each element: of the step's key, the element's position and side, and its bits."""
    assert tracing.key is not None, "factors are rounded by random bits, and there is no key"
    place = threefry.places(lax.iota(U, x.size).reshape(x.shape), side)
    first, second = (jnp.broadcast_to(tracing.key[word], x.shape) for word in range(2))
    return threefry2x32_p.bind(first, second, place, lax.bitcast_convert_type(x, U))[0]


def _gather(tracing: _Tracing, program: Program, one: Operation, values: list[Array]) -> Array:
    operand, index = values
    fill = None
    if one.settings["fill"] is not None:
        word = np.asarray([_int(one, "fill")], np.uint32)
        fill = word.astype(bool)[0] if operand.dtype == bool else word.view(operand.dtype)[0]
    numbers = lax.GatherDimensionNumbers(
        offset_dims=_ints(one, "window"),
        collapsed_slice_dims=_ints(one, "dropped"),
        start_index_map=_ints(one, "indexed"),
        operand_batching_dims=_ints(one, "batch"),
        start_indices_batching_dims=_ints(one, "index_batch"),
    )
    return lax.gather(operand, index, numbers, _ints(one, "sizes"), mode=one.settings["mode"], fill_value=fill)


def _scatter_numbers(one: Operation) -> lax.ScatterDimensionNumbers:
    return lax.ScatterDimensionNumbers(
        update_window_dims=_ints(one, "window"),
        inserted_window_dims=_ints(one, "dropped"),
        scatter_dims_to_operand_dims=_ints(one, "indexed"),
        operand_batching_dims=_ints(one, "batch"),
        scatter_indices_batching_dims=_ints(one, "index_batch"),
    )


def _scatter(tracing: _Tracing, program: Program, one: Operation, values: list[Array]) -> Array:
    operand, index, updates = values
    return lax.scatter(operand, index, updates, _scatter_numbers(one), mode=one.settings["mode"], unique_indices=True)


def _scatter_add(tracing: _Tracing, program: Program, one: Operation, values: list[Array]) -> Array:
    operand, index, updates = values
    add = partial(lax.scatter_add, dimension_numbers=_scatter_numbers(one), mode=one.settings["mode"])
    if operand.dtype != F:
        return add(operand, index, updates)
    count = max(1, int(np.prod(index.shape[:-1], dtype=np.int64)))
    return integers.scattered(tracing.to, operand, updates, count, lambda zeros, whole: add(zeros, index, whole))


def _seed(tracing: _Tracing, program: Program, one: Operation, values: list[Array]) -> Array:
    number = values[0].astype(U)
    return jnp.stack([jnp.zeros_like(number), number], axis=-1)


def _fold(tracing: _Tracing, program: Program, one: Operation, values: list[Array]) -> Array:
    return jnp.stack(threefry.fold_in(values[0], values[1].astype(U), threefry2x32_p.bind), axis=-1)


def _draw_keys(tracing: _Tracing, program: Program, one: Operation, values: list[Array]) -> Array:
    return jnp.stack(threefry.random_words(values[0], _ints(one, "shape"), threefry2x32_p.bind), axis=-1)


def _draw(tracing: _Tracing, program: Program, one: Operation, values: list[Array]) -> Array:
    high, low = threefry.random_words(values[0], _ints(one, "shape"), threefry2x32_p.bind)
    return high ^ low


def _slice(one: Operation, shape: tuple[int, ...], values: list[Array]) -> Array:
    return lax.slice(values[0], _ints(one, "start"), _ints(one, "end"), _ints(one, "step"))


def _pad(one: Operation, shape: tuple[int, ...], values: list[Array]) -> Array:
    padding: Any = one.settings["padding"]
    return lax.pad(values[0], values[1], [tuple(each) for each in padding])


_OPERATIONS: Mapping[str, Rule] = {
    **{name: _function(name) for name in functions.NAMED},
    "add": _rounded("add", jnp.add),
    "sub": _rounded("sub", jnp.subtract),
    "mul": _rounded("mul", jnp.multiply),
    "sqrt": lambda tracing, program, one, values: tracing.to.sqrt(*values),
    "round": _ruled(lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)),
    "floor": _ruled(lax.floor),
    "ceil": _ruled(lax.ceil),
    "neg": _ruled(lax.neg),
    "abs": _plain(lax.abs),
    "sign": _ruled(lax.sign),
    "max": _plain(lax.max),
    "min": _plain(lax.min),
    "is_finite": _plain(lax.is_finite),
    **{name: _plain(getattr(lax, name)) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "rem": _plain(lax.rem),
    "and": _plain(lax.bitwise_and),
    "or": _plain(lax.bitwise_or),
    "xor": _plain(lax.bitwise_xor),
    "not": _plain(lax.bitwise_not),
    **{name: _plain(getattr(lax, name)) for name in ("shift_left", "shift_right_logical", "shift_right_arithmetic")},
    "select": _plain(lambda condition, no, yes: jnp.where(condition, yes, no)),
    "convert": _convert,
    "bitcast": _bitcast,
    "broadcast": _moved(lambda one, shape, values: lax.broadcast_in_dim(values[0], shape, _ints(one, "axes"))),
    "reshape": _moved(lambda one, shape, values: lax.reshape(values[0], shape)),
    "transpose": _moved(lambda one, shape, values: lax.transpose(values[0], _ints(one, "axes"))),
    "concatenate": _moved(lambda one, shape, values: lax.concatenate(values, _int(one, "axis"))),
    "slice": _moved(_slice),
    "dynamic_slice": _moved(
        lambda one, shape, values: lax.dynamic_slice(values[0], values[1:], shape, allow_negative_indices=False)
    ),
    "dynamic_update_slice": _plain(
        lambda x, update, *start: lax.dynamic_update_slice(x, update, start, allow_negative_indices=False)
    ),
    "pad": _moved(_pad),
    "iota": lambda tracing, program, one, values: lax.broadcasted_iota(
        np.dtype(program.forms[one.outputs[0]].dtype), program.forms[one.outputs[0]].shape, _int(one, "axis")
    ),
    "rev": _moved(lambda one, shape, values: lax.rev(values[0], _ints(one, "axes"))),
    "cumsum": _moved(
        lambda one, shape, values: lax.cumsum(values[0], _int(one, "axis"), reverse=bool(one.settings["reverse"]))
    ),
    "argmax": lambda tracing, program, one, values: lax.argmax(
        values[0], _int(one, "axis"), np.dtype(program.forms[one.outputs[0]].dtype)
    ),
    "sum": _sum,
    "maximum": _over(_farthest(jnp.max)),
    "minimum": _over(_farthest(jnp.min)),
    "all": _over(jnp.all),
    "any": _over(jnp.any),
    "dot": _dot,
    "gather": _gather,
    "scatter": _scatter,
    "scatter_add": _scatter_add,
    "seed": _seed,
    "fold": _fold,
    "draw_keys": _draw_keys,
    "draw": _draw,
}
OPERATIONS = frozenset(_OPERATIONS) | frozenset(_LOOPS)
"""Every operation that a program may have; docs/exact.md defines each."""
