"""One train step taken apart, in a process of its own under one setting: digests of what its programs and operations
make.

`marin verify --explain` starts two of these (``python -m marin.plugins.explain.stepwise``), each under the variables of its
setting, and asks them the same questions. Questions and answers are JSON lines on stdin and stdout; nothing else is
written there. The machine is not asked whether it honours the arithmetic contract: to break it is what this is for.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, BinaryIO

import jax
import msgspec
import numpy as np

from ledger import LedgerError
from marin.plugins.exact.tracing import written_at
from marin.plugins.explain import interpreter
from marin.plugins.explain.exactly import ExactStepwise
from marin.plugins.explain.opened import INITIAL, Opened, Question, digest_of, record
from marin.recipe.schema import from_plain
from marin.training.state import initial_state_function, leaves
from marin.training.step.shards import TrainStep, shard_sums
from marin.training.step.update import slice_square, slice_update
from marin.verify.segments.explanation import Record


class Reply(msgspec.Struct, frozen=True):
    """``error``: one line; otherwise what was asked for."""

    error: str = ""
    fingerprints: list[str] = []
    records: list[Record] = []
    count: int = 0


class Stepwise(Opened):
    """Of a train step in logical shards and slices."""

    @property
    def step(self) -> TrainStep:
        """The compiled train step."""
        assert isinstance(self._step, TrainStep)
        return self._step

    def programs(self, number: int) -> list[Record]:
        """Train step ``number``, program by program, by logical shard and slice; keeps what went into each."""
        state, batch = self._before(number)
        step = self.step
        local, devices = step.local_shards, step.devices
        records: list[Record] = []
        if number == 0:
            records.append(self._initial())
        arrays = step.programs.gather(state.params)
        whole = [np.asarray(x.addressable_data(0)) for x in jax.tree.leaves(arrays)]
        before_gather = _input_rows([x for p in state.params for x in p], local, devices)
        records.append(record("gather parameters", before_gather, whole))
        size = step.shard_size
        tokens, weights = (np.asarray(jax.device_get(x)) for x in (batch.tokens, batch.weights))
        # By logical shard and slice, whose numbers are the same on any number of devices: two settings are compared row by row.
        rows: dict[int, list[np.ndarray]] = {}
        parts: list[Any] = []
        for j in range(local):
            part = step.gradient(batch.blank)(
                arrays, *step.programs.select(batch.tokens, batch.weights, step.shard_numbers[j])
            )
            parts.append(part)
            for d in range(devices):
                rows[d * local + j] = [np.asarray(leaf)[d] for leaf in jax.tree.leaves(part)]
        for shard in range(local * devices):
            cut = slice(shard * size, (shard + 1) * size)
            self._arguments[f"gradient {shard}"] = [*whole, tokens[cut], weights[cut]]
            records.append(record(f"gradient {shard}", self._arguments[f"gradient {shard}"], rows[shard]))
        # Once more, as a train step does it: its gradients are summed before they are exchanged, and the sum is a program too.
        grads, loss, weight = step.programs.exchange(step.sums(arrays, batch.tokens, batch.weights, blank=batch.blank))
        scalars = [np.asarray(x.addressable_data(0)) for x in (loss, weight)]
        slices = {d * local + j: [np.asarray(x)[d] for x in grads[j]] for j in range(local) for d in range(devices)}
        records.append(
            record(
                "sum over shards",
                [x for s in sorted(rows) for x in rows[s]],
                [*(x for s in sorted(slices) for x in slices[s]), *scalars],
            )
        )
        squares = tuple(step.programs.square(piece) for piece in grads)
        for s in range(local * devices):
            self._arguments[f"square {s}"] = slices[s]
            records.append(record(f"square {s}", slices[s], [np.asarray(squares[s % local])[s // local]]))
        square = step.programs.total(squares)
        total = np.asarray(square.addressable_data(0))
        records.append(
            record(
                "sum of squares", [np.asarray(squares[s % local])[s // local] for s in range(local * devices)], [total]
            )
        )
        before = {
            d * local + j: [np.asarray(x)[d] for x in (*state.params[j], *state.moments[j])]
            for j in range(local)
            for d in range(devices)
        }
        for j in range(local):
            (params, moments, prints), mean, norm = step.programs.update(
                state.params[j], state.moments[j], grads[j], step.slice_numbers[j], square, loss, weight
            )
            for d in range(devices):
                s = d * local + j
                made = [np.asarray(x)[d] for x in (*params, *moments, prints)]
                made += [np.asarray(x.addressable_data(0)) for x in (mean, norm)]
                self._arguments[f"update {s}"] = [*before[s], *slices[s], total, *scalars, np.uint32(s)]
                records.append(record(f"update {s}", self._arguments[f"update {s}"], made))
        # In the order of the calculation: the first record that differs is the cause, and those after it follow from it.
        order = {name: i for i, name in enumerate(_ORDER)}
        return sorted(
            records, key=lambda record: (order[record.name.rstrip("0123456789 ")], _last_integer(record.name))
        )

    def _traced(self, program: str) -> tuple[Any, list[Any]]:
        """The jaxpr of one program on one shard or slice, and its arguments."""
        given, layout = self._arguments[program], self.step.layout
        kind = program.partition(" ")[0]
        counts = len(layout.params), len(layout.moments)
        function: Callable[..., Any]
        if program == INITIAL:

            def function(*values: Any) -> Any:
                return [value for _, value in leaves(initial_state_function(self.recipe, self._vocab)())]
        elif kind == "gradient":
            structure = jax.tree.structure(layout.named)

            def function(*values: Any) -> Any:
                arrays = jax.tree.unflatten(structure, values[:-2])
                return shard_sums(layout.static, self.recipe, arrays, *values[-2:], blank=self._blank)
        elif kind == "square":

            def function(*values: Any) -> Any:
                return slice_square(values)
        else:
            update = partial(slice_update, self.recipe, layout)

            def function(*values: Any) -> Any:
                a, b = counts[0], counts[0] + counts[1]
                square, loss, weight, number = values[b + a :]
                return update(values[:a], values[a:b], values[b : b + a], square, loss, weight, number)

        values = [jax.device_put(np.asarray(value), jax.local_devices()[0]) for value in given]
        return jax.make_jaxpr(function)(*values), values

    def operations(self, program: str) -> list[Record]:
        """Every operation of one program, executed alone."""
        traced, values = self._traced(program)
        records: list[Record] = []

        def visit(name: str, equation: Any, given: Sequence[Any], made: Sequence[Any]) -> None:
            shape = ", ".join(str(var.aval.str_short()) for var in equation.outvars)
            records.append(
                Record(name, [digest_of(x) for x in given], [digest_of(x) for x in made], written_at(equation), shape)
            )

        interpreter.execute(traced, values, visit)
        return records

    def prefix(self, program: str, count: int) -> tuple[Record, int]:
        """The last operation of the first ``count`` of a program compiled as one; and how many there are."""
        traced, values = self._traced(program)
        equation, made = interpreter.prefix(traced, values, count)
        return Record(
            f"{count}:{equation.primitive.name}",
            [],
            [digest_of(x) for x in made],
            written_at(equation),
            ", ".join(str(var.aval.str_short()) for var in equation.outvars),
        ), interpreter.length(traced)

    def count(self, program: str) -> int:
        """How many operations a program has at its top."""
        return interpreter.length(self._traced(program)[0])


_ORDER = (INITIAL, "gather parameters", "gradient", "sum over shards", "square", "sum of squares", "update")


def _last_integer(name: str) -> int:
    last = name.rpartition(" ")[2]
    return int(last) if last.isdecimal() else -1


def _input_rows(inputs: Sequence[Any], local: int, devices: int) -> list[Any]:
    """Inputs that are rows per device, said by logical slice."""
    per = len(inputs) // local
    return [np.asarray(inputs[j * per + i])[d] for d in range(devices) for j in range(local) for i in range(per)]


def open_programs(question: Question) -> Opened:
    """The programs of the question's recipe, by its profile."""
    recipe = from_plain(question.recipe, where="recipe of the run")
    return (ExactStepwise if recipe.arithmetic.profile == "exact" else Stepwise)(recipe, question)


def answer(worker: Opened | None, question: Question) -> tuple[Opened | None, Reply]:
    """One reply; an error of the ledger's tree is a reply too."""
    try:
        if question.do == "open" or worker is None:
            return open_programs(question), Reply()
        match question.do:
            case "fingerprints":
                return worker, Reply(fingerprints=worker.fingerprints(question.end))
            case "programs":
                return worker, Reply(records=worker.programs(question.step))
            case "operations":
                return worker, Reply(records=worker.operations(question.program))
            case "reference":
                return worker, Reply(records=worker.reference(question.program, question.operation))
            case "count":
                return worker, Reply(count=worker.count(question.program))
            case "prefix":
                record, count = worker.prefix(question.program, question.count)
                return worker, Reply(records=[record], count=count)
        return worker, Reply(error=f"unknown question {question.do}")
    except LedgerError as error:
        return worker, Reply(error=str(error))


def serve(questions: BinaryIO, replies: BinaryIO) -> None:
    """Answer until the questions end."""
    worker: Opened | None = None
    for line in questions:
        worker, reply = answer(worker, msgspec.json.decode(line, type=Question))
        replies.write(msgspec.json.encode(reply) + b"\n")
        replies.flush()


if __name__ == "__main__":
    channel = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints is not an answer
    serve(sys.stdin.buffer, channel)
