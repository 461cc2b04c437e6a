"""What a blank position (:mod:`marin.data.exclusion`) is to a train step: no token, no weight, no attention to or from it.

* No token: whatever a blank position would be embedded as, nothing that is learned or seen depends on it.
* No weight: neither what follows a blank position is predicted from it, nor is a blank predicted.
* No attention: blank positions see blank ones only, and no other position sees them
  (:func:`marin.training.model.attention_mask`).

A batch without a blank goes through the program that it always went through. So the train steps before an excluded
document's first use have the bits that they have without the exclusion, whatever a compiler makes of the other program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from marin.errors import DataError
from marin.provenance.plugins import load_plugin
from marin.recipe.model import BLANKS
from marin.recipe.schema import Recipe
from marin.training.data import Batch, DataOrder, Span, batch_digest
from marin.training.runtime import hosts
from marin.training.tokens.cache import BLANK

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
        raise empty_batch(step)


def empty_batch(step: int) -> DataError:
    """A train step that would have nothing to learn from: its mean loss would be nothing over nothing."""
    return DataError(
        "an exclusion empties a batch",
        where=f"train step {step}",
        expected="at least one token to learn",
        found="excluded documents only",
        cure="exclude less at a time, or train again on other data: what such a step does has no meaning",
    )


def blank_rows(
    spans: Sequence[Span], starts: Mapping[str, int], lengths: Mapping[str, int], width: int
) -> dict[int, np.ndarray]:
    """For each sequence (by its number, as :class:`DataOrder` gives it) that holds tokens of ``spans``: bool[width], which
    of its tokens they are."""
    found: dict[int, np.ndarray] = {}
    for part, first, last in spans:
        name = part or next(iter(starts))
        for sequence in range(first // width, min(-(-last // width), lengths[name])):
            row = found.setdefault(starts[name] + sequence, np.zeros(width, dtype=bool))
            row[max(0, first - sequence * width) : last - sequence * width] = True
    return found


class LeftOut:
    """Batches of which some tokens are left out: blank, as they are in a cache that was made without these documents.

    Args:
        lengths: sequences of each part, in order of name. ``spans``: the tokens.
    """

    def __init__(self, recipe: Recipe, lengths: Mapping[str, int], spans: Sequence[Span]) -> None:
        self._recipe = recipe
        self._rows = blank_rows(spans, DataOrder(recipe, lengths).starts, lengths, recipe.model.seq_len)

    def __call__(self, batch: Batch) -> Batch:
        """The batch without them.

        Raises:
            DataError: nothing is left of it.
        """
        held = [line for line, sequence in enumerate(batch.indices.tolist()) if sequence in self._rows]
        if not held:
            return batch
        tokens = hosts.whole(batch.tokens).copy()
        for line in held:
            tokens[line, self._rows[int(batch.indices[line])]] = BLANK
        load_plugin(*BLANKS, "exclude").check_learned(self._recipe, batch.step, tokens, hosts.whole(batch.weights))
        placed = jax.make_array_from_callback(tokens.shape, batch.tokens.sharding, tokens.__getitem__)
        return replace(batch, tokens=placed, digest=batch_digest(batch.indices, tokens), blank=True)
