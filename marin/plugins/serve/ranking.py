"""Log-likelihoods with the likeliest tokens beside them, as the OpenAI interface shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from marin.evaluation.scoring import Row, Scorer

RANKED = 5
"""How many of a position's likeliest tokens are named."""


@dataclass(frozen=True)
class Ranked:
    """Natural logarithms of the scored tokens' probabilities, with the bits of :class:`marin.evaluation.scoring.Scored`, and for
    each of them the ``RANKED`` likeliest tokens of its position with theirs, the likeliest first (of equal ones the first
    token)."""

    logprobs: tuple[float, ...]
    likeliest: tuple[tuple[tuple[int, float], ...], ...]


class Ranker:
    """The program that ranks, beside those of ``scorer``."""

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer
        self._rank = scorer.shared(partial(ranked_rows, scorer), 2)

    def rank(self, rows: Sequence[Row]) -> list[Ranked]:
        """As :meth:`marin.evaluation.scoring.Scorer.score`, with the likeliest tokens of each scored position."""
        found: dict[int, Ranked] = {}

        def read(place: int, part: slice, logprobs: np.ndarray, tokens: np.ndarray, values: np.ndarray) -> None:
            pairs = zip(tokens[part].tolist(), values[part].tolist(), strict=True)
            likeliest = tuple(tuple(zip(*pair, strict=True)) for pair in pairs)
            found[place] = Ranked(tuple(logprobs[part].tolist()), likeliest)

        self.scorer.answered(self._rank, rows, read)
        return [found[place] for place in range(len(rows))]


def ranked_rows(
    scorer: Scorer, arrays: Any, ids: jax.Array, targets: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Of one device's rows, int32[row, length] each: float32[row, length], and int32 and float32[row, length, RANKED] of the
    likeliest tokens."""
    logits = scorer.logits(arrays, ids)
    total = jax.nn.logsumexp(logits, axis=-1)
    logprobs = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0] - total
    places, left = jnp.arange(logits.shape[-1], dtype=jnp.int32), logits
    tokens, values = [], []
    for _ in range(min(RANKED, logits.shape[-1])):
        best = jnp.argmax(left, axis=-1).astype(jnp.int32)[..., None]
        tokens.append(best)
        values.append(jnp.take_along_axis(logits, best, axis=-1) - total[..., None])
        left = jnp.where(places == best, jnp.float32(jnp.finfo(jnp.float32).min), left)
    return logprobs, jnp.concatenate(tokens, axis=-1), jnp.concatenate(values, axis=-1)
