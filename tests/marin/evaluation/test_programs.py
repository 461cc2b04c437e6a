"""Programs that a process before has traced say what traced ones say, and only where the same would be traced."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree
from typing import Any, cast

import jax
import jax.random as jrandom
import msgspec
import numpy as np
import pytest
from haliax import Axis
from levanter.models.lm_model import LmHeadModel

import marin
from marin.evaluation import programs
from marin.evaluation.programs import ProgramCache
from marin.evaluation.scoring import Prompt, Row, Scored, Scorer
from marin.recipe.schema import Arithmetic, Model, Recipe
from marin.training.model import model_config

SMALL = Model(hidden_dim=16, intermediate_dim=32, num_layers=1, num_heads=2, num_kv_heads=2, seq_len=24)
PORTABLE = Recipe(model=SMALL)
EXACT = Recipe(model=SMALL, arithmetic=Arithmetic(profile="exact"))


def model_of(recipe: Recipe) -> LmHeadModel:
    return model_config(recipe.model).build(Axis("vocab", 31), key=jrandom.PRNGKey(1))


Answers = tuple[list[tuple[int, ...]], list[Scored]]


def answers(scorer: Scorer) -> Answers:
    """Greedy and drawn tokens of two lengths of programs, and log-likelihoods."""
    prompts = [Prompt((3, 4), 19, lambda _: False, heat, "one") for heat in (0.0, 0.8)]
    return scorer.generate(prompts, 5), scorer.score([Row((1, 2, 3, 4), 3)])


def next_token(scorer: Scorer) -> list[tuple[int, ...]]:
    """A token."""
    return scorer.generate([Prompt((3, 4), 1, lambda _: False, 0.8, "one")], 5)


class Untraced(Scorer):
    """One whose Python is not executed."""

    def next_tokens(self, *arguments: Any) -> Any:
        raise AssertionError("traced")

    def scored_rows(self, *arguments: Any) -> Any:
        raise AssertionError("traced")


def scorer_of(kind: type[Scorer], model: LmHeadModel, recipe: Recipe, folder: Path) -> Scorer:
    return kind(model, recipe, programs=ProgramCache(folder, model, recipe))


@pytest.mark.parametrize("recipe", [PORTABLE, EXACT], ids=["portable-cpu", "exact"])
def test_the_next_process_traces_nothing_and_says_every_bit(recipe: Recipe, tmp_path: Path) -> None:
    model = model_of(recipe)
    expected = answers(Scorer(model, recipe))
    assert answers(scorer_of(Scorer, model, recipe, tmp_path)) == expected
    there = sorted(path.name for path in tmp_path.iterdir())
    assert answers(scorer_of(Untraced, model, recipe, tmp_path)) == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == there and len(there) == 3


@pytest.fixture(scope="module")
def one_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    next_token(scorer_of(Scorer, model_of(PORTABLE), PORTABLE, folder))
    return folder


@pytest.fixture
def cache(one_program: Path, tmp_path: Path) -> Path:
    return copytree(one_program, tmp_path / "programs")


def traces(recipe: Recipe, cache: Path, model: LmHeadModel | None = None) -> bool:
    try:
        next_token(scorer_of(Untraced, model or model_of(recipe), recipe, cache))
    except AssertionError:
        return True
    return False


def test_another_state_has_the_same_programs(cache: Path) -> None:
    assert not traces(PORTABLE, cache)
    other = model_config(SMALL).build(Axis("vocab", 31), key=jrandom.PRNGKey(2))
    assert next_token(scorer_of(Untraced, other, PORTABLE, cache)) == next_token(Scorer(other, PORTABLE))


def test_what_decides_a_program_is_in_its_name(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert traces(msgspec.structs.replace(PORTABLE, seed=7), cache)
    wider = model_config(SMALL).build(Axis("vocab", 32), key=jrandom.PRNGKey(1))
    assert traces(PORTABLE, cache, wider)
    other = msgspec.structs.replace(SMALL, rope_theta=500.0)
    assert traces(PORTABLE, cache, model_config(other).build(Axis("vocab", 31), key=jrandom.PRNGKey(1)))
    files = list(programs.source_files(marin))
    assert any(path.endswith("evaluation/scoring.py") for path, _, _ in files)
    later = [(path, size, when + "1" * path.endswith("evaluation/scoring.py")) for path, size, when in files]
    monkeypatch.setattr(programs, "source_files", lambda module: later)
    assert traces(PORTABLE, cache)


def test_what_a_model_holds_beside_its_parameters_is_in_the_name(tmp_path: Path) -> None:
    """A program has it as constants."""
    whole = np.arange(3000)
    other = whole.copy()
    other[1500] = 0
    held: list[Any] = [[whole], [other], [whole.astype(np.int32)], [True], [False], [0.5], []]
    for number, model in enumerate(held):
        program = ProgramCache(tmp_path, cast("Any", model), PORTABLE).program("f", jax.jit(lambda x, n=number: x + n))
        assert program(np.zeros(1, np.float32)) == number


def test_a_program_that_cannot_be_read_is_traced(cache: Path) -> None:
    (file,) = cache.iterdir()
    file.unlink()
    file.mkdir()
    assert traces(PORTABLE, cache)
    next_token(scorer_of(Scorer, model_of(PORTABLE), PORTABLE, cache))


@pytest.mark.parametrize("size", [0, 500, -1])
def test_a_damaged_program_is_traced_again_and_replaced(size: int, cache: Path) -> None:
    (file,) = cache.iterdir()
    file.write_bytes(file.read_bytes()[:size] + b"x" * max(0, -size))
    assert traces(PORTABLE, cache)
    next_token(scorer_of(Scorer, model_of(PORTABLE), PORTABLE, cache))
    assert not traces(PORTABLE, cache)


def test_texts_that_are_compared_with_a_record_are_traced(tmp_path: Path) -> None:
    scorer = scorer_of(Untraced, model_of(EXACT), EXACT, tmp_path)
    assert scorer.programs is not None and scorer.one_by_one().programs is None
