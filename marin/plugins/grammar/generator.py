"""A random generator whose draws are the same on every machine, in every Python, for ever.

Python's ``random`` promises only that ``random()`` repeats for a seed; ``choices``, ``shuffle`` and ``randrange`` have
changed between releases and pass through floats. A corpus that others must rebuild bit for bit cannot rest on that. So
this is SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014; the constants are
those of the paper's section 5), written out in integers, and everything is drawn with integers: no float is made.

A stream is named, not numbered: its state is the first eight bytes of the SHA-256 of its name. Document ``i`` of a
split has a stream of its own, so any document can be made alone, and making more documents never changes earlier ones.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from hashlib import sha256
from itertools import accumulate

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15


class Weighted[T]:
    """A finite distribution with integer weights, prepared for drawing."""

    __slots__ = ("cumulative", "items", "total")

    def __init__(self, items: Sequence[T], weights: Sequence[int]) -> None:
        if not items or len(items) != len(weights) or min(weights) < 1:
            raise ValueError(
                f"a distribution needs items, each with a weight of 1 or more; got {len(items)} and {weights!r}"
            )
        self.items = tuple(items)
        self.cumulative = tuple(accumulate(weights))
        self.total = self.cumulative[-1]


def ranked[T](items: Sequence[T]) -> Weighted[T]:
    """``items`` from frequent to rare. Weights fall like those of words do, first about as the inverse of the rank and
    then faster, so that a small model meets the first ones often and has met the last ones at all."""
    return Weighted(items, [1 + 40_000 // ((rank + 3) * (rank + 30)) for rank in range(len(items))])


class Generator:
    """One stream of draws.

    >>> Generator.named("example").below(10) == Generator.named("example").below(10)
    True
    """

    __slots__ = ("_state",)

    def __init__(self, state: int) -> None:
        self._state = state & _MASK

    @classmethod
    def named(cls, *parts: object) -> Generator:
        """The stream whose name is ``parts``. Each part is written with its length, so no two names run together."""
        name = "".join(f"{len(str(part))}:{part}" for part in parts)
        return cls(int.from_bytes(sha256(name.encode()).digest()[:8], "big"))

    def next64(self) -> int:
        """The next 64 bits of SplitMix64."""
        self._state = state = (self._state + _GAMMA) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        return state ^ (state >> 31)

    def below(self, bound: int) -> int:
        """A whole number in ``range(bound)``: the high half of a product (Lemire 2019), without its rejection step,
        since the bias is below ``bound / 2**64``."""
        return (self.next64() * bound) >> 64

    def chance(self, percent: int) -> bool:
        """True in ``percent`` of a hundred draws."""
        return self.below(100) < percent

    def pick[T](self, items: Sequence[T]) -> T:
        """One of ``items``, all equally likely."""
        return items[self.below(len(items))]

    def draw[T](self, distribution: Weighted[T]) -> T:
        """One item of a weighted distribution."""
        return distribution.items[bisect_right(distribution.cumulative, self.below(distribution.total))]

    def two[T](self, items: Sequence[T]) -> tuple[T, T]:
        """Two items at different places of ``items``, in random order."""
        first = self.below(len(items))
        second = self.below(len(items) - 1)
        return items[first], items[second + (second >= first)]
