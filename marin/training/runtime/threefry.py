"""Random bits: threefry2x32 with 20 rounds (Salmon et al., SC 2011), in the partitionable form that jax draws from.

Arithmetic of uint32 alone, which is exact everywhere. A key is uint32[..., 2]. Element n of a draw is the block of the
counter n, so a part of a draw can be made without the rest. :func:`block` is the reference's; what is compiled gives
jax's own instead, because twenty rounds written out take a compiler minutes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA


type Block = Callable[[Any, Any, Any, Any], tuple[Any, Any]]
"""Key (two words) and counter (two words), uint32 of one shape, to two words."""


def block(first: Any, second: Any, high: Any, low: Any) -> tuple[Any, Any]:
    """The two output words of the block (high, low) under the key (first, second): uint32 arrays of one shape."""
    u = np.uint32
    keys = (first, second, first ^ second ^ u(PARITY))
    x, y = high + keys[0], low + keys[1]
    for group in range(5):
        for turn in ROTATIONS[group % 2]:
            x = x + y
            y = ((y << u(turn)) | (y >> u(32 - turn))) ^ x
        x, y = x + keys[(group + 1) % 3], y + keys[(group + 2) % 3] + u(group + 1)
    return x, y


def counters(shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """High and low words of 0, 1, 2, ... in C order."""
    numbers = np.arange(int(np.prod(shape, dtype=np.int64)), dtype=np.uint64).reshape(shape)
    return (numbers >> np.uint64(32)).astype(np.uint32), numbers.astype(np.uint32)


def random_words(key: Any, shape: tuple[int, ...], block: Block = block) -> tuple[Any, Any]:
    """Both words of the blocks 0, 1, 2, ... of ``shape`` under each key of uint32[..., 2]."""
    batch = key.shape[:-1]
    high, low = (counter.reshape((1,) * len(batch) + shape) for counter in counters(shape))
    first, second = (key[..., i].reshape(batch + (1,) * len(shape)) for i in range(2))
    zero = (first ^ first) + (high ^ high)
    return block(first + zero, second + zero, high + zero, low + zero)


def places(index: Any, side: int) -> Any:
    """High word of the counter for an element of a factor: its number ``index`` (uint32) in C order, and which factor of
    the product it is in."""
    return index * np.uint32(2) + np.uint32(side)


def fold_in(key: Any, number: Any, block: Block = block) -> tuple[Any, Any]:
    """Both words of the key that ``number`` (uint32, the shape of the batch of keys, or scalar) is folded into."""
    zero = (number ^ number) + (key[..., 0] ^ key[..., 0])
    return block(key[..., 0] + zero, key[..., 1] + zero, zero, number + zero)
