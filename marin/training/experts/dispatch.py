"""Which experts a token has, and what they make of it: without a sort, a scatter or a capacity, so that no layout decides.

An expert sees its own tokens, and zeros in the place of all others; nothing is dropped. So every row of a product is that of a
token by itself, and a sum over the tokens of an expert has the others as zeros: anyone who brings to an expert its own tokens
alone adds the same numbers. The cost is that of all experts for every token.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp


def chosen_experts(probabilities: jax.Array, count: int) -> jax.Array:
    """The ``count`` most probable experts of each token; of equals the one with the lower number. ``probabilities``:
    float32[tokens, experts] from 0 on; bool of the same shape, ``count`` of each row true."""
    experts = jax.lax.broadcasted_iota(jnp.int32, probabilities.shape, 1)
    left, found = probabilities, jnp.zeros(probabilities.shape, bool)
    for _ in range(count):
        one = experts == jnp.argmax(left, axis=1, keepdims=True).astype(jnp.int32)
        left, found = jnp.where(one, jnp.float32(-1), left), found | one
    return found


def weights_of(probabilities: jax.Array, chosen: jax.Array) -> jax.Array:
    """What each of its experts counts for a token: their probabilities, made to sum to one; 0 for all others."""
    own = jnp.where(chosen, probabilities, 0)
    return own / jnp.sum(own, axis=1, keepdims=True)


def mixed(
    x: jax.Array,
    weights: jax.Array,
    chosen: jax.Array,
    matrices: tuple[jax.Array, jax.Array, jax.Array],
    activation: Callable[[jax.Array], jax.Array],
) -> jax.Array:
    """The sum of what the experts make of each token, by weight. ``x``: [tokens, width]; ``weights`` and ``chosen``: [tokens,
    experts]; ``matrices``: gate and up [experts, width, inner], down [experts, inner, width]."""
    gate, up, down = matrices
    own = jnp.where(chosen.T[:, :, None], x[None], 0)
    hidden = activation(_by_expert(own, gate)) * _by_expert(own, up)
    return jnp.sum(weights.T[:, :, None] * _by_expert(hidden, down), axis=0)


def _by_expert(x: jax.Array, matrices: jax.Array) -> jax.Array:
    """[experts, tokens, out] of [experts, tokens, in] and [experts, in, out]."""
    return jax.lax.dot_general(x, matrices, (((2,), (1,)), ((0,), (0,))))
