"""A train step of profile exact taken apart: what one processor computes otherwise is named, and said to be wrong by the
definition. Two processors are two lots of programs in this process, of which one has another reciprocal root."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import jax.numpy as jnp
import msgspec
import numpy as np
import pytest

from marin.exact import compiled, reference
from marin.recipe.schema import Recipe, plain
from marin.training.data import Batch
from marin.verify.jax import opened, stepwise
from marin.verify.jax.exactly import ExactStepwise
from marin.verify.jax.opened import Opened, Question
from marin.verify.segments.explain import _search

AT = 1


@pytest.fixture(scope="module")
def recipe(worker: ModuleType) -> Recipe:
    """Two layers: what differs is in the first."""
    case = worker.Case("apart", profile="exact", hidden=16, layers=2, length=16, batch=4, steps=2)
    made: Recipe = worker.recipe_of(case)
    return made


@pytest.fixture
def question(recipe: Recipe, worker: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Question:
    """The programs from the initial state on, of batches that are not read from a cache."""
    vocabulary = {str(number): number for number in range(worker.VOCABULARY)}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary}}))

    def batches(recipe: Recipe, folder: Path, mesh: Any, start: int) -> Iterator[Batch]:
        case = worker.Case("apart", batch=recipe.trainer.batch_size, length=recipe.model.seq_len)
        for number in range(start, recipe.trainer.num_steps):
            tokens, weights = worker.batch_of(case, number)
            yield Batch(number, np.arange(case.batch), jnp.asarray(tokens), jnp.asarray(weights), "")

    monkeypatch.setattr(opened, "batches", batches)
    return Question("open", recipe=plain(recipe), tokenizer=str(tmp_path), tokens=str(tmp_path))


@contextmanager
def another_root() -> Iterator[None]:
    """A processor whose reciprocal root is the next number."""
    honest = compiled._OPERATIONS["rsqrt"]

    def forged(*given: Any) -> Any:
        return jnp.nextafter(honest(*given), jnp.float32(jnp.inf))

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(compiled._OPERATIONS, "rsqrt", forged)  # type: ignore[arg-type]
        yield


class Pair:
    """Two workers; the second computes as :func:`another_root` does, where it is forged."""

    def __init__(self, question: Question, *, forged: bool) -> None:
        self.forged = forged
        self.workers: list[Opened | None] = [None, None]
        self.ask(**msgspec.to_builtins(question))

    def ask(self, **question: Any) -> list[dict[str, Any]]:
        """As :mod:`marin.verify.segments.explain` asks two processes."""
        given, replies = msgspec.convert(question, Question), []
        for number, worker in enumerate(self.workers):
            with another_root() if number and self.forged else pytest.MonkeyPatch.context():
                self.workers[number], reply = stepwise.answer(worker, given)
            assert reply.error == ""
            replies.append(msgspec.to_builtins(reply))
        return replies


def test_the_first_operation_of_a_forged_processor_is_named_with_its_layer_and_who_is_wrong(question: Question) -> None:
    pair, lines = Pair(question, forged=True), list[str]()
    found = _search(0, ("honest", "forged"), pair.ask, lines)
    assert (found.level, found.program, found.operation.rpartition(":")[2]) == ("operation", "gradient", "rsqrt")
    assert "scan[0]/" in found.operation, "the first layer"
    assert ".py:" in found.source and "norm" in found.source
    assert len(set(found.digests)) == 2
    assert any("first in order of execution: gradient of model/embeddings" in line for line in found.lines)
    assert list(found.lines[-2:]) == [
        "honest: gives what docs/exact.md says of it",
        "forged: does not give what docs/exact.md says of it",
    ]


def test_equal_processors_have_nothing_to_name(question: Question) -> None:
    pair = Pair(question, forged=False)
    assert _search(AT, ("one", "other"), pair.ask, []).level == "program"


def test_the_parts_of_a_step_are_its_whole(question: Question) -> None:
    """Executed alone, and compiled up to the last, operations give what the program gives; the reference agrees."""
    worker = Pair(question, forged=False).workers[0]
    assert isinstance(worker, ExactStepwise)
    *_, update = worker.programs(AT)
    operations = {one.name: one for one in worker.operations("update")}
    program = worker._program("update")
    for count in (1, worker.count("update") // 2, worker.count("update")):
        together, length = worker.prefix("update", count)
        assert length == len(program.operations)
        assert together.outputs == operations[together.name].outputs
    assert worker.reference("update", together.name)[0].outputs == together.outputs
    right = reference.run(program, worker._made["update"])
    shapes = [np.shape(x) for x in worker._likes()]
    whole = [x.reshape(shape) for x, shape in zip(right, [*shapes, (), ()], strict=True)]
    assert [opened.digest_of(x) for x in whole] == update.outputs
