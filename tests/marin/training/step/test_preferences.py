"""Preferences: neighbours stay neighbours, and the loss is DPO's, by an arithmetic of its own."""

from __future__ import annotations

import equinox as eqx
import haliax as hax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from levanter.layers.attention import AttentionMask
from levanter.models.lm_model import LmHeadModel

from marin.recipe.schema import Arithmetic, FilesDataset, Lora, Model, Recipe, Trainer
from marin.training.adapters import adapters_of, merged
from marin.training.data import EpochOrder
from marin.training.initial import initial_state
from marin.training.step.shards import shard_sums

VOCABULARY, LENGTH, BETA = 61, 16, 0.7


def recipe(microbatch: int = 2) -> Recipe:
    model = Model(hidden_dim=16, intermediate_dim=32, num_layers=2, num_heads=2, num_kv_heads=2, seq_len=LENGTH)
    return Recipe(
        model=model,
        dataset=FilesDataset(globs=("x",), chat=True, preferences=True),
        lora=Lora(rank=4, dpo_beta=BETA),
        trainer=Trainer(batch_size=8),
        arithmetic=Arithmetic(logical_shards=1, microbatch_size=microbatch),
    )


def batch() -> tuple[np.ndarray, np.ndarray]:
    """Four pairs: a common beginning that is not learned, and two answers of different lengths."""
    draw = np.random.default_rng(5)
    tokens = draw.integers(0, VOCABULARY, (8, LENGTH)).astype(np.int32)
    weights = np.zeros((8, LENGTH), np.float32)
    tokens[1::2, :4] = tokens[0::2, :4]
    for row in range(8):
        weights[row, 3 : 8 + row % 5] = 1.0
    return tokens, weights


def moved(told: Recipe) -> LmHeadModel:
    """A model whose adapters are no longer zero."""
    draw, model = np.random.default_rng(1), initial_state(told, VOCABULARY).model
    own = adapters_of(eqx.filter(model, eqx.is_array))
    changed = jax.tree.map(lambda x: x + jnp.asarray(draw.normal(0, 0.3, x.shape), jnp.float32), own)
    other: LmHeadModel = eqx.combine(changed, model)
    return other


def sums(told: Recipe, model: LmHeadModel) -> tuple[LmHeadModel, float, float]:
    arrays, static = eqx.partition(model, eqx.is_array)
    tokens, weights = batch()
    grads, loss, weight = jax.jit(lambda a: shard_sums(static, told, a, jnp.asarray(tokens), jnp.asarray(weights)))(
        arrays
    )
    return grads, float(loss), float(weight)


def answers(model: LmHeadModel) -> np.ndarray:
    """float64[sequences]: log-likelihoods of what is learned, from the model's logits."""
    tokens, weights = batch()
    ids = hax.named(jnp.asarray(tokens), ("batch", "position"))
    logits = np.asarray(eqx.filter_jit(lambda one: one(ids, AttentionMask.causal()))(model).array, np.float64)
    likely = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    following = np.take_along_axis(likely[:, :-1], tokens[:, 1:, None], axis=-1)[..., 0]
    return (following * weights[:, :-1]).sum(axis=1)


@pytest.mark.parametrize("together", [1, 2, 4])
def test_neighbours_stay_neighbours_and_an_epoch_has_each_once(together: int) -> None:
    order = EpochOrder(24, 3, together=together)
    for epoch in range(3):
        found = order(range(epoch * 24, epoch * 24 + 24))
        assert sorted(found.tolist()) == list(range(24))
        groups = found.reshape(-1, together)
        assert np.array_equal(groups, groups[:, :1] + np.arange(together)) and not (groups[:, 0] % together).any()
        assert not np.array_equal(found, np.arange(24))
    assert np.array_equal(order(range(5, 30)), [order([number])[0] for number in range(5, 30)])


@pytest.mark.long(seconds=25)
def test_the_loss_is_that_of_the_paper() -> None:
    """-log sigmoid(beta (log p/p_ref of the chosen answer - of the rejected one)), summed over pairs."""
    model = moved(recipe())
    base = eqx.combine(jax.tree.map(jnp.zeros_like, adapters_of(eqx.filter(model, eqx.is_array))), model)
    gain = answers(merged(model)) - answers(merged(base))
    margin = BETA * (gain[0::2] - gain[1::2])
    assert np.abs(margin).min() > 1e-3
    for microbatch in (2, 4, 8):
        _, loss, weight = sums(recipe(microbatch), model)
        assert weight == 4.0
        np.testing.assert_allclose(loss, np.log1p(np.exp(-margin)).sum(), rtol=1e-4)


@pytest.mark.long
def test_before_the_first_step_nothing_is_preferred() -> None:
    grads, loss, weight = sums(recipe(), initial_state(recipe(), VOCABULARY).model)
    np.testing.assert_allclose(loss / weight, np.log(2), rtol=1e-6)
    own = [np.asarray(one) for one in jax.tree.leaves(adapters_of(grads))]
    assert any(one.any() for one in own) and len(own) == 14
    total = sum(np.abs(np.asarray(one)).sum() for one in jax.tree.leaves(grads))
    assert total == pytest.approx(sum(np.abs(one).sum() for one in own)), "the model itself has no gradient"
