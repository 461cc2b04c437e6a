"""A train step of profile exact taken apart: what one processor computes otherwise is named, and said to be wrong by the
definition. Two processors are two lots of programs in this process, of which one has another reciprocal root."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import jax.numpy as jnp
import msgspec
import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from marin.plugins.exact import compiled, reference
from marin.plugins.exact.step import update_of
from marin.plugins.explain import exactly, opened, stepwise
from marin.plugins.explain.exactly import ExactStepwise
from marin.plugins.explain.explain import first_operation
from marin.plugins.explain.opened import Opened, Question
from marin.recipe.schema import Recipe, plain
from marin.training.data import Batch
from marin.training.optimizers.rule import optimizer
from marin.training.state import state_like
from marin.training.step.slices import Layout
from marin.verify.segments.explanation import Record

pytestmark = pytest.mark.long(together="taken apart", seconds=45)

AT = 1
"""The first train step with a learning rate."""


ONE = {"hidden": 16, "layers": 1, "length": 16, "batch": 4, "steps": 2}
"""Of step/test_exact.py too: compiled once for both."""


def asked(worker: ModuleType, folder: Path, patch: pytest.MonkeyPatch, microbatch: int, **sizes: int) -> Question:
    """The programs from the initial state on, of batches that are not read from a cache."""
    recipe = worker.recipe_of(worker.Case("exact", profile="exact", **sizes))
    arithmetic = msgspec.structs.replace(recipe.arithmetic, microbatch_size=microbatch)
    recipe = msgspec.structs.replace(recipe, arithmetic=arithmetic)
    vocabulary = {str(number): number for number in range(worker.VOCABULARY)}
    Tokenizer(WordLevel(vocabulary, unk_token="0")).save(str(folder / "tokenizer.json"))

    def batches(recipe: Recipe, tokens: Path, mesh: Any, start: int) -> Iterator[Batch]:
        case = worker.Case("exact", batch=recipe.trainer.batch_size, length=recipe.model.seq_len)
        for number in range(start, recipe.trainer.num_steps):
            tokens, weights = worker.batch_of(case, number)
            yield Batch(number, np.arange(case.batch), jnp.asarray(tokens), jnp.asarray(weights), "")

    patch.setattr(opened, "Batches", lambda *where: nullcontext(batches(*where)))
    return Question("open", recipe=plain(recipe), tokenizer=str(folder), tokens=str(folder))


@pytest.fixture(scope="module")
def question(worker: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Question]:
    """One layer, two microbatches."""
    with pytest.MonkeyPatch.context() as patch:
        yield asked(worker, tmp_path_factory.mktemp("asked"), patch, 2, **ONE)


@contextmanager
def another(operation: str) -> Iterator[None]:
    """A processor that gives the number after the right one."""
    honest = compiled._OPERATIONS[operation]

    def forged(*given: Any) -> Any:
        return jnp.nextafter(honest(*given), jnp.float32(jnp.inf))

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(compiled._OPERATIONS, operation, forged)  # type: ignore[arg-type]
        yield


class Pair:
    """Two workers; the second computes one operation as :func:`another` does. ``honest``: the first, opened before."""

    def __init__(self, question: Question, forged: str = "", honest: Opened | None = None) -> None:
        self.forged = forged
        self.workers: list[Opened | None] = [honest, None]
        for number in range(1 if honest else 0, 2):
            self.ask_one(number, question)

    def ask(self, **question: Any) -> list[dict[str, Any]]:
        """As :mod:`marin.plugins.explain.explain` asks two processes."""
        given = msgspec.convert(question, Question)
        return [self.ask_one(number, given) for number in range(len(self.workers))]

    def ask_one(self, number: int, question: Question) -> dict[str, Any]:
        """As one process is asked."""
        with another(self.forged) if number and self.forged else pytest.MonkeyPatch.context():
            self.workers[number], reply = stepwise.answer(self.workers[number], question)
        assert reply.error == ""
        answered: dict[str, Any] = msgspec.to_builtins(reply)
        return answered


@pytest.fixture(scope="module")
def equals(question: Question) -> Pair:
    """Two honest workers, each with its own programs; every question begins with the initial state."""
    return Pair(question)


JUDGED = ["honest: gives what docs/exact.md says of it", "forged: does not give what docs/exact.md says of it"]


def test_the_first_operation_of_a_forged_processor_is_named_with_who_is_wrong(question: Question, equals: Pair) -> None:
    pair = Pair(question, "sqrt", equals.workers[0])
    found = first_operation(AT, ("honest", "forged"), pair.ask, [])
    assert (found.level, found.program, found.operation.rpartition(":")[2]) == ("operation", "update", "sqrt")
    assert ".py:" in found.source and len(set(found.digests)) == 2
    assert any("first in order of execution: " in line and "/" in line for line in found.lines)
    assert list(found.lines[-2:]) == JUDGED


@pytest.mark.determinism
def test_a_layer_is_named_by_the_turn_of_its_loop(
    worker: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = asked(worker, tmp_path, monkeypatch, 4, **{**ONE, "layers": 2})
    found = first_operation(0, ("honest", "forged"), Pair(question, "rsqrt").ask, [])
    assert (found.level, found.program, found.operation.rpartition(":")[2]) == ("operation", "gradient", "rsqrt")
    assert "scan[0]/" in found.operation, "the first of two layers"
    assert ".py:" in found.source
    assert any("first in order of execution: gradient of model/embeddings" in line for line in found.lines)
    assert list(found.lines[-2:]) == JUDGED


def test_equal_processors_have_nothing_to_name(equals: Pair) -> None:
    assert first_operation(AT, ("one", "other"), equals.ask, []).level == "program"


def test_the_parts_of_a_step_are_its_whole(worker: ModuleType, equals: Pair) -> None:
    """Executed alone, and compiled up to the last, operations give what the program gives; the reference agrees."""
    taken, inputs = equals.workers[0], dict[str, Sequence[Any]]()
    assert isinstance(taken, ExactStepwise)

    def kept(name: str, given: Sequence[Any], *made: Any) -> Record:
        inputs[name] = given
        return opened.record(name, given, *made)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exactly, "record", kept)
        *_, update = taken.programs(AT)
    operations = {one.name: one for one in taken.operations("update")}
    example = state_like(taken.recipe, worker.VOCABULARY)
    program = update_of(taken.recipe, Layout(example, optimizer(taken.recipe), 1)).program
    for count in (1, taken.count("update") // 2, taken.count("update")):
        together, length = taken.prefix("update", count)
        assert length == len(program.operations)
        assert together.outputs == operations[together.name].outputs
    assert taken.reference("update", together.name)[0].outputs == together.outputs
    right = reference.run(program, inputs["update"])
    layout = taken.step.layout
    shapes = [x.shape for x in (*layout.params, *layout.moments)]
    whole = [x.reshape(shape) for x, shape in zip(right, [*shapes, (), ()], strict=True)]
    assert [opened.digest_of(x) for x in whole] == update.outputs
