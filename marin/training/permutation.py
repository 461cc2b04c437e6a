"""Keyed permutations of the numbers from 0 to N - 1: the order in which an epoch sees its sequences.

``swap-or-not`` is the card shuffle of Hoang, Morris and Rogaway (An Enciphering Scheme Based on a Card Shuffle, CRYPTO
2012, arXiv:1208.1176). Each round pairs every number with the one that fills it up to a drawn sum, and swaps the two or
leaves them, by a bit that is drawn for the pair. So it is a permutation of any N, a number is found without the others, and
nothing is kept but keys. Keys and bits are threefry's. The definition to the letter, with values to check an implementation
by, is in docs/determinism.md ("The order of the data").

Levanter's Feistel network is what recipes that name no order are trained with. Its rounds add and multiply by a constant,
so a low bit never depends on a higher one, and its batches are far from those of a shuffle
(tests/marin/training/order/test_permutation.py).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Protocol

import jax
import jax.random as jrandom
import numpy as np
from levanter.data._prp import Permutation
from levanter.utils.jax_utils import local_cpu_mesh
from numpy.typing import NDArray

from marin.training.runtime import threefry

type Numbers = NDArray[np.int64]

BLOCK = 4096
"""Neighbouring numbers that are computed at once where few are asked for: of these, calls would take most of the time."""
KEPT = 64
"""Blocks that stay in memory: the loader asks for batches ahead, and the train step asks again."""
CHUNK = 1 << 14
"""Numbers of a large request that are computed at once: what fits into a processor's cache."""


def rounds(length: int) -> int:
    """How many rounds shuffle so many numbers: 64, and four for each binary digit of the greatest."""
    return 64 + 4 * (length - 1).bit_length()


class Epochs(Protocol):
    """One permutation of ``length`` numbers for each epoch: int64 run-wide numbers to int64 numbers below ``length``."""

    def __call__(self, numbers: Numbers) -> Numbers: ...


class SwapOrNot:
    """The swap-or-not shuffle of 0, ..., ``length`` - 1, with a key for each epoch.

    Args:
        length: from 1 to 2^63 - 1.
        key: uint32[2], the key of the order.
    """

    def __init__(self, length: int, key: NDArray[np.uint32]) -> None:
        self.length = length
        self._key = key
        self._word: Any = np.uint32 if length <= 1 << 31 else np.uint64  # twice the length fits
        self._block = lru_cache(maxsize=KEPT)(self._computed_block)

    def __call__(self, numbers: Numbers) -> Numbers:
        if self.length == 1 or not len(numbers):
            return np.zeros_like(numbers)
        first, last = int(numbers.min()) // BLOCK, int(numbers.max()) // BLOCK
        if last - first <= 1:
            around = np.concatenate([self._block(number) for number in range(first, last + 1)])
            return around[numbers - first * BLOCK]
        return np.concatenate([self._computed(numbers[at : at + CHUNK]) for at in range(0, len(numbers), CHUNK)])

    def _computed_block(self, number: int) -> Numbers:
        return self._computed(np.arange(BLOCK, dtype=np.int64) + number * BLOCK)

    def _computed(self, numbers: Numbers) -> Numbers:
        epochs, within = np.divmod(numbers, self.length)
        unique, owner = np.unique(epochs, return_inverse=True)
        first, second, sums = self._keys(unique)
        if len(unique) > 1:
            first, second, sums = (values[:, owner] for values in (first, second, sums))
        length, x = self._word(self.length), within.astype(self._word)
        for key_0, key_1, total in zip(first, second, sums, strict=True):
            partner = np.where(x > total, total + (length - x), total - x)
            named = np.maximum(x, partner)
            high, low = _words(named)
            word, _ = threefry.block(key_0, key_1, high, low)
            x = np.where(word & np.uint32(1), partner, x)
        return x.astype(np.int64)

    def _keys(self, epochs: Numbers) -> tuple[NDArray[np.uint32], NDArray[np.uint32], np.ndarray]:
        """For each round (first axis) of each epoch: the key of its bits, two words, and the sum of its pairs."""
        zero = np.zeros((rounds(self.length), len(epochs)), dtype=np.uint32)
        number = zero + np.arange(len(zero), dtype=np.uint32)[:, np.newaxis]
        high, low = _words(epochs)
        one, other = threefry.block(self._key[0] + zero[0], self._key[1] + zero[0], high, low)
        first, second = threefry.block(one + zero, other + zero, zero, number)
        high, low = threefry.block(one + zero, other + zero, zero + np.uint32(1), number)
        drawn = (high.astype(np.uint64) << np.uint64(32)) | low
        return first, second, (drawn % np.uint64(self.length)).astype(self._word)


def _words(numbers: np.ndarray) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    wide = numbers.astype(np.uint64)
    return (wide >> np.uint64(32)).astype(np.uint32), wide.astype(np.uint32)


class LevanterFeistel:
    """Levanter's Feistel network of ``length`` numbers, with a key for each epoch."""

    def __init__(self, length: int, key: jax.Array) -> None:
        self.length = length
        self._key = key
        self._by_epoch: dict[int, Permutation] = {}

    def __call__(self, numbers: Numbers) -> Numbers:
        epochs, within = np.divmod(numbers, self.length)
        result = np.empty_like(numbers)
        for epoch in np.unique(epochs):
            chosen = epochs == epoch
            result[chosen] = np.asarray(self._permutation(int(epoch))(within[chosen]), dtype=np.int64)
        return result

    def _permutation(self, epoch: int) -> Permutation:
        if epoch not in self._by_epoch:
            with local_cpu_mesh():
                self._by_epoch = {epoch: Permutation.make("feistel", self.length, jrandom.fold_in(self._key, epoch))}
        return self._by_epoch[epoch]
