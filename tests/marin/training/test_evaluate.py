"""What the evaluation counts: strict wins, ties apart, sums over the right tokens."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Literal

import jax.random as jrandom
import numpy as np
import pytest
from haliax import Axis
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from marin.errors import DataError
from marin.evaluation.evaluate import PairScore, pair_metrics, phenomena_table, read_pairs, sample, score_pairs, scorer
from marin.recipe.schema import Evaluation, Model, Recipe
from marin.training.model import model_config

RECIPE = Recipe(model=Model(seq_len=8), evaluation=Evaluation(batch_size=3))


def words() -> Tokenizer:
    vocabulary = {"<|endoftext|>": 0, "the": 1, "dog": 2, "runs": 3, "run": 4}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<|endoftext|>"))
    tokenizer.pre_tokenizer = Whitespace()
    return tokenizer


PAIRS = [{"phenomenon": "agreement", "pair": str(i), "good": "the dog runs", "bad": "the dog run"} for i in range(4)]


def test_a_constant_model_wins_nothing_and_its_ties_show() -> None:
    scores = list(score_pairs(PAIRS, words(), RECIPE, lambda tokens, weights: -weights.sum(axis=1)))
    assert pair_metrics(scores) == {"pairs": 4.0, "pairs_won": 0.0, "pairs_tied": 1.0}


def test_every_token_of_the_sentence_counts_once_and_nothing_else() -> None:
    seen: list[tuple[list[int], list[float]]] = []

    def score(tokens: np.ndarray, weights: np.ndarray) -> np.ndarray:
        seen.extend(zip(tokens.tolist(), weights.tolist(), strict=True))
        predicted = np.roll(tokens, -1, axis=1)
        return (weights * np.where(predicted == 3, -1.0, -2.0)).sum(axis=1)

    scores = list(score_pairs(PAIRS, words(), RECIPE, score))
    assert seen[0] == ([0, 1, 2, 3, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0, 0, 0])
    assert [(s.good, s.bad) for s in scores] == [(-5.0, -6.0)] * 4
    assert pair_metrics(scores)["pairs_won"] == 1.0


def test_that_a_pair_was_compared_by_its_beginnings_is_said(caplog: pytest.LogCaptureFixture) -> None:
    long = {"phenomenon": "far", "pair": "4", "good": "the dog " * 4 + "runs", "bad": "the dog " * 4 + "run"}
    scores = list(score_pairs([*PAIRS, long], words(), RECIPE, lambda tokens, weights: -(tokens * weights).sum(axis=1)))
    assert scores[-1].good == scores[-1].bad, "what parts them lies behind the eighth token"
    assert "2 of 10 texts are compared by their first 8 tokens" in caplog.text


def test_the_table_has_a_row_per_phenomenon() -> None:
    scores = [PairScore("b", "1", -1.0, -2.0), PairScore("a", "2", -2.0, -1.0), PairScore("a", "3", -1.0, -1.0)]
    rows = list(csv.DictReader(phenomena_table(scores).splitlines()))
    assert rows == [
        {"phenomenon": "a", "pairs": "2", "won": "0.0", "tied": "0.5"},
        {"phenomenon": "b", "pairs": "1", "won": "1.0", "tied": "0.0"},
    ]


def test_without_pairs_there_are_no_such_metrics(tmp_path: Path) -> None:
    assert read_pairs(tmp_path / "absent.jsonl", 10) == []
    assert pair_metrics([]) == {}


@pytest.mark.parametrize(
    "line", [b"{}", b"[1]", b"a pair", b"\xff", b'{"sentence_good": 1, "sentence_bad": "b"}', b"[" * 100_000]
)
def test_a_line_that_is_no_pair_is_named(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "pairs.jsonl"
    pair = {"sentence_good": "a", "sentence_bad": "b", "UID": "x", "pairID": 7}
    path.write_bytes(json.dumps(pair).encode() + b"\n" + line + b"\n")
    assert read_pairs(path, 1) == [{"phenomenon": "x", "pair": "7", "good": "a", "bad": "b"}]
    with pytest.raises(DataError, match=r"pairs.jsonl:2"):
        read_pairs(path, 2)


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "qwen3"])
def test_every_architecture_is_scored_and_sampled(architecture: Literal["llama", "gpt2", "qwen3"]) -> None:
    shape = Model(
        architecture=architecture,
        hidden_dim=16,
        intermediate_dim=32,
        num_layers=1,
        num_heads=2,
        num_kv_heads=2,
        seq_len=8,
    )
    recipe = Recipe(model=shape, evaluation=Evaluation(batch_size=3))
    model = model_config(shape).build(Axis("vocab", 5), key=jrandom.PRNGKey(0))
    scores = list(score_pairs(PAIRS, words(), recipe, scorer(model, recipe)))
    assert len(scores) == len(PAIRS) and all(score.good < 0.0 for score in scores)
    assert sample(model, words(), recipe) == sample(model, words(), recipe) != ""
