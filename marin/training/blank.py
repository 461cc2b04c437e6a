"""What a blank position (:mod:`marin.data.exclusion`) is to a train step: no token, no weight, no attention to or from it.

* No token: whatever a blank position would be embedded as, nothing that is learned or seen depends on it.
* No weight: neither what follows a blank position is predicted from it, nor is a blank predicted.
* No attention: blank positions see blank ones only, and no other position sees them
  (:func:`marin.training.model.attention_mask`).

A batch without a blank goes through the program that it always went through. So the train steps before an excluded
document's first use have the bits that they have without the exclusion, whatever a compiler makes of the other program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from marin.errors import DataError
from marin.recipe.schema import Recipe

if TYPE_CHECKING:
    from numpy.typing import NDArray

FILLER = 0
"""The token id that is embedded where a position is blank: any would do, this one every tokenizer has."""


def embedded(tokens: jax.Array) -> jax.Array:
    """int32 of the same shape: ids that can be embedded."""
    return jnp.where(tokens < 0, FILLER, tokens)


def weighted(tokens: jax.Array, weights: jax.Array) -> jax.Array:
    """The weights of the losses, float32[..., seq_len], without those at blank positions and of blank targets."""
    blank = tokens < 0
    return jnp.where(blank | jnp.roll(blank, -1, axis=-1), 0.0, weights)


def check_learned(recipe: Recipe, step: int, tokens: NDArray[np.int32], weights: NDArray[np.float32]) -> None:
    """Refuse a batch with blank positions of which nothing is left.

    Raises:
        DataError: no position of it has a weight, or the recipe excludes nothing.
    """
    blank = tokens < 0
    if recipe.exclude is None:
        raise DataError(
            "tokens that the tokenizer does not have",
            where=f"train step {step}",
            expected="ids from 0; below it only where documents are excluded",
            found=str(int(tokens.min())),
            cure="make the tokens again: marin stage tokens",
        )
    if not weights[~(blank | np.roll(blank, -1, axis=-1))].any():
        raise emptied(step)


def emptied(step: int) -> DataError:
    """A train step that would have nothing to learn from: its mean loss would be nothing over nothing."""
    return DataError(
        "an exclusion empties a batch",
        where=f"train step {step}",
        expected="at least one token to learn",
        found="excluded documents only",
        cure="exclude less at a time, or train again on other data: what such a step does has no meaning",
    )
