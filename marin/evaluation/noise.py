"""The noise that draws tokens, fast: without the loops of jax's own, whose bits these are."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from marin.training.runtime.threefry import block

LEAST = np.float32(np.finfo(np.float32).tiny)


def gumbel(keys: jax.Array, places: jax.Array, count: int) -> jax.Array:
    """float32[row, count]: ``jax.random.gumbel(fold_in(key, place), (count,))`` of each row's key, uint32[row, 2], and place,
    int32[row]."""
    first, second = block(keys[:, 0], keys[:, 1], jnp.zeros_like(keys[:, 0]), places.astype(jnp.uint32))
    numbers = jnp.arange(count, dtype=jnp.uint32)[None]
    high, low = block(first[:, None], second[:, None], jnp.zeros_like(numbers), numbers)
    from_one = ((high ^ low) >> np.uint32(9)) | np.uint32(0x3F800000)
    uniform = jax.lax.bitcast_convert_type(from_one, jnp.float32) - np.float32(1)
    return -jnp.log(-jnp.log(jnp.maximum(LEAST, uniform * (np.float32(1) - LEAST) + LEAST)))
