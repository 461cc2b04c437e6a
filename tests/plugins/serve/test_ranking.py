from __future__ import annotations

import haliax as hax
import jax.random as jrandom
import msgspec
import numpy as np
import pytest
from haliax import Axis
from levanter.models.lm_model import LmHeadModel

from marin.evaluation.scoring import Row, Scorer
from marin.plugins.serve.ranking import RANKED, Ranker
from marin.recipe.arithmetic import EXACT
from marin.recipe.schema import Model, Recipe
from marin.training.model import attention_mask, model_config

VOCAB = 31
RECIPE = Recipe(model=Model(hidden_dim=16, intermediate_dim=32, num_layers=1, num_heads=2, num_kv_heads=2, seq_len=48))


@pytest.fixture(scope="module")
def model() -> LmHeadModel:
    return model_config(RECIPE.model).build(Axis("vocab", VOCAB), key=jrandom.PRNGKey(1))


def rows_of(*sizes: int) -> list[Row]:
    draw = np.random.default_rng(5)
    return [Row(tuple(int(t) for t in draw.integers(0, VOCAB, size)), max(1, size // 2)) for size in sizes]


def last_logprobs(model: LmHeadModel, row: Row) -> np.ndarray:
    """Of what may come last, float64[token], from the unpadded sequence: what comes last is not read before it is predicted."""
    ids = hax.named(np.asarray([row.tokens[:-1]], np.int32), (Axis("batch", 1), Axis("position", len(row.tokens) - 1)))
    logits = np.asarray(model(ids, attention_mask(RECIPE, ids)).array[0, -1], np.float64)
    found: np.ndarray = logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())
    return found


def test_ranked_tokens_have_the_bits_of_a_score_and_the_order_of_the_logits(model: LmHeadModel) -> None:
    scorer, rows = Scorer(model, RECIPE), rows_of(2, 9, 30, 49)
    for row, scored, ranked in zip(rows, scorer.score(rows), Ranker(scorer).rank(rows), strict=True):
        assert ranked.logprobs == scored.logprobs
        assert [len(one) for one in ranked.likeliest] == [RANKED] * row.scored
        assert scored.greedy == all(
            one[0][0] == token for one, token in zip(ranked.likeliest, row.tokens[-row.scored :], strict=True)
        )
        every = last_logprobs(model, row)
        order = sorted(range(VOCAB), key=lambda token: -every[token])[:RANKED]
        assert [token for token, _ in ranked.likeliest[-1]] == order
        assert [value for _, value in ranked.likeliest[-1]] == pytest.approx([every[one] for one in order], abs=2e-5)
        assert dict(ranked.likeliest[-1]).get(row.tokens[-1], ranked.logprobs[-1]) == ranked.logprobs[-1]


@pytest.mark.long
def test_under_exact_too(model: LmHeadModel) -> None:
    scorer = Scorer(model, msgspec.structs.replace(RECIPE, arithmetic=EXACT))
    (row,) = rows_of(7)
    (scored,), (ranked,) = scorer.score([row]), Ranker(scorer).rank([row])
    assert ranked.logprobs == scored.logprobs
    for one, token, value in zip(ranked.likeliest, row.tokens[-row.scored :], ranked.logprobs, strict=True):
        assert dict(one).get(token, value) == value
