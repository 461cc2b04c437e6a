"""One train step taken apart, in a process of its own under one setting: digests of what its programs and operations
make.

`marin verify --explain` starts two of these (``python -m marin.verify.jax.stepwise``), each under the variables of its
setting, and asks them the same questions. Questions and answers are JSON lines on stdin and stdout; nothing else is
written there. The machine is not asked whether it honours the arithmetic contract: to break it is what this is for.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import jax
import msgspec
import numpy as np

from ledger import LedgerError, tensor_digest
from marin.errors import UsageError
from marin.process.cache import compilation_cache
from marin.recipe.schema import from_plain
from marin.record.events import Json
from marin.training.data import Batch, batches
from marin.training.loop import fingerprint_of
from marin.training.model import vocabulary_size
from marin.training.runtime.compilation import use_compilation_cache
from marin.training.slices import SlicedState
from marin.training.state import _make as make_initial
from marin.training.state import initial_state, leaves, load
from marin.training.state import local as local_bytes
from marin.training.step import TrainStep, mesh_of, shard_sums, slice_square, slice_update
from marin.verify.jax import interpreter
from marin.verify.segments.explanation import Record

INITIAL = "initial state"


class Question(msgspec.Struct, frozen=True):
    """``do``: open (make the programs and the state before ``step``), fingerprints, programs, operations, prefix."""

    do: str
    recipe: Json = {}
    tokens: str = ""
    tokenizer: str = ""
    checkpoint: str = ""
    state: str = ""
    devices: int = 1
    start: int = 0
    step: int = 0
    end: int = 0
    program: str = ""
    number: int = 0
    count: int = 0


class Reply(msgspec.Struct, frozen=True):
    """``error``: one line; otherwise what was asked for."""

    error: str = ""
    fingerprints: list[str] = []
    records: list[Record] = []
    count: int = 0


class Stepwise:
    """The programs of one recipe under this process's settings, and a state to start from."""

    def __init__(self, question: Question) -> None:
        use_compilation_cache(compilation_cache())
        self.recipe = from_plain(question.recipe, where="recipe of the run")
        if self.recipe.arithmetic.profile == "exact":
            raise UsageError(
                "a train step of profile exact is not taken apart",
                where="--explain",
                expected="a recipe of another profile",
                found="exact",
                cure="its programs have one result each (docs/exact.md): execute them by marin.exact.reference",
            )
        vocab = vocabulary_size(Path(question.tokenizer))
        self._first = initial_state(self.recipe, vocab)
        self._vocab = vocab
        self._tokens = Path(question.tokens) / "train"
        self.mesh = mesh_of(question.devices)
        self.step = TrainStep(self.recipe, self.mesh, self._first)
        self._start, self._base = question.start, self._first
        if question.checkpoint:
            self._base, _ = load(
                Path(question.checkpoint),
                self.recipe,
                vocab,
                question.state,
                where=f"training checkpoint before train step {question.start}",
            )
        self._made: dict[str, list[Any]] = {}
        self._blank = False

    def fingerprints(self, end: int) -> list[str]:
        """Of every train step from the start up to ``end``."""
        state, found = self.step.place(self._base), []
        for batch in self._batches(end):
            state, outcome = self.step.run(state, batch.tokens, batch.weights, blank=batch.blank)
            found.append(fingerprint_of(outcome))
        return found

    def _batches(self, end: int) -> Sequence[Batch]:
        stream = batches(self.recipe, self._tokens, self.mesh, self._start)
        return [next(stream) for _ in range(end - self._start)]

    def _before(self, number: int) -> tuple[SlicedState, Batch]:
        state = self.step.place(self._base)
        *earlier, last = self._batches(number + 1)
        for batch in earlier:
            state, _ = self.step.run(state, batch.tokens, batch.weights, blank=batch.blank)
        return state, last

    def programs(self, number: int) -> list[Record]:
        """Train step ``number``, program by program, by logical shard and slice; keeps what went into each."""
        state, batch = self._before(number)
        self._blank = batch.blank
        step = self.step
        local, devices = step.local_shards, step.devices
        records: list[Record] = []
        if number == 0:
            made = [local_bytes(value) for _, value in leaves(self._first)]
            self._made[INITIAL] = []
            records.append(_record(INITIAL, [], made))
        arrays = step.programs.gather(state.params)
        whole = [np.asarray(x.addressable_data(0)) for x in jax.tree.leaves(arrays)]
        records.append(
            _record("gather parameters", [x for p in state.params for x in p], whole, order=(local, devices))
        )
        size = step.shard_size
        tokens, weights = (np.asarray(jax.device_get(x)) for x in (batch.tokens, batch.weights))
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
            self._made[f"gradient {shard}"] = [*whole, tokens[cut], weights[cut]]
            records.append(_record(f"gradient {shard}", self._made[f"gradient {shard}"], rows[shard]))
        grads, loss, weight = step.programs.exchange(step.sums(arrays, batch.tokens, batch.weights, blank=batch.blank))
        scalars = [np.asarray(x.addressable_data(0)) for x in (loss, weight)]
        slices = {d * local + j: [np.asarray(x)[d] for x in grads[j]] for j in range(local) for d in range(devices)}
        records.append(
            _record(
                "sum over shards",
                [x for s in sorted(rows) for x in rows[s]],
                [*(x for s in sorted(slices) for x in slices[s]), *scalars],
            )
        )
        squares = tuple(step.programs.square(piece) for piece in grads)
        for s in range(local * devices):
            self._made[f"square {s}"] = slices[s]
            records.append(_record(f"square {s}", slices[s], [np.asarray(squares[s % local])[s // local]]))
        square = step.programs.total(squares)
        total = np.asarray(square.addressable_data(0))
        records.append(
            _record(
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
                self._made[f"update {s}"] = [*before[s], *slices[s], total, *scalars, np.uint32(s)]
                records.append(_record(f"update {s}", self._made[f"update {s}"], made))
        order = {name: i for i, name in enumerate(_ORDER)}
        return sorted(records, key=lambda record: (order[record.name.rstrip("0123456789 ")], _number(record.name)))

    def _traced(self, program: str) -> tuple[Any, list[Any]]:
        """The jaxpr of one program on one shard or slice, and its arguments."""
        given, layout = self._made[program], self.step.layout
        kind = program.partition(" ")[0]
        counts = len(layout.params), len(layout.moments)
        function: Callable[..., Any]
        if program == INITIAL:

            def function(*values: Any) -> Any:
                return [value for _, value in leaves(make_initial(self.recipe, self._vocab)())]
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
                Record(
                    name, [_digest(x) for x in given], [_digest(x) for x in made], interpreter.source(equation), shape
                )
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
            [_digest(x) for x in made],
            interpreter.source(equation),
            ", ".join(str(var.aval.str_short()) for var in equation.outvars),
        ), interpreter.length(traced)

    def count(self, program: str) -> int:
        """How many operations a program has at its top."""
        return interpreter.length(self._traced(program)[0])


_ORDER = (INITIAL, "gather parameters", "gradient", "sum over shards", "square", "sum of squares", "update")


def _number(name: str) -> int:
    last = name.rpartition(" ")[2]
    return int(last) if last.isdecimal() else -1


def _record(name: str, inputs: Sequence[Any], outputs: Sequence[Any], order: tuple[int, int] | None = None) -> Record:
    """``order``: (local, devices) of inputs that are rows per device; they are said by logical slice."""
    if order is not None:
        local, devices = order
        per = len(inputs) // local
        inputs = [np.asarray(inputs[j * per + i])[d] for d in range(devices) for j in range(local) for i in range(per)]
    return Record(name, [_digest(x) for x in inputs], [_digest(x) for x in outputs])


def _digest(value: Any) -> str:
    is_key = isinstance(value, jax.Array) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)
    array = np.asarray(jax.random.key_data(value) if is_key else value)
    return f"{array.dtype}{list(array.shape)}" if array.dtype.itemsize == 0 else tensor_digest(array)


def answer(worker: Stepwise | None, question: Question) -> tuple[Stepwise | None, Reply]:
    """One reply; an error of the ledger's tree is a reply too."""
    try:
        if question.do == "open" or worker is None:
            return Stepwise(question), Reply()
        match question.do:
            case "fingerprints":
                return worker, Reply(fingerprints=worker.fingerprints(question.end))
            case "programs":
                return worker, Reply(records=worker.programs(question.step))
            case "operations":
                return worker, Reply(records=worker.operations(question.program))
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
    worker: Stepwise | None = None
    for line in questions:
        worker, reply = answer(worker, msgspec.json.decode(line, type=Question))
        replies.write(msgspec.json.encode(reply) + b"\n")
        replies.flush()


if __name__ == "__main__":
    channel = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints is no answer
    serve(sys.stdin.buffer, channel)
