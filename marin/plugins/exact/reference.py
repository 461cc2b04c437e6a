"""A program executed in NumPy and whole numbers, slow and obvious: what compiled programs are judged by.

No compiler and no jax: float32 operations of NumPy are single ones of the processor, each of which IEEE 754 fixes, and
sums and contractions are sums of int64. Anyone who trusts neither reads docs/exact.md and writes a third.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from marin.plugins.exact import functions
from marin.plugins.exact.program import BOOL, FLOAT, INT, LEAST, UINT, Factors, Operation, Program
from marin.training.runtime import threefry

F, W = np.float32, np.int32
type Values = list[np.ndarray]
type Settings = Mapping[str, Any]
"""Of a gather or a scatter, as XLA's manual defines it: ``window`` (axes of the result that run over a window), ``dropped`` (axes
of the operand that a window has size one in), ``indexed`` (axes of the operand that an index names), ``batch`` with
``index_batch`` (axes that operand and indices share), ``sizes`` of a window, and ``mode``: ``clip`` moves a window inside,
``fill`` leaves it out."""


class Rounding:
    """An :class:`marin.plugins.exact.functions.Arithmetic` of NumPy arrays."""

    def rule(self, a: np.ndarray) -> np.ndarray:
        """``a``, or +0.0 where its magnitude is below the least number's."""
        return np.asarray(np.where(np.abs(a) < F(LEAST), F(0), a), F)

    def add(self, a: Any, b: Any) -> np.ndarray:
        return self.rule(np.add(a, b, dtype=F))

    def sub(self, a: Any, b: Any) -> np.ndarray:
        return self.rule(np.subtract(a, b, dtype=F))

    def mul(self, a: Any, b: Any) -> np.ndarray:
        return self.rule(np.multiply(a, b, dtype=F))

    def horner(self, a: Any, x: Any, b: Any) -> np.ndarray:
        return self.add(self.mul(a, x), b)

    def reciprocal(self, a: Any) -> np.ndarray:
        return self.rule(np.divide(F(1), a, dtype=F))

    def sqrt(self, a: Any) -> np.ndarray:
        return np.asarray(np.sqrt(a), F)

    def nearest(self, a: Any) -> np.ndarray:
        return self.rule(np.rint(a))

    def where(self, condition: Any, a: Any, b: Any) -> np.ndarray:
        return np.asarray(np.where(condition, a, b))

    def bits(self, a: Any) -> np.ndarray:
        return np.asarray(a, F).view(W)

    def floats(self, a: Any) -> np.ndarray:
        return np.asarray(a, W).view(F)

    def whole(self, a: Any) -> np.ndarray:
        return np.asarray(np.where(np.isfinite(a), a, 0), np.float64).astype(W)

    def number(self, a: Any) -> np.ndarray:
        return np.asarray(a).astype(F)


TO = Rounding()


type Key = tuple[int, int] | None
"""Seed and train step: of the random bits where factors are rounded stochastically."""


def run(program: Program, inputs: Sequence[Any], key: Key = None) -> Values:
    """The outputs of ``program`` for ``inputs``; both are as the program's forms say."""
    given = []
    for form, value in zip(program.of(program.inputs), inputs, strict=True):
        array = np.asarray(value, form.dtype)
        assert array.shape == form.shape, f"an input of {array.shape}, where the program has {form.shape}"
        given.append(TO.rule(array) if form.dtype == FLOAT else array)
    with np.errstate(all="ignore"):
        found = _body(program, given, key)
    return [np.where(np.isnan(x), F(np.nan), x).astype(F) if x.dtype == F else x for x in found]


def _body(program: Program, inputs: Sequence[np.ndarray], key: Key) -> Values:
    known = dict(zip(program.inputs, inputs, strict=True))
    known |= {number: TO.rule(value) if value.dtype == F else value for number, value in program.constants}
    for one in program.operations:
        values = [known[number] for number in one.inputs]
        if one.bodies:
            outputs = _LOOPS[one.name](one, values, key)
        elif one.name == "dot":
            outputs = [_dot(one, values, key)]
        else:
            outputs = [_OPERATIONS[one.name](program, one, values)]
        for number, value in zip(one.outputs, outputs, strict=True):
            form = program.forms[number]
            found = np.asarray(value)
            assert (str(found.dtype), found.shape) == (form.dtype, form.shape), (
                f"{one.name} gave {found.dtype}{found.shape}"
            )
            known[number] = found
    return [known[number] for number in program.outputs]


def _scan(one: Operation, values: Values, key: Key) -> Values:
    consts, carried, length = (int(one.settings[name]) for name in ("constants", "carried", "length"))  # type: ignore[arg-type]
    carry, rows = values[consts : consts + carried], values[consts + carried :]
    made: dict[int, Values] = {}
    numbers = range(length - 1, -1, -1) if one.settings["reverse"] else range(length)
    for number in numbers:
        found = _body(one.bodies[0], [*values[:consts], *carry, *(row[number] for row in rows)], key)
        carry, made[number] = found[:carried], found[carried:]
    forms = one.bodies[0].of(one.bodies[0].outputs)[carried:]
    stacked = [np.empty((length, *form.shape), form.dtype) for form in forms]
    for number, found in made.items():
        for whole, value in zip(stacked, found, strict=True):
            whole[number] = value
    return [*carry, *stacked]


def _while(one: Operation, values: Values, key: Key) -> Values:
    asked, done = (int(one.settings[name]) for name in ("asked", "done"))  # type: ignore[arg-type]
    question, body = one.bodies
    carry = values[asked + done :]
    while bool(_body(question, [*values[:asked], *carry], key)[0]):
        carry = _body(body, [*values[asked : asked + done], *carry], key)
    return carry


def _cond(one: Operation, values: Values, key: Key) -> Values:
    chosen = min(max(int(values[0]), 0), len(one.bodies) - 1)
    return _body(one.bodies[chosen], values[1:], key)


_LOOPS: dict[str, Callable[[Operation, Values, Key], Values]] = {"scan": _scan, "while": _while, "cond": _cond}


def _row_exponent(largest: float, floor: int) -> int:
    """The least e with ``largest`` below 2**e, but not below ``floor``."""
    return max(math.frexp(largest)[1], floor) if largest else floor


FACTOR_BITS, FACTOR_LARGEST, FACTOR_FLOOR = 15, 32639, -45
ADDEND_BITS, ADDEND_ROOM, ADDEND_FLOOR = 30, 52, -90


def factors(
    rows: np.ndarray, bits: int = FACTOR_BITS, words: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Each row (last axis) as whole numbers (int64) up to 2**bits, of 15 bits up to 32639, and what it is to be multiplied
    with afterwards (float32, without the last axis); rounded to nearest, or by random ``words`` (uint32, shaped like the
    rows)."""
    whole, back = np.zeros(rows.shape, np.int64), np.zeros(rows.shape[:-1], F)
    for place in np.ndindex(*rows.shape[:-1]):
        row = rows[place].astype(np.float64)
        if not np.isfinite(row).all():
            back[place] = np.nan
            continue
        largest = float(np.max(np.abs(row)))
        e = _row_exponent(largest, FACTOR_FLOOR)
        e += bits == FACTOR_BITS and math.ldexp(largest, FACTOR_BITS - e) > FACTOR_LARGEST
        scaled = np.ldexp(row, bits - e)
        if words is None:
            whole[place] = np.rint(scaled).astype(np.int64)
        else:
            below = np.floor(np.abs(scaled))
            up = (words[place] >> np.uint32(8)).astype(np.float64) < (np.abs(scaled) - below) * 2.0**24
            whole[place] = (np.sign(scaled) * (below + up)).astype(np.int64)
        back[place] = math.ldexp(1.0, e - bits)
    return whole, back


def addends(values: np.ndarray, count: int) -> tuple[np.ndarray, np.float32]:
    """float32 ``values`` as whole numbers (int64) of which ``count`` may be added, and what their sum is to be multiplied
    with."""
    exact = values.astype(np.float64)
    if not np.isfinite(exact).all():
        return np.zeros(values.shape, np.int64), F(np.nan)
    bits = min(ADDEND_BITS, ADDEND_ROOM - (count - 1).bit_length())
    e = _row_exponent(float(np.max(np.abs(exact), initial=0.0)), ADDEND_FLOOR)
    return np.rint(np.ldexp(exact, bits - e)).astype(np.int64), F(math.ldexp(1.0, e - bits))


def _summed(x: np.ndarray, axes: Sequence[int]) -> np.ndarray:
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    shape = [x.shape[axis] for axis in kept]
    rows = np.transpose(x, (*kept, *axes)).reshape(*shape, math.prod(x.shape[axis] for axis in axes))
    if x.dtype != F:
        return np.sum(rows, axis=-1, dtype=x.dtype)
    result = np.zeros(shape, F)
    for place in np.ndindex(*shape):
        whole, back = addends(rows[place], rows.shape[-1])
        result[place] = TO.mul(F(sum(whole.tolist())), back)
    return result


def _noise(x: np.ndarray, side: int, key: Key) -> np.ndarray:
    """One random word for each element: of the step's key, the element's position and side, and its bits."""
    assert key is not None, "factors are rounded by random bits, and there is no key"
    place = threefry.places(np.arange(x.size, dtype=np.uint32).reshape(x.shape), side)
    first, second = (np.full(x.shape, word % 2**32, np.uint32) for word in key)
    return np.asarray(threefry.block(first, second, place, x.view(np.uint32))[0], np.uint32)


def _dot(one: Operation, values: Values, key: Key) -> np.ndarray:
    settings: Any = one.settings
    made = Factors.of(settings)
    arranged: list[Any] = []
    for side, (x, summed, batch) in enumerate(zip(values, settings["summed"], settings["batch"], strict=True)):
        free = [axis for axis in range(x.ndim) if axis not in (*summed, *batch)]
        shapes = [[x.shape[axis] for axis in axes] for axes in (batch, free)]
        size = math.prod(shapes[0]), math.prod(shapes[1]), math.prod(x.shape[axis] for axis in summed)
        rows, words = (
            np.transpose(each, (*batch, *free, *summed)).reshape(size) if each is not None else None
            for each in (x, _noise(x, side, key) if made.stochastic else None)
        )
        assert rows is not None
        arranged.append((*factors(rows, made.bits, words), *shapes))
    (a, a_back, batch, left_free), (b, b_back, _, right_free) = arranged
    whole = np.matmul(a, np.swapaxes(b, 1, 2)).astype(np.float64).astype(F)  # int64, below 2**53
    found = TO.mul(TO.mul(whole, a_back[:, :, None]), b_back[:, None, :])
    return found.reshape(*batch, *left_free, *right_free)


def _gathered(program: Program, one: Operation, values: Values) -> np.ndarray:
    operand, index = values
    return gathered(operand, index, program.forms[one.outputs[0]].shape, one.settings)


def _scatter_add(program: Program, one: Operation, values: Values) -> np.ndarray:
    operand, index, updates = values
    if operand.dtype != F:
        return scattered(operand, index, updates, one.settings, add=True)
    whole, back = addends(updates, max(1, math.prod(index.shape[:-1])))
    sums = scattered(np.zeros(operand.shape, np.int64), index, whole, one.settings, add=True)
    return TO.add(operand, TO.mul(sums.astype(np.float64).astype(F), back))


def _convert(program: Program, one: Operation, values: Values) -> np.ndarray:
    (x,), to = values, program.forms[one.outputs[0]].dtype
    if to == BOOL:
        return np.asarray(x != 0)
    if x.dtype == F and to in (INT, UINT):
        info = np.iinfo(np.dtype(to))
        exact = np.where(np.isnan(x), 0.0, x.astype(np.float64))
        return np.trunc(np.clip(exact, info.min, info.max)).astype(to)
    return x.astype(to)


def _bitcast(program: Program, one: Operation, values: Values) -> np.ndarray:
    (x,), to = values, program.forms[one.outputs[0]].dtype
    x = np.where(np.isnan(x), F(np.nan), x).astype(F) if x.dtype == F else x
    found = x.view(np.dtype(to))
    return TO.rule(found) if to == FLOAT else found


def _dynamic(x: np.ndarray, sizes: Sequence[int], start: Values) -> tuple[slice, ...]:
    """The window of ``sizes`` that begins at ``start``, moved inside."""
    begins = [min(max(int(at), 0), length - size) for at, length, size in zip(start, x.shape, sizes, strict=True)]
    return tuple(slice(at, at + size) for at, size in zip(begins, sizes, strict=True))


def _updated(program: Program, one: Operation, values: Values) -> np.ndarray:
    x, update, *start = values
    result = x.copy()
    result[_dynamic(x, update.shape, start)] = update
    return result


def _pad(program: Program, one: Operation, values: Values) -> np.ndarray:
    (x, filling), padding = values, one.settings["padding"]
    assert isinstance(padding, list)
    widths: Any = padding
    spread = [(size - 1) * inner + size if size else 0 for size, (_, _, inner) in zip(x.shape, widths, strict=True)]
    middle = np.full(spread, filling, x.dtype)
    middle[tuple(slice(None, None, inner + 1) for _, _, inner in widths)] = x
    cut = middle[
        tuple(slice(max(0, -low), size - max(0, -high)) for size, (low, high, _) in zip(spread, widths, strict=True))
    ]
    return np.pad(cut, [(max(0, low), max(0, high)) for low, high, _ in widths], constant_values=filling)


def _broadcast(program: Program, one: Operation, values: Values) -> np.ndarray:
    (x,), shape, axes = values, program.forms[one.outputs[0]].shape, one.settings["axes"]
    assert isinstance(axes, list)
    lifted = [1] * len(shape)
    for own, axis in enumerate(axes):
        assert isinstance(axis, int)
        lifted[axis] = x.shape[own]
    return np.broadcast_to(x.reshape(lifted), shape)


def _iota(program: Program, one: Operation, values: Values) -> np.ndarray:
    form, axis = program.forms[one.outputs[0]], one.settings["axis"]
    assert isinstance(axis, int)
    shape = [1] * len(form.shape)
    shape[axis] = form.shape[axis]
    return np.broadcast_to(np.arange(form.shape[axis]).astype(form.dtype).reshape(shape), form.shape)


def _draw(program: Program, one: Operation, values: Values) -> np.ndarray:
    high, low = threefry.random_words(values[0], _axes(one, "shape"))
    return np.asarray(high ^ low)


def _axes(one: Operation, name: str = "axes") -> tuple[int, ...]:
    value: Any = one.settings[name]
    return tuple(value)


def _number(one: Operation, name: str = "axis") -> int:
    value: Any = one.settings[name]
    return int(value)


def _cumulative(program: Program, one: Operation, values: Values) -> np.ndarray:
    x, axis = values[0], _number(one)
    turned = np.flip(x, axis) if one.settings["reverse"] else x
    found = np.cumsum(turned, axis=axis, dtype=x.dtype)
    return np.flip(found, axis) if one.settings["reverse"] else found


def _sliced(program: Program, one: Operation, values: Values) -> np.ndarray:
    parts = zip(_axes(one, "start"), _axes(one, "end"), _axes(one, "step"), strict=True)
    return values[0][tuple(slice(*part) for part in parts)]


def _shifted(
    function: Callable[[np.ndarray, np.ndarray], np.ndarray], over: Callable[[np.ndarray], np.ndarray]
) -> Rule:
    """A shift; ``over``: what is left of a number that is shifted by 32 bits or more."""

    def rule(program: Program, one: Operation, values: Values) -> np.ndarray:
        x, count = values
        distance = count.view(np.uint32)
        found = function(x, np.minimum(distance, np.uint32(31)).astype(x.dtype))
        return np.where(distance > 31, over(x), found).astype(x.dtype)

    return rule


type Rule = Callable[[Program, Operation, Values], np.ndarray]


def _plain(function: Callable[..., Any]) -> Rule:
    return lambda program, one, values: np.asarray(function(*values))


def _rounded(name: str, whole: Callable[..., Any]) -> Rule:
    return lambda program, one, values: getattr(TO, name)(*values) if values[0].dtype == F else whole(*values)


def _ruled(function: Callable[..., Any]) -> Rule:
    return lambda program, one, values: TO.rule(function(*values)) if values[0].dtype == F else function(*values)


def _function(name: str) -> Rule:
    function = functions.NAMED[name]
    return lambda program, one, values: np.asarray(function(TO, *values), F)


def _words(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return np.stack([np.asarray(first, np.uint32), np.asarray(second, np.uint32)], axis=-1)


_OPERATIONS: Mapping[str, Rule] = {
    **{name: _function(name) for name in functions.NAMED},
    "add": _rounded("add", np.add),
    "sub": _rounded("sub", np.subtract),
    "mul": _rounded("mul", np.multiply),
    "sqrt": _plain(TO.sqrt),
    "round": _ruled(np.rint),
    "floor": _ruled(np.floor),
    "ceil": _ruled(np.ceil),
    "neg": _ruled(np.negative),
    "abs": _plain(np.abs),
    "sign": _ruled(np.sign),
    "max": _plain(np.maximum),
    "min": _plain(np.minimum),
    "is_finite": _plain(np.isfinite),
    "eq": _plain(np.equal),
    "ne": _plain(np.not_equal),
    "lt": _plain(np.less),
    "le": _plain(np.less_equal),
    "gt": _plain(np.greater),
    "ge": _plain(np.greater_equal),
    "rem": _plain(lambda a, b: np.where(b == 0, a, np.fmod(a, np.where(b == 0, 1, b).astype(b.dtype)))),
    "and": _plain(np.bitwise_and),
    "or": _plain(np.bitwise_or),
    "xor": _plain(np.bitwise_xor),
    "not": _plain(np.invert),
    "shift_left": _shifted(np.left_shift, np.zeros_like),
    "shift_right_logical": _shifted(lambda x, n: (x.view(np.uint32) >> n.view(np.uint32)).view(x.dtype), np.zeros_like),
    "shift_right_arithmetic": _shifted(
        lambda x, n: (x.view(W) >> n.view(W)).view(x.dtype), lambda x: (x.view(W) >> W(31)).view(x.dtype)
    ),
    "select": _plain(lambda condition, no, yes: np.where(condition, yes, no)),
    "convert": _convert,
    "bitcast": _bitcast,
    "broadcast": _broadcast,
    "reshape": lambda program, one, values: values[0].reshape(program.forms[one.outputs[0]].shape),
    "transpose": lambda program, one, values: np.transpose(values[0], _axes(one)),
    "concatenate": lambda program, one, values: np.concatenate(values, axis=_number(one)),
    "slice": _sliced,
    "dynamic_slice": lambda program, one, values: values[0][
        _dynamic(values[0], program.forms[one.outputs[0]].shape, values[1:])
    ],
    "dynamic_update_slice": _updated,
    "pad": _pad,
    "iota": _iota,
    "rev": lambda program, one, values: np.flip(values[0], _axes(one)),
    "cumsum": _cumulative,
    "argmax": lambda program, one, values: np.argmax(values[0], axis=_number(one)).astype(
        program.forms[one.outputs[0]].dtype
    ),
    "sum": lambda program, one, values: _summed(values[0], _axes(one)),
    "maximum": lambda program, one, values: np.max(values[0], axis=_axes(one)),
    "minimum": lambda program, one, values: np.min(values[0], axis=_axes(one)),
    "all": lambda program, one, values: np.all(values[0], axis=_axes(one)),
    "any": lambda program, one, values: np.any(values[0], axis=_axes(one)),
    "gather": _gathered,
    "scatter": lambda program, one, values: scattered(values[0], values[1], values[2], one.settings, add=False),
    "scatter_add": _scatter_add,
    "seed": lambda program, one, values: _words(np.zeros_like(values[0]), values[0]),
    "fold": lambda program, one, values: _words(*threefry.fold_in(values[0], values[1].astype(np.uint32))),
    "draw_keys": lambda program, one, values: _words(*threefry.random_words(values[0], _axes(one, "shape"))),
    "draw": _draw,
}
OPERATIONS = frozenset(_OPERATIONS) | frozenset(_LOOPS) | {"dot"}
"""Every operation that a program may have."""


def windows(
    shape: Sequence[int], index: np.ndarray, sizes: Sequence[int], settings: Settings
) -> Iterator[tuple[tuple[int, ...], list[int], bool]]:
    """Of each index: its place among the indices, where its window begins in an operand of ``shape``, and whether the
    window lies inside; with ``clip`` it always does."""
    for place in np.ndindex(*index.shape[:-1]):
        start = [0] * len(shape)
        for number, axis in enumerate(settings["indexed"]):
            start[axis] = int(index[(*place, number)])
        for axis, index_axis in zip(settings["batch"], settings["index_batch"], strict=True):
            start[axis] = place[index_axis]
        highest = [length - size for length, size in zip(shape, sizes, strict=True)]
        inside = all(0 <= at <= last for at, last in zip(start, highest, strict=True))
        if settings["mode"] == "clip":
            start, inside = [min(max(at, 0), last) for at, last in zip(start, highest, strict=True)], True
        yield place, start, inside


def _window(start: Sequence[int], sizes: Sequence[int], settings: Settings) -> tuple[Any, ...]:
    """What indexes the operand for one window, without the axes that a window has no extent in."""
    gone = {*settings["dropped"], *settings["batch"]}
    return tuple(
        at if axis in gone else slice(at, at + size) for axis, (at, size) in enumerate(zip(start, sizes, strict=True))
    )


def _place(place: tuple[int, ...], rank: int, window: Sequence[int]) -> tuple[Any, ...]:
    """What indexes the result (the updates) for one index: its own axes where they are not a window's."""
    own = iter(place)
    return tuple(slice(None) if axis in window else next(own) for axis in range(rank))


def gathered(operand: np.ndarray, index: np.ndarray, shape: tuple[int, ...], settings: Settings) -> np.ndarray:
    """The windows of ``operand`` at ``index``; ``fill`` in the settings is the word for those that are left out."""
    result = np.zeros(shape, operand.dtype)
    if settings["mode"] == "fill":
        word = np.asarray([settings["fill"]], np.uint32)
        result[...] = word.astype(bool)[0] if operand.dtype == bool else word.view(operand.dtype)[0]
    for place, start, inside in windows(operand.shape, index, settings["sizes"], settings):
        if inside:
            found = operand[_window(start, settings["sizes"], settings)]
            result[_place(place, result.ndim, settings["window"])] = found
    return result


def scattered(
    operand: np.ndarray, index: np.ndarray, updates: np.ndarray, settings: Settings, *, add: bool
) -> np.ndarray:
    """``operand`` with its windows at ``index`` replaced by ``updates``, or added to."""
    result = operand.copy()
    gone = {*settings["dropped"], *settings["batch"]}
    extents = iter(updates.shape[axis] for axis in settings["window"])
    sizes = [1 if axis in gone else next(extents) for axis in range(operand.ndim)]
    for place, start, inside in windows(operand.shape, index, sizes, settings):
        if inside:
            where, one = _window(start, sizes, settings), updates[_place(place, updates.ndim, settings["window"])]
            result[where] = result[where] + one if add else one
    return result
