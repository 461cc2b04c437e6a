"""One rounding at a time, compiled: what keeps a compiler from rounding otherwise.

XLA may contract a product with the sum that follows it (one rounding instead of two), turn a quotient into a product
with a reciprocal, or a sum of constants into one. It does so where it sees both; so between two roundings there is
always something that it cannot see through: ``z``, which is -0.0 and known only at run time. x + -0.0 is x for every
x, rounded or not, so ``a * b + z`` contracted into one operation is still the product rounded once.

No compiler promises to leave it so, hence what it made is read (:func:`unguarded`): a product whose next operation is a sum with
anything but z may become one operation with one rounding, on a processor that has one. XLA's optimised text is the last form
in which this can be seen; within one of its computations LLVM contracts, across two it cannot.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import add, mul, sub

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from marin.plugins.exact.program import LEAST

F, W = np.float32, np.int32
type Operation = Callable[[jax.Array, jax.Array], jax.Array]
MINUS_ZERO = np.float32(-0.0)
"""What every compiled program is given as its first argument."""


class Guarded:
    """An :class:`marin.plugins.exact.functions.Arithmetic` of jax arrays; ``z`` is -0.0, an argument of what is traced."""

    def __init__(self, z: jax.Array) -> None:
        self.z = z

    def rule(self, a: jax.Array) -> jax.Array:
        """``a``, or +0.0 where its magnitude is below the least number's; so there is one zero only."""
        return jnp.where(lax.lt(lax.abs(a), F(LEAST)), F(0), a)

    def add(self, a: jax.Array, b: jax.Array) -> jax.Array:
        return self.rule(_add(a, b))

    def sub(self, a: jax.Array, b: jax.Array) -> jax.Array:
        return self.rule(_sub(a, b))

    def mul(self, a: jax.Array, b: jax.Array) -> jax.Array:
        return self.rule(self._product(a, b))

    def reciprocal(self, a: jax.Array) -> jax.Array:
        return self.rule(lax.add(lax.div(F(1), lax.add(a, self.z)), self.z))

    def sqrt(self, a: jax.Array) -> jax.Array:
        # XLA takes a GPU's float32 root from an instruction that is a unit off; that of float64 is IEEE 754's, and 53 bits
        # are enough to round it again (Figueroa, 1995).
        return lax.platform_dependent(a, cuda=_root_of_float64, default=lax.sqrt)

    def horner(self, a: jax.Array, x: jax.Array, b: jax.Array) -> jax.Array:
        return _add(self._product(a, x), b)

    def _product(self, a: jax.Array, b: jax.Array) -> jax.Array:
        return lax.add(_mul(a, b), self.z)

    def nearest(self, a: jax.Array) -> jax.Array:
        return self.rule(lax.round(a, lax.RoundingMethod.TO_NEAREST_EVEN))

    def where(self, condition: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.where(condition, a, b)

    def bits(self, a: jax.Array) -> jax.Array:
        return lax.bitcast_convert_type(a, W)

    def floats(self, a: jax.Array) -> jax.Array:
        return lax.bitcast_convert_type(a, F)

    def whole(self, a: jax.Array) -> jax.Array:
        return a.astype(W)

    def number(self, a: jax.Array) -> jax.Array:
        return a.astype(F)


def _at_once(quick: Operation, general: Operation) -> Operation:
    """``quick``, of :mod:`jax.lax`, for what it takes as it is: one dtype, and one shape or a scalar. ``general`` gives the same
    operation, but jax traces it as a program of its own first, which was most of the time that tracing took."""

    def operation(a: jax.Array, b: jax.Array) -> jax.Array:
        known = isinstance(a, np.generic) and isinstance(b, np.generic)
        alike = a.dtype == b.dtype and (a.shape == b.shape or not a.shape or not b.shape)
        return quick(a, b) if alike and not known else general(a, b)

    return operation


_add, _sub, _mul = _at_once(lax.add, add), _at_once(lax.sub, sub), _at_once(lax.mul, mul)


def _root_of_float64(a: jax.Array) -> jax.Array:
    return lax.sqrt(a.astype(jnp.float64)).astype(F)


_OPENING = re.compile(r"^(ENTRY )?%([\w.\-]+) \(")
_LINE = re.compile(r"^\s+(ROOT )?%([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*)$")
_NAME = re.compile(r"%([\w.\-]+)")
_CALLED = re.compile(r"\b(calls|to_apply|body|condition)=%([\w.\-]+)")
_INDEX = re.compile(r"\bindex=(\d+)")
MOVES = frozenset({"bitcast", "broadcast", "copy", "reshape", "slice", "transpose", "reverse", "dynamic-slice"})
"""What leaves every number as it is."""
CARRIES = MOVES | {"negate", "select", "concatenate", "pad"}
"""Behind which a product is still one: a processor that contracts takes its sign along, and what chooses between numbers may
be done after the sum instead of before."""
SUMS = frozenset({"add", "subtract"})
REDUCTIONS = frozenset({"reduce", "reduce-window"})


@dataclass(frozen=True)
class _Operation:
    name: str
    kind: str
    type: str
    operands: tuple[str, ...]
    called: tuple[str, ...]
    body: str
    index: int


@dataclass
class _Computation:
    operations: dict[str, _Operation] = field(default_factory=dict)
    root: str = ""


def unguarded(optimized: str) -> list[str]:
    """What an optimised HLO text (``jax.stages.Compiled.as_text``) leaves to the processor, a line each: sums of float32 that
    take a product in, without the guard between (``SUM of PRODUCT``), and matrix products of float32 (``PRODUCT of float32``).

    The first argument of the program is taken for z. A text in which no product is recognised proves nothing: that is said
    like an unguarded one.
    """
    reader = _Reader(optimized)
    found = [line for name in reader.computations for line in reader.unguarded(name)]
    return found if found or reader.products else ["no product was recognised"]


class _Reader:
    def __init__(self, text: str) -> None:
        self.computations: dict[str, _Computation] = {}
        self.entry = ""
        self.products = 0
        self._calls: dict[str, list[tuple[str, _Operation]]] = defaultdict(list)
        self._z: set[tuple[str, str, int]] = set()
        self._others: set[tuple[str, str, int]] = set()
        current = _Computation()
        for line in text.splitlines():
            if opening := _OPENING.match(line):
                current = self.computations.setdefault(opening.group(2), _Computation())
                self.entry = opening.group(2) if opening.group(1) else self.entry
            elif given := _LINE.match(line):
                root, name, kind, operation, rest = given.groups()
                inside = rest[: _closing(rest)]
                called = _CALLED.findall(rest)
                number = inside if operation == "parameter" else (_INDEX.findall(rest) or ["-1"])[0]
                names, body = tuple(target for _, target in called), dict(called).get("body", "")
                one = _Operation(name, operation, kind, tuple(_NAME.findall(inside)), names, body, int(number))
                current.operations[name] = one
                current.root = name if root else current.root
        for where, computation in self.computations.items():
            for one in computation.operations.values():
                for target in one.called:
                    self._calls[target].append((where, one))

    def unguarded(self, where: str) -> list[str]:
        """Of one computation."""
        computation, found = self.computations[where], []
        for one in computation.operations.values():
            self.products += one.kind == "multiply"
            if not one.type.startswith("f32") and not (one.kind in REDUCTIONS and "f32" in one.type):
                continue
            if one.kind in ("dot", "convolution"):  # which a compiler may make of a product and a sum
                found.append(f"{one.name} of float32")
            elif one.kind in SUMS:
                for number, operand in enumerate(one.operands):
                    product = self._product(computation, operand)
                    if product and not self._is_z(where, one.operands[1 - number]):
                        found.append(f"{one.name} of {product}")
            elif one.kind in REDUCTIONS and any(self._adds(target) for target in one.called):
                products = (self._product(computation, operand) for operand in one.operands)
                found += [f"{one.name} of {product}" for product in products if product]
        return found

    def _adds(self, target: str) -> bool:
        return any(one.kind in SUMS for one in self.computations[target].operations.values())

    def _product(self, computation: _Computation, name: str) -> str:
        """The product that this number is, or may be, moved or not; "" where it is not one."""
        one = computation.operations.get(name)
        if one is None:
            return ""
        if one.kind in CARRIES:
            return next(filter(None, (self._product(computation, operand) for operand in one.operands)), "")
        return one.name if one.kind == "multiply" and one.type.startswith("f32") else ""

    def _is_z(self, where: str, name: str) -> bool:
        """Whether this is z, moved or not. What goes round a loop is z if it comes in and comes round as z: that it is, is
        taken for true until something says otherwise, and then all is asked again that rested on it."""
        while True:
            before = len(self._others)
            self._z.clear()
            answer = self._may_be(where, name)
            if len(self._others) == before:
                return answer

    def _may_be(self, where: str, name: str, element: int = -1) -> bool:
        """Whether nothing says that this is not z; ``element``: of a tuple."""
        key = where, name, element
        if key not in self._z and key not in self._others:
            self._z.add(key)
            if not self._is_guarded(where, name, element):
                self._others.add(key)
        return key not in self._others

    def _is_guarded(self, where: str, name: str, element: int) -> bool:
        one = self.computations[where].operations.get(name)
        if one is None:
            return False
        if one.kind == "parameter":
            if where == self.entry:
                return one.index == 0 and element < 0
            calls = self._calls[where]
            return bool(calls) and all(self._comes(site, call, one.index, element) for site, call in calls)
        if one.kind == "get-tuple-element":
            return self._may_be(where, one.operands[0], one.index)
        if one.kind == "tuple":
            return 0 <= element < len(one.operands) and self._may_be(where, one.operands[element])
        if one.kind == "while":
            rounds = self.computations[one.body].root
            return self._may_be(where, one.operands[0], element) and self._may_be(one.body, rounds, element)
        if one.kind in ("fusion", "call") and one.called:
            target = one.called[0]
            return self._may_be(target, self.computations[target].root, element)
        if one.kind in MOVES or one.kind in ("opt-barrier", "copy-start", "copy-done"):
            return self._may_be(where, one.operands[0], element)
        return False

    def _comes(self, site: str, call: _Operation, parameter: int, element: int) -> bool:
        """Whether what a caller hands over is z; a loop hands over what came in and what comes round."""
        if call.kind == "while":
            return self._may_be(site, call.name, element)
        if call.kind in ("fusion", "call") and parameter < len(call.operands):
            return self._may_be(site, call.operands[parameter], element)
        return False


def _closing(text: str) -> int:
    """Where the parenthesis that was opened before ``text`` closes."""
    depth = 1
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return place
    return len(text)
