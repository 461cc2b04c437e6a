"""docs/exact.md writes every function out: its text, executed here by a reader of its own, gives the bits that the code gives."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marin.plugins.exact import compiled, functions, reference

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "exact.md").read_text("utf-8")
WRITTEN = re.findall(r"^(\w+)\(([\w, ]+)\)\n((?: {4}.+\n)+)", PAGE.split("### The functions, step by step")[1], re.M)
ROWS = re.findall(r"^\| (`[^|]+) \|", PAGE, re.M)
LEAST = np.float32(2.0**-125)


def test_the_page_names_every_operation_and_its_tables_no_other() -> None:
    assert {*re.findall(r"`(\w+)`", PAGE)} >= compiled.OPERATIONS
    assert {name for row in ROWS for name in re.findall(r"`(\w+)`", row)} <= compiled.OPERATIONS
    assert len(ROWS) > 20


class Number:
    """A float32 or int32 array. Each operation of float32 is rounded once, then the page's rule holds; none of it by our code."""

    def __init__(self, value: Any) -> None:
        self.value = np.asarray(value)

    def _with(self, other: Any, operation: Callable[..., Any]) -> Number:
        whole = self.value.dtype == np.int32
        right = other.value if isinstance(other, Number) else np.asarray(other, np.int32 if whole else np.float32)
        return Number(operation(self.value, right) if whole else ruled(operation(self.value, right)))

    def __add__(self, other: Any) -> Number:
        return self._with(other, np.add)

    def __sub__(self, other: Any) -> Number:
        return self._with(other, np.subtract)

    def __rsub__(self, other: Any) -> Number:
        return self._with(other, lambda a, b: b - a)

    def __mul__(self, other: Any) -> Number:
        return self._with(other, np.multiply)

    def __rtruediv__(self, other: Any) -> Number:
        assert other == 1, "the page divides nothing else"
        return self._with(other, lambda a, b: b / a)

    __radd__, __rmul__ = __add__, __mul__

    def _bitwise(self, other: Any, operation: Callable[..., Any]) -> Number:
        right = other.value if isinstance(other, Number) else np.int32(other)
        return Number(operation(self.value, right))

    def __and__(self, other: Any) -> Number:
        return self._bitwise(other, np.bitwise_and)

    def __or__(self, other: Any) -> Number:
        return self._bitwise(other, np.bitwise_or)

    def __rshift__(self, other: int) -> Number:
        return self._bitwise(other, np.right_shift)

    def _compared(self, other: Any, operation: Callable[..., Any]) -> Number:
        right = other.value if isinstance(other, Number) else np.asarray(other, self.value.dtype)
        return Number(operation(self.value, right))

    def __lt__(self, other: Any) -> Number:
        return self._compared(other, np.less)

    def __gt__(self, other: Any) -> Number:
        return self._compared(other, np.greater)

    def __ge__(self, other: Any) -> Number:
        return self._compared(other, np.greater_equal)

    def __eq__(self, other: Any) -> Number:  # type: ignore[override]
        return self._compared(other, np.equal)

    __hash__ = None  # type: ignore[assignment]


def ruled(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.where(np.abs(x) < LEAST, np.float32(0), x), np.float32)


def where(condition: Number, a: Any, b: Any) -> Number:
    plain = [one.value if isinstance(one, Number) else one for one in (a, b)]
    if not any(isinstance(one, Number) for one in (a, b)):
        plain = [np.asarray(one, np.int32 if isinstance(one, int) else np.float32) for one in plain]
    dtype = next(one.dtype for one in plain if isinstance(one, np.ndarray))
    return Number(np.where(condition.value, *(np.asarray(one, dtype) for one in plain)))


def horner(x: Number, first: float, *others: float) -> Number:
    value: Any = Number(np.float32(first))
    for one in others:
        value = value * x + one
    return value


def cut(x: Number) -> Number:
    return Number(np.where(np.isfinite(x.value), x.value, 0).astype(np.int64).astype(np.int32))


def page() -> dict[str, Callable[..., Number]]:
    known: dict[str, Any] = {
        "inf": float("inf"),
        "nan": float("nan"),
        "least": float(LEAST),
        "P": horner,
        "where": where,
        "sqrt": lambda x: Number(np.sqrt(x.value)),
        "nearest": lambda x: Number(ruled(np.rint(x.value))),
        "abs": lambda x: Number(np.abs(x.value)),
        "bits": lambda x: Number(x.value.view(np.int32)),
        "floats": lambda n: Number(n.value.view(np.float32)),
        "whole": cut,
        "number": lambda n: Number(n.value.astype(np.float32)),
        "two": lambda n: Number(np.ldexp(np.float32(1), n.value)),
    }

    def function(names: list[str], lines: list[str]) -> Callable[..., Number]:
        def call(*given: Any) -> Number:
            here = dict(zip(names, given, strict=True))
            for line in lines[:-1]:
                name, _, text = line.partition(" = ")
                here[name] = eval(text, {"__builtins__": {}} | known, here)
            result: Number = eval(lines[-1], {"__builtins__": {}} | known, here)
            return result

        return call

    for name, arguments, body in WRITTEN:
        known[name] = function(arguments.split(", "), [line.strip() for line in body.splitlines()])
    return {name: known[name] for name, _, _ in WRITTEN}


def numbers(drawn: np.random.Generator, count: int) -> np.ndarray:
    """Of every size, and where functions have their edges."""
    anything = drawn.integers(0, 2**32, count, dtype=np.uint32).view(np.float32)
    near = drawn.normal(0, 1, count).astype(np.float32) * drawn.choice([0.1, 1, 4, 30, 1000], count).astype(np.float32)
    edges = [
        0,
        1,
        -1,
        0.5,
        2,
        0.625,
        4,
        88.9,
        -87.5,
        89,
        1e38,
        4.8e37,
        2.0**-125,
        -(2.0**-125),
        np.inf,
        -np.inf,
        np.nan,
    ]
    return ruled(np.concatenate([anything, near, np.asarray(edges, np.float32)]))


@pytest.mark.parametrize("name", functions.NAMED)
def test_the_text_gives_every_bit_of_the_code(name: str) -> None:
    drawn = np.random.default_rng(46)
    arguments = [numbers(drawn, 20_000) for _ in range(functions.NAMED[name].__code__.co_argcount - 1)]
    for values in arguments[1:]:
        drawn.shuffle(values)
    with np.errstate(all="ignore"):
        said = page()[name](*(Number(values) for values in arguments)).value
        made = np.asarray(functions.NAMED[name](reference.TO, *arguments))
    same = (said.view(np.uint32) == made.view(np.uint32)) | (np.isnan(said) & np.isnan(made))
    assert said.dtype == made.dtype == np.float32 and same.all(), [one[~same][:5] for one in (*arguments, said, made)]
