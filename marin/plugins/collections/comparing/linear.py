"""A linear model over hashed n-grams of words, trained and asked in whole numbers: the same bits on every machine.

It is logistic regression (as fastText's classifier without its hidden layer: Joulin et al. 2017): a text's features are the
numbers of its n-grams of 1 to ``order`` words, hashed into 2^``bits`` buckets; its score is the mean of their weights and a bias.
Weights are multiples of 2^-16, the logistic function is a table made by decimal arithmetic, examples come in an order of their
content that each epoch draws anew, and every product and quotient is one of integers. So no float decides, and no order of
summation either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from marin.plugins.collections.comparing.words import grams, numbered

ONE = 1 << 16
"""The number 1 in weights, scores and probabilities."""
_LIMIT, _STEPS = 16, 1 << 10
"""The table reaches from -16 to 16, in steps of 1/1024."""
RATE = 256
"""Of learning, at the beginning; it falls to nothing. A gradient is spread over a text's features, so it is a large one."""


@dataclass(frozen=True)
class Features:
    """Of each text the buckets of its n-grams, and where those of each begin, with the end."""

    buckets: NDArray[np.int64]
    begins: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.begins) - 1

    def of(self, text: int) -> NDArray[np.int64]:
        """Buckets of one text."""
        return self.buckets[self.begins[text] : self.begins[text + 1]]


def features(texts: Sequence[str], order: int, bits: int) -> Features:
    """Features of texts."""
    numbers, counts = numbered(texts)
    found: list[NDArray[np.uint64]] = []
    ends = np.cumsum(counts)
    for begin, end in zip((ends - counts).tolist(), ends.tolist(), strict=True):
        own = numbers[begin:end]
        found.append(np.concatenate([grams(own, length) for length in range(1, order + 1)]))
    begins = np.cumsum([0, *map(len, found)])
    buckets = np.concatenate(found) if found else np.zeros(0, np.uint64)
    return Features((buckets >> np.uint64(64 - bits)).astype(np.int64), begins)


@dataclass(frozen=True)
class Linear:
    """``weights``: int64[2^bits + 1], the last one the bias."""

    weights: NDArray[np.int64]

    def sums(self, texts: Features) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Of each text the sum over its features of weight and bias, and how many features it has, at least 1."""
        counts = np.diff(texts.begins)
        total = np.concatenate([[0], np.cumsum(self.weights[texts.buckets])])
        sums = total[texts.begins[1:]] - total[texts.begins[:-1]]
        least = np.maximum(counts, 1)
        return sums + self.weights[-1] * least, least


def train(texts: Features, good: NDArray[np.bool_], digests: Sequence[bytes], *, bits: int, epochs: int) -> Linear:
    """The model that tells the ``good`` texts from the others; ``digests``: of each text, by which they are ordered."""
    weights = np.zeros((1 << bits) + 1, np.int64)
    table = logistic()
    steps, done = epochs * len(texts), 0
    several = [np.unique(texts.of(number), return_counts=True) for number in range(len(texts))]
    for epoch in range(epochs):
        keys = [sha256(b"marin.linear:%d:" % epoch + digest).digest() for digest in digests]
        for number in sorted(range(len(texts)), key=lambda one: (keys[one], one)):
            buckets, counts = several[number]
            count = int(counts.sum()) or 1
            score = (int((weights[buckets] * counts).sum()) + int(weights[-1]) * count) // count
            wrong = (ONE if good[number] else 0) - int(table[place_of(score)])
            rate = RATE * wrong * (steps - done)
            weights[buckets] += (rate * counts) // (count * steps)
            weights[-1] += rate // (RATE * steps)
            done += 1
    return Linear(weights)


def place_of(score: int) -> int:
    """Where the table has a score."""
    return min(max((score * _STEPS) // ONE + _LIMIT * _STEPS, 0), 2 * _LIMIT * _STEPS)


@cache
def logistic() -> NDArray[np.int64]:
    """1 / (1 + e^-x) for x from -16 to 16 in units of 2^-16, rounded from 40 decimal digits."""
    with localcontext() as context:
        context.prec = 40
        step = (Decimal(1) / _STEPS).exp()
        power = Decimal(-_LIMIT).exp()
        found = []
        for _ in range(2 * _LIMIT * _STEPS + 1):
            found.append(int((power / (1 + power) * ONE).to_integral_value()))
            power *= step
    return np.array(found, np.int64)


def logit(probability: Fraction) -> int:
    """ln(p / (1 - p)) in units of 2^-16, rounded from 40 decimal digits."""
    with localcontext() as context:
        context.prec = 40
        odds = Decimal(probability.numerator) / Decimal(probability.denominator - probability.numerator)
        return int((odds.ln() * ONE).to_integral_value())
