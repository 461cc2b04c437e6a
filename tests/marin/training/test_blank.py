"""A blank position, against oracles that know nothing of one: a shorter sequence, a mask written out, another filler."""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Any

import equinox as eqx
import haliax as hax
import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest

from marin.errors import DataError
from marin.plugins.exact.step import gradient_of
from marin.recipe.schema import Recipe
from marin.training import blank
from marin.training.initial import initial_state
from marin.training.model import attention_mask
from marin.training.optimizers.rule import optimizer
from marin.training.step.shards import shard_sums
from marin.training.step.slices import Layout

LENGTH = 32
"""Of a sequence of the tiny cases."""
EXCLUDE = ("a-document",)


def excluding(recipe: Recipe) -> Recipe:
    return msgspec.structs.replace(recipe, exclude=EXCLUDE)


def sums(recipe: Recipe, vocabulary: int, tokens: np.ndarray, weights: np.ndarray, *, blank: bool) -> Any:
    """Gradient, loss and weight of rows as one shard."""
    arrays, static = eqx.partition(initial_state(recipe, vocabulary).model, eqx.is_inexact_array)
    whole = msgspec.structs.replace(recipe.arithmetic, microbatch_size=len(tokens))
    one = msgspec.structs.replace(recipe, arithmetic=whole)
    return jax.jit(partial(shard_sums, static, one, blank=blank))(arrays, jnp.asarray(tokens), jnp.asarray(weights))


def rows(count: int, length: int = LENGTH) -> tuple[np.ndarray, np.ndarray]:
    tokens = np.random.default_rng(5).integers(1, 64, (count, length), dtype=np.int32)
    weights = np.ones((count, length), np.float32)
    weights[:, -1] = 0
    return tokens, weights


def test_what_a_blank_is_embedded_as_changes_no_bit(worker: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = excluding(worker.recipe_of(worker.Case(name="filler")))
    tokens, weights = rows(2)
    tokens[0, 5:17] = -1
    tokens[1, 28:] = -1
    found = []
    for filler in (0, 41):
        monkeypatch.setattr(blank, "FILLER", filler)
        found.append(sums(recipe, worker.VOCABULARY, tokens, weights, blank=True))
    for mine, other in zip(*(jax.tree.leaves(one) for one in found), strict=True):
        # zero may have either sign where a filler's own row got nothing
        np.testing.assert_array_equal(np.asarray(mine), np.asarray(other))


def test_after_blanks_a_sequence_is_what_it_is_alone(worker: ModuleType) -> None:
    """Rotary positions are relative: with the blanks before it unseen, the rest has the loss of a shorter sequence."""
    recipe = excluding(worker.recipe_of(worker.Case(name="after")))
    tokens, weights = rows(1)
    shorter, lighter = tokens[:, 12:], weights[:, 12:]
    tokens[0, :12] = -1
    _, loss, weight = sums(recipe, worker.VOCABULARY, tokens, weights, blank=True)
    short = msgspec.structs.replace(recipe, model=msgspec.structs.replace(recipe.model, seq_len=LENGTH - 12))
    _, alone, count = sums(short, worker.VOCABULARY, shorter, lighter, blank=False)
    assert float(weight) == float(count) == LENGTH - 13
    np.testing.assert_allclose(float(loss), float(alone), rtol=1e-5)


def test_a_batch_without_blanks_has_the_same_loss_by_both_programs(worker: ModuleType) -> None:
    recipe = excluding(worker.recipe_of(worker.Case(name="both")))
    tokens, weights = rows(2)
    _, loss, weight = sums(recipe, worker.VOCABULARY, tokens, weights, blank=True)
    _, other, same = sums(recipe, worker.VOCABULARY, tokens, weights, blank=False)
    assert float(weight) == float(same)
    np.testing.assert_allclose(float(loss), float(other), rtol=1e-6)


def test_no_position_before_or_at_a_blank_is_learned() -> None:
    tokens = np.array([[4, 5, -1, -1, 6, 7, -1, 8]], np.int32)
    found = np.asarray(blank.weighted(jnp.asarray(tokens), jnp.ones((1, 8), jnp.float32)))
    # the last position's next token is in no sequence; its own weight was 0 before
    assert found[0, :7].tolist() == [1, 0, 0, 0, 1, 0, 0]


@pytest.mark.parametrize("packing", [None, "isolated"])
def test_the_mask_is_the_one_written_out(worker: ModuleType, packing: Any) -> None:
    recipe = worker.recipe_of(worker.Case(name="mask"))
    recipe = msgspec.structs.replace(recipe, trainer=msgspec.structs.replace(recipe.trainer, packing=packing))
    tokens = [3, 4, 0, -1, -1, -1, 5, 6, 0, 7, -1, 8]
    document = [0, 0, 0, -1, -1, -1, 1, 1, 1, 2, -1, 2] if packing else [0 if t >= 0 else -1 for t in tokens]
    Pos = hax.Axis("position", len(tokens))
    Key = Pos.alias("key_position")
    mask = attention_mask(recipe, hax.named(jnp.asarray(tokens, jnp.int32), (Pos,)), blank=True)
    found = mask.materialize(Pos, Key)
    assert found is not None
    expected = [[j <= i and document[i] == document[j] for j in range(len(tokens))] for i in range(len(tokens))]
    assert np.asarray(found.rearrange((Pos, Key)).array).tolist() == expected


def test_an_emptied_batch_is_named(worker: ModuleType) -> None:
    recipe = excluding(worker.recipe_of(worker.Case(name="empty")))
    tokens, weights = rows(2)
    tokens[:] = -1
    tokens[:, 7] = 3  # alone between blanks: nothing follows it that could be learned
    with pytest.raises(DataError, match="an exclusion empties a batch: train step 9: expected at least one token"):
        blank.check_learned(recipe, 9, tokens, weights)
    tokens[:, 8] = 4
    blank.check_learned(recipe, 9, tokens, weights)
    weights[:, 7] = 0  # a chat, of which this is not learned
    with pytest.raises(DataError, match="an exclusion empties a batch"):
        blank.check_learned(recipe, 9, tokens, weights)


def test_a_blank_without_an_exclusion_is_no_token(worker: ModuleType) -> None:
    tokens, weights = rows(1)
    tokens[0, 3] = -1
    with pytest.raises(DataError, match=r"tokens that the tokenizer does not have: train step 4: .* found -1"):
        blank.check_learned(worker.recipe_of(worker.Case(name="none")), 4, tokens, weights)


@pytest.mark.long
def test_profile_exact_has_a_program_for_it(worker: ModuleType) -> None:
    recipe = excluding(worker.recipe_of(worker.Case(name="exact", profile="exact", batch=2, layers=1)))
    layout = Layout(initial_state(recipe, worker.VOCABULARY), optimizer(recipe), 1)
    plain, other = (gradient_of(recipe, layout, blank=one).program.digest for one in (False, True))
    assert plain != other
    without = msgspec.structs.replace(recipe, exclude=None)
    assert gradient_of(without, layout).program.digest == plain, "an exclusion changes no program of other batches"
