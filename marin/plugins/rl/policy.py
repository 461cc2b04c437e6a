"""The policy: log-probabilities of tokens, and the token that is drawn at each position. One definition for drawing and learning.

Traced into exact programs, in which no operation rounds otherwise for another length or another neighbour: the
log-probability of a token is the same bits whether it is drawn, looked at again in one pass, or learned from.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jrandom
import numpy as np

from marin.plugins.exact.causal import head_logits
from marin.recipe.objective import Objective


def policy_logits(objective: Objective, model: Any, states: jax.Array) -> jax.Array:
    """float32[batch, length, vocabulary] of hidden states: logits over the temperature."""
    logits = head_logits(model, states)
    return logits if objective.temperature == 1.0 else logits / np.float32(objective.temperature)


def token_logprobs(logits: jax.Array, after: jax.Array) -> jax.Array:
    """float32[batch, length]: the log-probability, at each position, of the token ``after`` it, int32[batch, length]."""
    chosen = jnp.take_along_axis(logits, after[..., None], axis=-1)[..., 0]
    return chosen - jax.nn.logsumexp(logits, axis=-1)


def entropies(logits: jax.Array) -> jax.Array:
    """float32[batch, length]: the entropy of the next token at each position, in nats."""
    logs = logits - jax.nn.logsumexp(logits, axis=-1, keepdims=True)
    return -jnp.sum(jnp.exp(logs) * logs, axis=-1)


def drawn_tokens(objective: Objective, logits: jax.Array, keys: jax.Array, positions: jax.Array) -> jax.Array:
    """int32[batch, length]: the token that is drawn after each position, of ``positions`` int32[batch, length] and a key for each
    completion, uint32[batch, 2]: the likeliest of logits plus Gumbel noise, which has the softmax's chances (Gumbel 1954;
    Maddison et al. 2014)."""
    batch, length, vocabulary = logits.shape

    def noise(key: jax.Array, position: jax.Array) -> jax.Array:
        return jrandom.gumbel(jrandom.fold_in(key, position), (vocabulary,))

    each = jnp.broadcast_to(keys[:, None], (batch, length, 2)).reshape(-1, 2)
    noises = jax.vmap(noise)(each, positions.reshape(-1)).reshape(logits.shape)
    return jnp.argmax(likely_logits(objective, logits) + noises, axis=-1).astype(jnp.int32)


def likely_logits(objective: Objective, logits: jax.Array) -> jax.Array:
    """Logits in which tokens that may not be drawn are minus infinity's place-holder: the least float32."""
    allowed = None
    if objective.top_k and objective.top_k < logits.shape[-1]:
        order = _ordered(logits)
        least = _threshold(
            order, lambda at: jnp.sum((order >= at).astype(jnp.int32), axis=-1, keepdims=True) >= objective.top_k
        )
        allowed = order >= least
    if objective.top_p < 1.0:
        left = logits if allowed is None else jnp.where(allowed, logits, _LEAST)
        order, total = _ordered(left), jax.nn.logsumexp(left, axis=-1, keepdims=True)
        chances = jnp.exp(left - total)

        def enough(at: jax.Array) -> jax.Array:
            within = jnp.sum(jnp.where(order >= at, chances, 0.0), axis=-1, keepdims=True)
            return within >= np.float32(objective.top_p)

        nucleus = order >= _threshold(order, enough)
        allowed = nucleus if allowed is None else allowed & nucleus
    return logits if allowed is None else jnp.where(allowed, logits, _LEAST)


_LEAST = np.float32(np.finfo(np.float32).min)


def _ordered(logits: jax.Array) -> jax.Array:
    """uint32 in the order of the numbers."""
    bits = jax.lax.bitcast_convert_type(logits, jnp.uint32)
    negative = (bits >> np.uint32(31)) == np.uint32(1)
    return jnp.where(negative, ~bits, bits | np.uint32(1 << 31))


def _threshold(order: jax.Array, holds: Any) -> jax.Array:
    """The greatest uint32, for each row, at which ``holds`` (it does at 0, and no more from some number on): found bit by bit."""

    def tried(found: jax.Array, bit: jax.Array) -> tuple[jax.Array, None]:
        higher = found | bit
        return jnp.where(holds(higher), higher, found), None

    bits = np.uint32(1) << np.arange(31, -1, -1, dtype=np.uint32)
    found, _ = jax.lax.scan(tried, jnp.zeros((*order.shape[:-1], 1), jnp.uint32), bits)
    return found
