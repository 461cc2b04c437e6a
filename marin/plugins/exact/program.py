"""A program of exact operations as plain data: what is computed, and nothing about how.

It names every operation with its shapes and settings, in order, and says of a sum only that it is one: no tiles, no
devices, no instructions. So its digest is the same on every platform, and is what a ledger keeps as a program's identity.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ledger import LedgerError, canonical_digest, parse_canonical, tensor_digest
from marin.process.text import clipped

if TYPE_CHECKING:
    from marin.recipe.schema import Recipe

type Json = bool | int | str | list[Json] | dict[str, Json] | None

FLOAT, INT, UINT, BOOL = "float32", "int32", "uint32", "bool"
DTYPES = (FLOAT, INT, UINT, BOOL)
"""All that a program computes with."""

LEAST = float(np.float32(2.0**-125))
"""The least magnitude of a number that is not zero. What is below it becomes zero after each operation: processors
differ in whether 2**-126 and less is kept, and in whether that is asked before or after rounding."""


@dataclass(frozen=True)
class Factors:
    """How factors of contractions become whole numbers: up to 2**``bits`` in magnitude, rounded to nearest or, if
    ``stochastic``, up or down by random bits. Fewer than 15 bits are another definition than the profile's."""

    bits: int = 15
    stochastic: bool = False

    @property
    def settings(self) -> dict[str, Any]:
        """What a ``dot`` has in its settings; nothing for 15 bits rounded to nearest, which is what it means without."""
        bits: dict[str, Any] = {} if self == NEAREST else {"bits": self.bits}
        return bits | ({"rounding": "stochastic"} if self.stochastic else {})

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Factors:
        """From a ``dot``'s settings."""
        return cls(int(settings.get("bits", 15)), settings.get("rounding") == "stochastic")


NEAREST = Factors()


def factors_of(recipe: Recipe, *, step: bool = False) -> Factors:
    """How profile ``exact`` rounds the factors of contractions. ``step``: in a train step; elsewhere there are no random
    bits to round by, and they are rounded to nearest with as many bits."""
    bits, rounding = recipe.arithmetic.factor_bits, recipe.arithmetic.factor_rounding
    return NEAREST if bits is None else Factors(bits, step and rounding == "stochastic")


@dataclass(frozen=True)
class Form:
    """Dtype (one of :data:`DTYPES`) and shape of a value."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True)
class Operation:
    """``name`` with its ``settings`` applied to values by number. ``bodies``: what ``scan``, ``while`` and ``cond``
    execute. ``source``: where it was written (package, file, line and function), which is not part of what it is."""

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    settings: Mapping[str, Json] = field(default_factory=dict)
    bodies: tuple[Program, ...] = ()
    source: str = field(default="", compare=False)


@dataclass(frozen=True)
class Program:
    """``forms[n]`` is the form of value ``n``. ``constants``: values that are known, by number."""

    forms: tuple[Form, ...]
    inputs: tuple[int, ...]
    constants: tuple[tuple[int, np.ndarray], ...]
    operations: tuple[Operation, ...]
    outputs: tuple[int, ...]

    @cached_property
    def digest(self) -> str:
        """``sha256:`` of the canonical JSON of all of it; constants enter by the digest of their tensors."""
        return canonical_digest(self.plain())

    def plain(self) -> dict[str, Any]:
        """The form whose canonical JSON is digested (docs/exact.md, "Identity")."""
        return {
            "forms": [[form.dtype, list(form.shape)] for form in self.forms],
            "inputs": list(self.inputs),
            "constants": [[number, tensor_digest(value)] for number, value in self.constants],
            "operations": [
                [
                    one.name,
                    list(one.inputs),
                    list(one.outputs),
                    dict(one.settings),
                    [body.plain() for body in one.bodies],
                ]
                for one in self.operations
            ],
            "outputs": list(self.outputs),
        }

    def values(self) -> Iterator[np.ndarray]:
        """All constants, those of bodies too."""
        yield from (value for _, value in self.constants)
        for one in self.operations:
            for body in one.bodies:
                yield from body.values()

    def names(self) -> set[str]:
        """Every operation that occurs, in bodies too."""
        found = {one.name for one in self.operations}
        return found.union(*(body.names() for one in self.operations for body in one.bodies))

    def of(self, numbers: Sequence[int]) -> list[Form]:
        """The forms of some values."""
        return [self.forms[number] for number in numbers]


def first_difference(recorded: bytes, present: Program) -> str:
    """Where a program in its plain form, whose bytes anybody may have written, is another than ``present``: the operation, and
    what it is in both."""
    try:
        theirs = parse_canonical(recorded)
        return _difference(theirs, present.plain(), present) or "only the constants differ"
    except (LedgerError, LookupError, TypeError, ValueError, AttributeError, RecursionError):
        return "the recorded one is no program"


def _difference(theirs: Any, ours: Any, present: Program) -> str:
    """By the operations in order, into what they execute; then by what goes in and comes out."""
    for number, one in enumerate(present.operations):
        there: Any = theirs["operations"][number] if number < len(theirs["operations"]) else None
        here = ours["operations"][number]
        told, told_here = _operation_line(there, theirs["forms"]), _operation_line(here, ours["forms"])
        if there is not None and told == told_here and len(there[4]) == len(here[4]):
            within = (_difference(*pair) for pair in zip(there[4], here[4], one.bodies, strict=True))
            if inner := next((found for found in within if found), ""):
                return f"{one.name}, operation {number}: {inner}"
            continue
        source = f" ({one.source})" if one.source else ""
        return f"first in operation {number}: recorded {clipped(told, 160)}, here {clipped(told_here, 160)}{source}"
    if len(theirs["operations"]) > len(present.operations):
        number = len(present.operations)
        extra = _operation_line(theirs["operations"][number], theirs["forms"])
        return f"first in operation {number}: recorded {clipped(extra, 160)}, not here"
    if (theirs["inputs"], theirs["outputs"]) != (ours["inputs"], ours["outputs"]):
        return "in what goes in or comes out"
    return ""


def _operation_line(operation: Any, forms: Any) -> str:
    """An operation in one line, with the forms of what it gives."""
    if operation is None:
        return "none"
    name, inputs, outputs, settings, _ = operation
    given = ", ".join(f"{forms[n][0]}{forms[n][1]}" for n in outputs)
    details = "".join(f", {key}={value}" for key, value in sorted(settings.items()))
    return f"{name}({', '.join(map(str, inputs))}{details}) -> {given}"
