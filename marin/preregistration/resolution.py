"""What an exact sign-flip test can resolve: with n pairs there are 2^n outcomes, and none is rarer than one of them.

Apart from the statistics, because anyone who registers an experiment is told, and that must not wait for scipy.
"""

from __future__ import annotations

from typing import Literal

Alternative = Literal["two-sided", "less", "greater"]


def smallest_p(pairs: int, alternative: Alternative) -> float:
    """The smallest p-value that an exact sign-flip test of so many pairs can give."""
    return float(min(1.0, (2 if alternative == "two-sided" else 1) / 2**pairs))


def pairs_needed(alpha: float, alternative: Alternative) -> int:
    """How many pairs an exact sign-flip test needs before it can reject at ``alpha`` at all."""
    pairs = 1
    while smallest_p(pairs, alternative) > alpha:
        pairs += 1
    return pairs
