"""A fingerprint of a tensor: two 32-bit sums that are the same for every sharding, cheap enough for every train step.

Every 32-bit word of the tensor goes, together with its C-order position, through a mixing function that is one-to-one
in the word, and the results are summed modulo 2^32; a second sum takes a further mix of the same value. Hence

* a change of any single word, a flip of one bit at the least, always changes the first sum;
* exchanged words, and changes in many words (all signs flipped, say), go unseen with a chance of about 2^-64;
* sums of integers do not depend on their order, so neither on the number of devices, and a padding of known zeros can
  be left out of them.

It finds accidents. It does not withstand an attacker who constructs a collision: that is what the sha256 state digest at
every recorded boundary is for.

:func:`words_sum` is traced into the compiled step, :func:`of` says the same of a NumPy array.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# Odd multipliers of well-known mixers (golden ratio; murmur3's finalizer; one more), one-to-one modulo 2^32.
POSITION = 0x9E3779B1
FIRST, SECOND = 0x85EBCA77, 0xC2B2AE3D
THIRD = 0x27D4EB2F


def mixed(word: Any, position: Any) -> tuple[Any, Any]:
    """The two mixed values of a uint32 word at a uint32 position; NumPy and JAX arrays alike."""
    value = (word ^ (position * type_of(word)(POSITION))) * type_of(word)(FIRST)
    value = value ^ (value >> type_of(word)(15))
    value = value * type_of(word)(SECOND)
    value = value ^ (value >> type_of(word)(13))
    again = value * type_of(word)(THIRD)
    return value, again ^ (again >> type_of(word)(16))


def type_of(word: Any) -> Any:
    """The uint32 of the array library that ``word`` belongs to."""
    return np.uint32 if isinstance(word, np.ndarray) else jnp.uint32


def words_of(x: jax.Array) -> jax.Array:
    """A tensor's elements as uint32 in C order: the bits of 32-bit types, the zero-extended bits of narrower ones."""
    if x.dtype.itemsize == 4:
        return jax.lax.bitcast_convert_type(x, jnp.uint32).reshape(-1)
    if x.dtype.itemsize == 2:
        return jax.lax.bitcast_convert_type(x, jnp.uint16).astype(jnp.uint32).reshape(-1)
    raise TypeError(f"no fingerprint of {x.dtype}")


def words_sum(x: jax.Array, start: jax.Array | int = 0, count: jax.Array | int | None = None) -> jax.Array:
    """uint32[2]: the sums over ``x``, whose first word stands at position ``start`` of the whole tensor; words from
    position ``count`` on are padding and left out.

    One reduction with two results: XLA makes one vectorised pass of it, where two reductions take twenty times as long.
    """
    words = words_of(x)
    position = jax.lax.iota(jnp.uint32, words.shape[0]) + jnp.asarray(start, jnp.uint32)
    values = mixed(words, position)
    if count is not None:
        inside = position < jnp.asarray(count, jnp.uint32)
        values = (jnp.where(inside, values[0], 0), jnp.where(inside, values[1], 0))
    return _summed(values, (0,))


def rows_sum(x: jax.Array, number: jax.Array, row: int) -> jax.Array:
    """uint32[2]: the sums over run ``number`` of each row of a tensor, whose rows are of ``row`` words: ``x`` is
    [rows, run], and what is beyond a row's end is padding."""
    words = words_of(x).reshape(x.shape)
    place = jax.lax.broadcasted_iota(jnp.uint32, x.shape, 1) + number * np.uint32(x.shape[1])
    position = place + jax.lax.broadcasted_iota(jnp.uint32, x.shape, 0) * np.uint32(row % 2**32)
    values = mixed(words, position)
    inside = place < np.uint32(row)
    return _summed((jnp.where(inside, values[0], 0), jnp.where(inside, values[1], 0)), (0, 1))


def _summed(values: tuple[jax.Array, jax.Array], axes: tuple[int, ...]) -> jax.Array:
    zero = jnp.uint32(0)
    return jnp.stack(jax.lax.reduce(values, (zero, zero), lambda a, b: (a[0] + b[0], a[1] + b[1]), axes))


def program(tensors: Sequence[jax.Array]) -> jax.Array:
    """uint32[tensors, 2] of whole tensors, to be compiled by itself."""
    return jnp.stack([words_sum(x) for x in tensors])


def of(array: np.ndarray) -> np.ndarray:
    """uint32[2]: the fingerprint of a whole tensor on the host."""
    width = {4: np.uint32, 2: np.uint16}[array.dtype.itemsize]
    words = np.ascontiguousarray(array).reshape(-1).view(width).astype(np.uint32)
    first, second = mixed(words, np.arange(words.size, dtype=np.uint32))
    return np.array([np.sum(first, dtype=np.uint32), np.sum(second, dtype=np.uint32)], np.uint32)
