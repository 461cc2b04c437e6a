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

from marin.errors import UsageError


def block_counts(weights: Mapping[str, float], block_size: int, *, where: str = "mixture.weights") -> dict[str, int]:
    """How many sequences of a block each part has, by name; parts without weight are left out.

    Raises:
        UsageError: no weight is positive, or a part's share is less than one sequence of a block.
    """
    shares = {name: Fraction(weight) for name, weight in sorted(weights.items()) if weight > 0}
    if not shares:
        raise UsageError(
            "nothing to mix",
            where=where,
            expected="at least one positive weight",
            found="none",
            cure="give a part a weight",
        )
    total = sum(shares.values())
    exact = {name: share * block_size / total for name, share in shares.items()}
    counts = {name: int(value) for name, value in exact.items()}
    by_remainder = sorted(exact, key=lambda name: (counts[name] - exact[name], name))
    for name in by_remainder[: block_size - sum(counts.values())]:
        counts[name] += 1
    rare = [name for name, count in counts.items() if not count]
    if rare:
        raise UsageError(
            "a part's share is less than one sequence of a block",
            where=where,
            expected=f"at least 1/{block_size} of all weight",
            found=", ".join(rare),
            cure="raise its weight or mixture.block_size, or give it the weight 0",
        )
    return counts


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
