"""The initial state, run by run of its tensors: no process ever makes more of it than its devices hold and a run beside it.

A run is elements of a tensor that follow each other in C order. What an initializer does is drawn here from its own
definition: Levanter's, traced. Every number of a tensor is a function of its place and of a key alone (threefry in its
partitionable form; after that, functions of one number), so a run is computed from the places of its elements. One program
makes the slices of all small tensors, and for each large tensor one makes a run; it is told where the run begins. They are
compiled for one processor of the host, whatever trains, and are the same for every number of devices.

Under profile ``exact`` the state is made as a whole, by the exact program.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from haliax.jax_utils import is_jax_array_like
from jax.extend.core import ClosedJaxpr, Literal
from jax.extend.random import threefry2x32_p
from jax.sharding import NamedSharding

from ledger import SlicedForm
from marin.errors import UsageError
from marin.recipe.schema import Recipe, digest
from marin.training.runtime.profile import Fixed, exact_profile
from marin.training.state import TrainState, initial_state_function, leaves, state_shape
from marin.training.step.slices import Layout, SlicedState

QUICKLY = {"xla_backend_optimization_level": 1}
"""How the exact program of the initial state is compiled: it is executed once, takes half the time to compile so, and has
the same bits however it is compiled."""
RUN = 1 << 20
"""Elements of a tensor that are made at a time, at most; what they are computed from takes several times their memory."""
SMALL = 65_536
"""What an initializer computes of so few numbers (keys, bounds) is computed as a whole, wherever it is needed."""


def initial_state(recipe: Recipe, vocab_size: int, form: SlicedForm | None = None) -> TrainState:
    """The whole state before the first step, on one device; its dtypes are those that :class:`TrainState` says. ``form``: of
    which the programs are that make it, where the process has those of one; its numbers are the same."""
    shape = state_shape(recipe, vocab_size)
    rest = eqx.filter(shape, is_jax_array_like, inverse=True)
    if recipe.arithmetic.profile == "exact":
        state: TrainState = eqx.combine(exact_initializer(recipe, vocab_size).jitted(compiler_options=QUICKLY)(), rest)
        return state
    drawn = _drawn(recipe, vocab_size, form or SlicedForm(1))
    values = [jax.device_put(drawn.whole(name).reshape(like.shape)) for name, like in leaves(shape)]
    drawn.forget()
    arrays = jax.tree.unflatten(jax.tree.structure(eqx.filter(shape, is_jax_array_like)), values)
    begun: TrainState = eqx.combine(arrays, rest)
    return begun


def initial_slices(recipe: Recipe, vocab_size: int, layout: Layout, sharding: NamedSharding) -> SlicedState:
    """The state before the first step on the mesh of ``sharding``, cut as ``layout`` says."""
    if recipe.arithmetic.profile == "exact":
        return layout.cut(initial_state(recipe, vocab_size), sharding)
    drawn = _drawn(recipe, vocab_size, layout.form)
    first = layout.place(drawn.fill, sharding)
    drawn.forget()
    return first


def initial_program(recipe: Recipe, vocab_size: int, form: SlicedForm) -> str:
    """Digest of what makes the initial state: sha256 of the StableHLO of its programs, or the digest of the exact program."""
    if recipe.arithmetic.profile == "exact":
        return exact_initializer(recipe, vocab_size).program.digest
    return _drawn(recipe, vocab_size, form).digest


def exact_initializer(recipe: Recipe, vocab_size: int) -> Fixed:
    """What makes the initial state under profile ``exact``: of nothing, its tensors in the order of :func:`leaves`."""
    return exact_profile().fixed(lambda: eqx.filter(initial_state_function(recipe, vocab_size)(), is_jax_array_like))


_newest: dict[tuple[str, int, str, int], _Drawn] = {}


def _drawn(recipe: Recipe, vocab_size: int, form: SlicedForm) -> _Drawn:
    """The newest one is kept: it is traced once to make a state, and to name the programs that made it."""
    key = (digest(recipe), vocab_size, repr(form), RUN)
    found = _newest.get(key)
    if found is None:
        found = _Drawn(recipe, vocab_size, form)
        _newest.clear()
        _newest[key] = found
    return found


class _Drawn:
    """One recipe's initial state, of which any elements can be had. ``form``: how tensors are cut into slices; one with leads
    (a stack of layers) is cut within each of them. Small is a tensor of which a slice has no more than ``RUN`` elements."""

    def __init__(self, recipe: Recipe, vocab_size: int, form: SlicedForm) -> None:
        closed = jax.make_jaxpr(lambda: eqx.filter(initial_state_function(recipe, vocab_size)(), is_jax_array_like))()
        named = zip(leaves(state_shape(recipe, vocab_size)), closed.jaxpr.outvars, strict=True)
        small: list[_Tensor] = []
        large: list[_Tensor] = []
        for (name, like), out in named:
            lead, n = form.rows(name, like.shape)
            width = max(1, -(-n // form.slices))
            fits = lead * width <= RUN
            tensor = _Tensor(name, out, n, lead if fits else 1, min(width, RUN))
            (small if fits else large).append(tensor)
        self._parts = [_Part(closed, tensors) for tensors in ([small] if small else []) + [[one] for one in large]]
        self._homes = {tensor.name: (part, tensor) for part in self._parts for tensor in part.tensors}

    def whole(self, name: str) -> np.ndarray:
        """All elements of a tensor by its path, as a flat array of its dtype."""
        _, tensor = self._homes[name]
        found = np.empty(math.prod(tensor.out.aval.shape), tensor.out.aval.dtype)
        self.fill(name, 0, found)
        return found

    def fill(self, name: str, start: int, into: np.ndarray) -> None:
        """Put elements of a tensor, by its path and from ``start`` on in C order, into all of a flat array of its dtype."""
        part, tensor = self._homes[name]
        at, stop = start, start + len(into)
        while at < stop:
            row, column = divmod(at, tensor.row)
            number, first = divmod(column, tensor.size)  # the piece, and from where in it
            among = row if tensor.lead > 1 else 0  # the rows that a program makes together
            here = part.made(row - among, number)[name][
                among, first : min(tensor.size, tensor.row - number * tensor.size)
            ]
            taken = here[: stop - at]
            into[at - start : at - start + len(taken)] = taken
            at += len(taken)

    def forget(self) -> None:
        """Let go of what the programs made last."""
        for part in self._parts:
            part.forget()

    @property
    def digest(self) -> str:
        """sha256 over the StableHLO of the programs."""
        text = "".join(part.lowered.as_text() for part in self._parts)
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class _Tensor:
    """A tensor that is made piece by piece. It lies as rows of ``row`` elements, one for each lead; a piece is ``size`` elements
    of a row, or of all rows together: ``lead`` is the number of rows in a piece. ``out``: its variable in the initializer."""

    name: str
    out: Any
    row: int
    lead: int
    size: int

    def place(self, row: int, number: int) -> tuple[int, int]:
        """Where piece ``number`` of a row begins: the coordinate on the tensor's first axis, and how many elements from there."""
        return divmod(row * self.row + number * self.size, _row(self.out.aval.shape))

    def elements(self, value: Value, place: jax.Array) -> jax.Array:
        """[lead, size]: a piece of ``value``, which begins at ``place`` (uint32[2], of :meth:`place`); where it goes beyond the
        tensor's end, numbers that nobody reads."""
        size, row = (self.lead, self.size), np.uint32(_row(value.shape))
        at = place[1] + jax.lax.broadcasted_iota(jnp.uint32, size, 1)
        first = place[0] + jax.lax.broadcasted_iota(jnp.uint32, size, 0) + at // row
        coordinates = [first, *_unraveled(at % row, value.shape[1:])]
        return jnp.broadcast_to(value.at(coordinates[: len(value.shape)]), size)


class _Part:
    """The program of some tensors. What it made last is kept: it is asked for tensor by tensor."""

    def __init__(self, initializer: ClosedJaxpr, tensors: Sequence[_Tensor]) -> None:
        self._initializer = initializer
        self.tensors = tensors
        self._last: tuple[tuple[int, int], dict[str, np.ndarray]] = ((-1, -1), {})

    def forget(self) -> None:
        """Let go of what it made last."""
        self._last = ((-1, -1), {})

    def made(self, row: int, number: int) -> dict[str, np.ndarray]:
        """Piece ``number`` of a row (or of all rows, and ``row`` is 0) of each tensor: [lead, size] by path."""
        if self._last[0] != (row, number):
            places = np.array([tensor.place(row, number) for tensor in self.tensors], np.uint32)
            values = self._compiled(places)
            names = (tensor.name for tensor in self.tensors)
            self._last = (row, number), {name: np.asarray(one) for name, one in zip(names, values, strict=True)}
        return self._last[1]

    @cached_property
    def lowered(self) -> jax.stages.Lowered:
        """The program, for the host's processor."""

        def program(places: jax.Array) -> list[jax.Array]:
            constants = [Constant(jnp.asarray(value)) for value in self._initializer.consts]
            scope = Scope(self._initializer.jaxpr, constants)
            return [one.elements(scope.value(one.out), place) for one, place in zip(self.tensors, places, strict=True)]

        with jax.default_device(jax.local_devices(backend="cpu")[0]):
            return jax.jit(program).lower(jax.ShapeDtypeStruct((len(self.tensors), 2), jnp.uint32))

    @cached_property
    def _compiled(self) -> Any:
        return self.lowered.compile()


def _row(shape: Sequence[int]) -> int:
    return max(1, math.prod(shape[1:]))


def _unraveled(flat: jax.Array, shape: Sequence[int]) -> list[jax.Array]:
    """Coordinates of the elements at these places of an array in C order."""
    found = []
    for extent in reversed(shape):
        found.append(flat % np.uint32(max(1, extent)))
        flat = flat // np.uint32(max(1, extent))
    return found[::-1]


def _raveled(coordinates: Sequence[jax.Array], shape: Sequence[int]) -> jax.Array:
    flat: Any = jnp.zeros((), jnp.uint32)
    for coordinate, extent in zip(coordinates, shape, strict=True):
        flat = flat * np.uint32(extent) + coordinate
    return flat


# An initializer's jaxpr, asked for single elements. A value knows its numbers at any coordinates (one uint32 array for each of
# its axes), from those of the values that it is made of.


class Value:
    """A value of a jaxpr."""

    shape: tuple[int, ...]

    def at(self, coordinates: Sequence[jax.Array]) -> jax.Array:
        """Its elements there."""
        raise NotImplementedError

    def whole(self) -> jax.Array:
        """All of it; of small ones only."""
        raise NotImplementedError


@dataclass(frozen=True)
class Constant(Value):
    """One whose numbers are there."""

    array: jax.Array

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return tuple(self.array.shape)

    def at(self, coordinates: Sequence[jax.Array]) -> jax.Array:
        return self.array[tuple(coordinates)] if self.shape else self.array

    def whole(self) -> jax.Array:
        return self.array


class Scope:
    """The values of a jaxpr for given inputs, each made when it is asked for."""

    def __init__(self, jaxpr: Any, given: Sequence[Value]) -> None:
        self._values: dict[Any, Value] = dict(zip([*jaxpr.constvars, *jaxpr.invars], given, strict=True))
        self._makers = {
            out: (equation, number) for equation in jaxpr.eqns for number, out in enumerate(equation.outvars)
        }

    def value(self, variable: Any) -> Value:
        """The value of a variable, or of a literal."""
        if isinstance(variable, Literal):
            return Constant(jnp.asarray(variable.val, variable.aval.dtype))
        if variable not in self._values:
            equation, number = self._makers[variable]
            self._values[variable] = self._inner(equation, number) or _Computed(equation, number, self)
        return self._values[variable]

    def _inner(self, equation: Any, number: int) -> Value | None:
        """The value of a function's own jaxpr, where an equation calls one."""
        inner = next((equation.params[name] for name in ("jaxpr", "call_jaxpr") if name in equation.params), None)
        if inner is None:
            return None
        closed = getattr(inner, "jaxpr", inner)
        constants = [Constant(jnp.asarray(value)) for value in getattr(inner, "consts", ())]
        scope = Scope(closed, [*constants, *(self.value(one) for one in equation.invars)])
        return scope.value(closed.outvars[number])


@dataclass(frozen=True)
class _Computed(Value):
    """What an equation gives. Where it is not known how one element depends on others, all of it is computed, if it is
    small."""

    equation: Any
    number: int
    scope: Scope

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return tuple(self.equation.outvars[self.number].aval.shape)

    @cached_property
    def _inputs(self) -> list[Value]:
        return [self.scope.value(one) for one in self.equation.invars]

    def whole(self) -> jax.Array:
        if math.prod(self.shape) > SMALL:
            raise NotImplementedError(f"{self.equation.primitive} of {list(self.shape)} in an initializer")
        found = self.equation.primitive.bind(*(one.whole() for one in self._inputs), **self.equation.params)
        return found[self.number] if self.equation.primitive.multiple_results else found

    def at(self, coordinates: Sequence[jax.Array]) -> jax.Array:
        name, params = self.equation.primitive.name, self.equation.params
        if name in _MOVES:
            (value,) = self._inputs
            return value.at(_MOVES[name](coordinates, self.shape, value.shape, params))
        if name == "random_bits" and params["bit_width"] == 32:
            return self._bits(coordinates)
        if all(_spread(one.shape, self.shape) for one in self._inputs) and name not in _WHOLE:
            found = [one.at(_within(coordinates, one.shape)) for one in self._inputs]
            size = jnp.broadcast_shapes(*(value.shape for value in found))
            same = [jnp.broadcast_to(value, size) for value in found]
            return self.equation.primitive.bind(*same, **params)
        array = self.whole()
        return array[tuple(coordinates)] if self.shape else array

    def _bits(self, coordinates: Sequence[jax.Array]) -> jax.Array:
        """Words of threefry2x32 in its partitionable form: of key and place alone (``jax._src.prng.threefry_random_bits``)."""
        (keys,) = self._inputs
        words = jax.random.key_data(keys.whole())
        own = len(keys.shape)
        if math.prod(self.shape[own:]) > 2**32:
            raise UsageError(
                "a tensor of the model is too large to be drawn by one key",
                where="the initial state",
                expected=f"at most {2**32} numbers, for their places are counted in 32 bits",
                found=str(list(self.shape[own:])),
                cure="make the model narrower, or its vocabulary smaller",
            )
        place = _raveled(coordinates[own:], self.shape[own:])
        first, second = (words[(*coordinates[:own], number)] for number in (0, 1))
        size = jnp.broadcast_shapes(place.shape, first.shape)
        high, low = threefry2x32_p.bind(*(jnp.broadcast_to(x, size) for x in (first, second, jnp.uint32(0), place)))
        return high ^ low


def _spread(shape: tuple[int, ...], over: tuple[int, ...]) -> bool:
    """Whether an element of an operation's result depends on one element of an operand, that of its own place."""
    return not shape or (
        len(shape) == len(over) and all(one in (1, other) for one, other in zip(shape, over, strict=True))
    )


def _within(coordinates: Sequence[jax.Array], shape: tuple[int, ...]) -> list[jax.Array]:
    return [
        jnp.zeros((), jnp.uint32) if extent == 1 else one for one, extent in zip(coordinates, shape, strict=bool(shape))
    ]


def _broadcast(coordinates: Any, shape: Any, operand: Any, params: Mapping[str, Any]) -> list[Any]:
    dimensions = params["broadcast_dimensions"]
    return [
        coordinates[dimension] if extent == shape[dimension] else jnp.zeros((), jnp.uint32)
        for dimension, extent in zip(dimensions, operand, strict=True)
    ]


def _reshaped(coordinates: Any, shape: Any, operand: Any, params: Mapping[str, Any]) -> list[Any]:
    return _unraveled(_raveled(coordinates, shape), operand)


def _transposed(coordinates: Any, shape: Any, operand: Any, params: Mapping[str, Any]) -> list[Any]:
    found = [coordinates[0]] * len(operand)
    for axis, source in enumerate(params["permutation"]):
        found[source] = coordinates[axis]
    return found


def _same(coordinates: Any, shape: Any, operand: Any, params: Mapping[str, Any]) -> Any:
    return coordinates


_MOVES: Mapping[str, Callable[[Any, Any, Any, Mapping[str, Any]], Any]] = {
    "broadcast_in_dim": _broadcast,
    "reshape": _reshaped,
    "squeeze": _reshaped,
    "expand_dims": _reshaped,
    "transpose": _transposed,
    "stop_gradient": _same,
    "copy": _same,
}
"""What moves numbers and does not change them: where an element comes from."""
_WHOLE = frozenset(
    {"random_seed", "random_wrap", "random_unwrap", "random_split", "random_fold_in", "iota", "cumsum", "rev", "sort"}
)
"""Whose elements depend on others, or on their place, though shapes are the same."""
