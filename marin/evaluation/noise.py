"""The noise that draws tokens, fast: threefry (Salmon et al. 2011) without the loops of jax's own, whose numbers these are."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = np.uint32(0x1BD11BDA)
LEAST = np.float32(np.finfo(np.float32).tiny)


def gumbel(keys: jax.Array, places: jax.Array, count: int) -> jax.Array:
    """float32[row, count]: ``jax.random.gumbel(fold_in(key, place), (count,))`` of each row's key, uint32[row, 2], and place,
    int32[row]."""
    first, second = _threefry(keys[:, 0], keys[:, 1], jnp.zeros_like(keys[:, 0]), places.astype(jnp.uint32))
    numbers = jnp.arange(count, dtype=jnp.uint32)[None]
    high, low = _threefry(first[:, None], second[:, None], jnp.zeros_like(numbers), numbers)
    from_one = ((high ^ low) >> np.uint32(9)) | np.uint32(0x3F800000)
    uniform = jax.lax.bitcast_convert_type(from_one, jnp.float32) - np.float32(1)
    return -jnp.log(-jnp.log(jnp.maximum(LEAST, uniform * (np.float32(1) - LEAST) + LEAST)))


def _threefry(one: jax.Array, other: jax.Array, left: jax.Array, right: jax.Array) -> tuple[jax.Array, jax.Array]:
    keys = one, other, one ^ other ^ PARITY
    left, right = left + one, right + other
    for turn in range(5):
        for by in ROTATIONS[turn % 2]:
            left = left + right
            right = left ^ ((right << np.uint32(by)) | (right >> np.uint32(32 - by)))
        left = left + keys[(turn + 1) % 3]
        right = right + keys[(turn + 2) % 3] + np.uint32(turn + 1)
    return left, right
