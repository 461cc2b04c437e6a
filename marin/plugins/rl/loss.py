"""The loss of completions: GRPO (arXiv:2402.03300) with the choices of TRL, and REINFORCE. Traced into the exact gradient."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from marin.plugins.exact.causal import hidden_states
from marin.plugins.rl.policy import policy_logits, token_logprobs
from marin.recipe.schema import Recipe


def completion_losses(recipe: Recipe, model: Any, tokens: jax.Array, numbers: jax.Array) -> jax.Array:
    """The sum of the losses of all tokens, each times what it weighs. ``tokens``: int32[batch, length]; ``numbers``:
    float32[batch, 4 length], see :mod:`marin.training.runtime.objective`."""
    assert recipe.objective is not None
    logits = policy_logits(recipe.objective, model, hidden_states(model, tokens))
    logprobs = token_logprobs(logits, jnp.roll(tokens, -1, axis=1))
    return losses_of(recipe, logprobs, *columns(tokens, numbers))


def losses_of(
    recipe: Recipe, logprobs: jax.Array, weight: jax.Array, advantage: jax.Array, old: jax.Array, reference: jax.Array
) -> jax.Array:
    """The sum, of log-probabilities that the policy gives and numbers of each position."""
    objective = recipe.objective
    assert objective is not None
    counts = weight > 0.0
    logprobs = jnp.where(counts, logprobs, 0.0)
    if objective.name == "reinforce":
        each = -(advantage * logprobs)
    else:
        log_ratio = jnp.where(counts, logprobs - old, 0.0)
        if objective.importance_sampling_level == "sequence":
            length = jnp.maximum(jnp.sum(counts.astype(jnp.float32), axis=1, keepdims=True), 1.0)
            log_ratio = jnp.sum(log_ratio, axis=1, keepdims=True) / length
        ratio = jnp.exp(log_ratio)
        low, high = np.float32(1.0 - objective.epsilon), np.float32(1.0 + objective.highest)
        each = -jnp.minimum(ratio * advantage, jnp.clip(ratio, low, high) * advantage)
    if objective.beta:
        apart = jnp.where(counts, reference - logprobs, 0.0)
        each = each + np.float32(objective.beta) * (jnp.exp(apart) - apart - 1.0)
    return jnp.sum(weight * each)


def divisor(recipe: Recipe, tokens: jax.Array, numbers: jax.Array) -> jax.Array:
    """What the sum is divided by: the number of tokens that count (``dapo``), or of completions."""
    assert recipe.objective is not None
    if recipe.objective.loss_type == "dapo":
        return jnp.sum(columns(tokens, numbers)[0])
    return jnp.float32(tokens.shape[0])


def columns(tokens: jax.Array, numbers: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Weight, advantage, log-probability when it was drawn, and under the reference, each [batch, length]."""
    length = tokens.shape[1]
    weight, advantage, old, reference = (numbers[:, at * length : (at + 1) * length] for at in range(4))
    return weight, advantage, old, reference
