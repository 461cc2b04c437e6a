"""Of a mixture: how many sequences of a block each part has."""

from __future__ import annotations

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
