"""Which part of a mixture each sequence comes from: a pure function of the weights, with no random number in it.

Sequences come in blocks. In a block each part has its share, rounded by largest remainders, at evenly spread places: the
k-th of n sequences of a part stands at (k + 1/2)/n of the block, ties by name. So every batch is close to the mixture's
shares, and how many sequences of a part came before any point is known without walking there. The order within a part
is not decided here.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from marin.errors import UsageError


def block_counts(weights: Mapping[str, float], block_size: int, *, where: str = "mixture.weights") -> dict[str, int]:
    """How many sequences of a block each part has, by name; parts without weight are left out.

    Raises:
        UsageError: no weight is positive, or a part's share is less than one sequence of a block.
    """
    shares = {name: Fraction(weight) for name, weight in sorted(weights.items()) if weight > 0}
    if not shares:
        raise UsageError("nothing to mix", where=where, expected="at least one positive weight", found="none",
                         cure="give a part a weight")
    total = sum(shares.values())
    exact = {name: share * block_size / total for name, share in shares.items()}
    counts = {name: int(value) for name, value in exact.items()}
    by_remainder = sorted(exact, key=lambda name: (counts[name] - exact[name], name))
    for name in by_remainder[: block_size - sum(counts.values())]:
        counts[name] += 1
    rare = [name for name, count in counts.items() if not count]
    if rare:
        raise UsageError("a part's share is less than one sequence of a block", where=where,
                         expected=f"at least 1/{block_size} of all weight", found=", ".join(rare),
                         cure="raise its weight or mixture.block_size, or give it the weight 0")
    return counts


class Interleave:
    """The order of parts for one set of weights, without end."""

    def __init__(self, weights: Mapping[str, float], block_size: int) -> None:
        self.counts = block_counts(weights, block_size)
        self.parts = tuple(self.counts)
        self._per_block = np.asarray([self.counts[name] for name in self.parts], dtype=np.int64)
        places = sorted((Fraction(2 * k + 1, 2 * count), number, k)
                        for number, count in enumerate(self.counts.values()) for k in range(count))
        self._part = np.asarray([number for _, number, _ in places], dtype=np.int64)
        self._rank = np.asarray([k for _, _, k in places], dtype=np.int64)

    def __call__(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For sequence numbers int64[n]: the part of each (position in ``parts``), and its number within that part."""
        block, slot = np.divmod(np.asarray(numbers, dtype=np.int64), len(self._part))
        part = self._part[slot]
        return part, block * self._per_block[part] + self._rank[slot]

    def consumed(self, count: int) -> dict[str, int]:
        """How many of the first ``count`` sequences are of each part."""
        blocks, rest = divmod(count, len(self._part))
        of_rest = np.bincount(self._part[:rest], minlength=len(self.parts))
        return {name: int(blocks * each + more)
                for name, each, more in zip(self.parts, self._per_block, of_rest, strict=True)}
