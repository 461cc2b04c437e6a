"""Which segments are replayed: all, those that cover some train steps, or a sample that nobody could choose.

The sample is a function of the signed root of the log and the run, so that anybody can draw it again, and anyone who wrote
the records had to write them before it was known. Numbers come from SHA-256 in counter mode and not from a library's
generator, whose sequence may change between versions. Pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from marin.errors import UsageError

Mode = Literal["full", "sampled", "range"]
DOMAIN = b"marin sample v1\n"
FRACTIONS = (0.01, 0.1, 0.5)
"""For which shares of wrong segments the verdict spells the bound out."""


@dataclass(frozen=True)
class Scope:
    """What part of training is replayed. ``sample``: that many segments; ``steps``: segments with a train step in
    ``[first, end)``; ``since``: segments recorded by events of this index or a later one; several: a sample of those
    that all others leave. None of them: everything."""

    sample: int | None = None
    steps: tuple[int, int] | None = None
    since: int | None = None


WHOLE = Scope()


@dataclass(frozen=True)
class Selection:
    """Positions of the chosen segments, ascending, and out of how many (``among``) they were drawn."""

    positions: tuple[int, ...]
    among: int
    mode: Mode


def select(
    ranges: Sequence[tuple[int, int]], scope: Scope, root: bytes, run: str, indices: Sequence[int] = ()
) -> Selection:
    """Choose among segments with these ranges of train steps, recorded by the events with these ``indices``.

    Raises:
        UsageError: no segment has a train step of ``scope.steps``.
    """
    candidates = list(range(len(ranges)))
    if scope.steps is not None:
        first, end = scope.steps
        candidates = [i for i in candidates if ranges[i][0] < end and first < ranges[i][1]]
        if not candidates:
            last = max((stop for _, stop in ranges), default=0)
            raise UsageError(
                "no segment has these train steps",
                where=f"--steps {first}:{end}",
                expected=f"a part of 0:{last}",
                found=f"{first}:{end}",
                cure="name steps that were recorded",
            )
    if scope.since is not None:
        candidates = [i for i in candidates if indices[i] >= scope.since]
    chosen = tuple(candidates)
    if scope.sample is not None and scope.sample < len(candidates):
        chosen = tuple(candidates[i] for i in draw(len(candidates), scope.sample, seed(root, run)))
    if len(chosen) == len(ranges):
        return Selection(chosen, len(candidates), "full")
    return Selection(chosen, len(candidates), "range" if len(chosen) == len(candidates) else "sampled")


def seed(root: bytes, run: str) -> bytes:
    """The seed of a sample: SHA-256 over the log's root hash and the run's id."""
    return hashlib.sha256(DOMAIN + root + run.encode()).digest()


def draw(count: int, size: int, seed: bytes) -> tuple[int, ...]:
    """``size`` different numbers below ``count``, ascending, each set equally likely: the first ``size`` places of a
    Fisher-Yates shuffle."""
    if not 0 <= size <= count:
        raise ValueError(f"{size} of {count} can not be drawn")
    words = _words(seed)
    places: dict[int, int] = {}
    drawn = []
    for at in range(size):
        other = at + _below(count - at, words)
        drawn.append(places.get(other, other))
        places[other] = places.get(at, at)
    return tuple(sorted(drawn))


def detection(fraction: float, size: int) -> float:
    """1-(1-f)^N: the least probability with which ``size`` segments drawn without replacement meet one that is wrong
    when a ``fraction`` of all is. (Drawing without replacement only does better.)"""
    return 1.0 - (1.0 - fraction) ** size


def describe_bound(size: int) -> str:
    """The bound as a line for people."""
    shares = ", ".join(f"{fraction:.0%}: {detection(fraction, size):.4f}" for fraction in FRACTIONS)
    return f"a wrong fraction f of them is met with probability 1-(1-f)^{size} or more ({shares})"


def _words(seed: bytes) -> Iterator[int]:
    """64-bit numbers: SHA-256 over the seed and a counter, eight bytes of each block."""
    counter = 0
    while True:
        yield int.from_bytes(hashlib.sha256(seed + counter.to_bytes(8, "big")).digest()[:8], "big")
        counter += 1


def _below(bound: int, words: Iterator[int]) -> int:
    """A number below ``bound`` without bias: words in the incomplete last stretch are thrown away."""
    limit = (1 << 64) - (1 << 64) % bound
    return next(word for word in words if word < limit) % bound
