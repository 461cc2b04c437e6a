"""One train step of profile exact taken apart into the operations of docs/exact.md.

An exact program is data, so any part of it is a program too: one operation, or the first so many. Each is compiled on
its own under this process's settings, and what an operation must give is what :mod:`marin.plugins.exact.reference` gives: so it
can be said which of two settings is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from marin.plugins.exact import reference
from marin.plugins.exact.compiled import run
from marin.plugins.exact.guarded import MINUS_ZERO
from marin.plugins.exact.program import FLOAT, Operation, Program
from marin.plugins.exact.step import ExactStep, update_of
from marin.plugins.explain.opened import INITIAL, Opened, Question, record
from marin.recipe.schema import Recipe
from marin.training.initial import exact_initializer
from marin.training.optimizers.rule import optimizer
from marin.training.state import arrays_of
from marin.training.step.slices import Layout
from marin.verify.segments.explanation import Record

type Values = list[np.ndarray]
type Visit = Callable[[str, Program, Operation, Values, Values], bool]
"""Called with the path of an operation, the program that it is of, the operation, what went in and what came out; whether
that was the last."""
PASSED_OVER = 3
"""Of a state's tensors: the counters and the key, which no program computes."""


class ExactStepwise(Opened):
    """Of a train step of profile exact: its gradient and its update, over whole tensors whatever the devices."""

    def __init__(self, recipe: Recipe, question: Question) -> None:
        super().__init__(recipe, question)
        self._known: dict[str, Callable[[Sequence[Any]], Values]] = {}
        self._number = 0

    @property
    def step(self) -> ExactStep:
        """The compiled train step."""
        assert isinstance(self._step, ExactStep)
        return self._step

    def programs(self, number: int) -> list[Record]:
        """Train step ``number``: ``gradient`` and ``update``, as the devices of this setting compute them."""
        state, batch = self._before(number)
        self._number, layout = number, self.step.layout
        records = [self._initial()] if number == 0 else []
        names = list(arrays_of(self._first))[PASSED_OVER:]
        own, count = names[: len(layout.params)], len(layout.params)
        (params,), (moments,) = state.params, state.moments
        before = [_whole(x, like.shape) for x, like in zip((*params, *moments), self._likes(), strict=True)]
        tokens, weights = (np.asarray(jax.device_get(x)) for x in (batch.tokens, batch.weights))
        gradient = self.step.named["blank" if batch.blank else "gradient"]
        grads, *sums, loads = gradient(MINUS_ZERO, params, batch.tokens, batch.weights, *self.step._key(number))
        whole = [_whole(x, like.shape) for x, like in zip(grads, layout.params, strict=True)]
        scalars = [np.asarray(x.addressable_data(0)) for x in sums]
        self._arguments["gradient"] = [*before[:count], tokens, weights]
        records.append(
            record(
                "gradient",
                self._arguments["gradient"],
                [*whole, *scalars, *(np.asarray(x.addressable_data(0)) for x in loads)],
                [
                    *(f"gradient of {name}" for name in own),
                    *("sum of squares", "sum of losses", "sum of weights"),
                    *("tokens of experts" for _ in loads),
                ],
            )
        )
        params, moments, _, loss, norm = self.step.named["update"](MINUS_ZERO, params, moments, grads, *sums)
        after = [_whole(x, like.shape) for x, like in zip((*params, *moments), self._likes(), strict=True)]
        forms = self._program("update").of(self._program("update").inputs)
        given = zip((*before, *whole, *scalars), forms, strict=True)
        self._arguments["update"] = [x.reshape(form.shape) for x, form in given]
        ends = [np.asarray(x.addressable_data(0)) for x in (loss, norm)]
        records.append(record("update", self._arguments["update"], [*after, *ends], [*names, "loss", "gradient norm"]))
        return records

    def _likes(self) -> Sequence[Any]:
        return (*self.step.layout.params, *self.step.layout.moments)

    def _program(self, name: str) -> Program:
        if name == INITIAL:
            program = exact_initializer(self.recipe, self._vocab).program
            assert isinstance(program, Program), "the profile is exact"
            return program
        if name == "gradient":
            gradient = self.step._blank if self._blank else self.step._gradient
            assert gradient is not None
            return gradient.program
        return update_of(self.recipe, Layout(self._first, optimizer(self.recipe), 1)).program

    def operations(self, program: str) -> list[Record]:
        """Every operation of one program, executed alone; of a loop, those of every turn."""
        records: list[Record] = []

        def visit(name: str, whole: Program, one: Operation, given: Values, made: Values) -> bool:
            records.append(replaced(record(name, given, made), whole, one))
            return False

        self._execute(self._program(program), program, visit)
        return records

    def prefix(self, program: str, count: int) -> tuple[Record, int]:
        """The last of the first ``count`` operations of a program compiled as one; and how many there are."""
        whole = self._program(program)
        one = whole.operations[count - 1]
        part = replace(whole, operations=whole.operations[:count], outputs=one.outputs)
        made = self._compiled(part)(self._arguments[program])
        return replaced(record(f"{count - 1}:{one.name}", [], made), whole, one), len(whole.operations)

    def count(self, program: str) -> int:
        """How many operations a program has at its top."""
        return len(self._program(program).operations)

    def reference(self, program: str, operation: str) -> list[Record]:
        """What docs/exact.md gives for one operation, on what goes into it when each before it is executed alone."""
        found: list[Record] = []

        def visit(name: str, whole: Program, one: Operation, given: Values, made: Values) -> bool:
            if name == operation:
                right = reference.run(alone(whole, one), given, self._words())
                found.append(replaced(record(name, given, right), whole, one))
            return bool(found)

        self._execute(self._program(program), program, visit)
        return found

    def _words(self) -> tuple[int, int]:
        """Seed and train step, which random bits follow from."""
        return self.recipe.seed or 0, self._number

    def _execute(self, program: Program, name: str, visit: Visit) -> None:
        given = zip(program.of(program.inputs), self._arguments[name], strict=True)
        _Walk(self._alone, visit).body(
            program, [reference.TO.rule(x) if form.dtype == FLOAT else x for form, x in given], ""
        )

    def _alone(self, program: Program, one: Operation) -> Callable[[Sequence[Any]], Values]:
        """One operation; those that are alike are compiled once."""
        part = alone(program, one)
        if part.digest not in self._known:
            self._known[part.digest] = self._compiled(part)
        return self._known[part.digest]

    def _compiled(self, program: Program) -> Callable[[Sequence[Any]], Values]:
        key = np.asarray([word % 2**32 for word in self._words()], np.uint32)
        with jax.enable_x64(True):
            compiled = jax.jit(lambda z, values, key: run(program, z, values, key=key))

        def call(values: Sequence[Any]) -> Values:
            with jax.enable_x64(True):
                return [np.asarray(x) for x in compiled(MINUS_ZERO, list(values), key)]

        return call


class _Walk:
    """A program executed operation by operation, by what ``alone`` makes of each. ``visit`` ends it."""

    def __init__(self, alone: Callable[[Program, Operation], Callable[[Sequence[Any]], Values]], visit: Visit) -> None:
        self._alone = alone
        self._visit = visit
        self._ended = False

    def body(self, program: Program, given: Values, path: str) -> Values:
        """What ``program`` gives, or nothing where the walk has ended."""
        known = dict(zip(program.inputs, given, strict=True))
        known |= {n: reference.TO.rule(x) if x.dtype == np.float32 else x for n, x in program.constants}
        for number, one in enumerate(program.operations):
            name, values = f"{path}{number}:{one.name}", [known[n] for n in one.inputs]
            made = self._loop(one, values, name) if one.bodies else self._alone(program, one)(values)
            self._ended = self._ended or self._visit(name, program, one, values, made)
            if self._ended:
                return []
            known |= dict(zip(one.outputs, made, strict=True))
        return [known[n] for n in program.outputs]

    def _loop(self, one: Operation, values: Values, name: str) -> Values:
        settings: Any = one.settings
        if one.name == "cond":
            chosen = min(max(int(values[0]), 0), len(one.bodies) - 1)
            return self.body(one.bodies[chosen], values[1:], f"{name}/")
        if one.name == "while":
            asked, done, turn = settings["asked"], settings["done"], 0
            carry = values[asked + done :]
            while any(self.body(one.bodies[0], [*values[:asked], *carry], f"{name}[{turn}]?/")):
                carry = self.body(one.bodies[1], [*values[asked : asked + done], *carry], f"{name}[{turn}]/")
                turn += 1
            return carry
        constants, carried, length = settings["constants"], settings["carried"], settings["length"]
        carry, rows = values[constants : constants + carried], values[constants + carried :]
        stacked: dict[int, Values] = {}
        for turn in range(length - 1, -1, -1) if settings["reverse"] else range(length):
            found = self.body(
                one.bodies[0], [*values[:constants], *carry, *(row[turn] for row in rows)], f"{name}[{turn}]/"
            )
            if self._ended:
                return []
            carry, stacked[turn] = found[:carried], found[carried:]
        return [*carry, *(np.stack(column) for column in zip(*(stacked[t] for t in range(length)), strict=True))]


def alone(program: Program, one: Operation) -> Program:
    """One operation of ``program`` as a program; operations that are alike give equal ones."""
    inputs, outputs = tuple(range(len(one.inputs))), tuple(range(len(one.inputs), len(one.inputs) + len(one.outputs)))
    forms = (*program.of(one.inputs), *program.of(one.outputs))
    return Program(forms, inputs, (), (replace(one, inputs=inputs, outputs=outputs),), outputs)


def replaced(made: Record, program: Program, one: Operation) -> Record:
    """``made`` with where the operation was written, and the shape of what comes out."""
    shape = ", ".join(f"{form.dtype}[{','.join(map(str, form.shape))}]" for form in program.of(one.outputs))
    return Record(made.name, made.inputs, made.outputs, one.source, shape)


def _whole(rows: jax.Array, shape: Sequence[int]) -> np.ndarray:
    """A tensor from its slices, one for each device; of a scalar the first."""
    found = np.asarray(rows)
    size = int(np.prod(shape, dtype=np.int64))
    return found.reshape(-1)[:size].reshape(tuple(shape))
