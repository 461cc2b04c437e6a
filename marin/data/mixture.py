"""Which part of a mixture each sequence comes from: a pure function of the weights, with no random number in it.

Sequences come in blocks. In a block each part has its share, rounded by largest remainders, at evenly spread places:
the k-th of n sequences of a part stands at (k + 1/2)/n of the block, ties by name. So every batch is close to the
mixture's shares, and how many sequences of a part came before any point is known without walking there. The order
within a part is not decided here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction

from marin.recipe.mixture import block_counts


class Interleave:
    """The order of parts for one set of weights, without end."""

    def __init__(self, weights: Mapping[str, float], block_size: int) -> None:
        self.counts = block_counts(weights, block_size)
        self.parts = tuple(self.counts)
        places = sorted(
            (Fraction(2 * k + 1, 2 * count), number, k)
            for number, count in enumerate(self.counts.values())
            for k in range(count)
        )
        self._slots = tuple((number, k) for _, number, k in places)
        self._per_block = tuple(self.counts.values())

    def __call__(self, number: int) -> tuple[int, int]:
        """For a sequence number: its part (position in ``parts``), and its number within that part."""
        block, slot = divmod(number, len(self._slots))
        part, rank = self._slots[slot]
        return part, block * self._per_block[part] + rank

    def consumed(self, count: int) -> dict[str, int]:
        """How many of the first ``count`` sequences are of each part."""
        blocks, rest = divmod(count, len(self._slots))
        of_rest = Counter(part for part, _ in self._slots[:rest])
        return {name: blocks * self._per_block[number] + of_rest[number] for number, name in enumerate(self.parts)}
