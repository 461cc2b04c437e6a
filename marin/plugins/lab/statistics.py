"""Comparing two arms over seeds, honestly for the few seeds that training affords.

Paired where both arms ran the same seeds: a seed fixes initial weights and data order, so the difference within a seed
is freer of noise than the difference of means. The test flips the sign of every difference, which assumes nothing but
that under the null hypothesis each difference is as likely as its opposite (Fisher 1935; Pitman 1937). Up to
``EXACT_PAIRS`` pairs every one of the 2^n assignments is counted; above that a fixed number is drawn with a fixed
seed. Where the seeds are not shared: Welch's t-test for unequal variances. Several comparisons: Holm 1979.

scipy does the mathematics. What is always said with a p-value: how many, how spread, how correlated, and the smallest
p-value that so few pairs could have given.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

import numpy as np

from marin.errors import DataError
from marin.preregistration.resolution import Alternative, smallest_p

ROUNDED = Fraction(1, 2**50)
"""How much of itself a value may be off: four units in the last place at most, as after a few operations."""
EXACT_PAIRS = 16
"""2^16 assignments are counted within a second."""
RANDOM_FLIPS = 99_999
LEVEL = 0.95

Test = Literal["paired", "welch"]


@dataclass(frozen=True)
class Summary:
    """One arm's values of a metric: how many, mean, sample standard deviation (None of one value), extremes."""

    n: int
    mean: float
    sd: float | None
    least: float
    greatest: float


@dataclass(frozen=True)
class Comparison:
    """``arm`` against ``baseline`` in one metric. ``difference`` is the mean of arm - baseline; ``interval`` its t
    interval at 95%; ``correlation`` Pearson's r over the shared seeds; ``p`` is None where nothing can be tested, and
    ``note`` says why; ``smallest_p``: what the most extreme outcome with as many pairs would give; ``p_holm``: after
    Holm's correction for all comparisons of the family."""

    metric: str
    baseline: str
    arm: str
    test: str
    alternative: Alternative
    of_baseline: Summary
    of_arm: Summary
    pairs: int
    correlation: float | None
    difference: float
    interval: tuple[float, float] | None
    p: float | None
    smallest_p: float | None
    p_holm: float | None = None
    note: str = ""


def summary(values: Sequence[float]) -> Summary:
    """Of at least one value.

    Raises:
        DataError: a value is infinite or no number.
    """
    exact = _exact(values, "a summary")
    sd = _root(_variance(exact)) if len(exact) > 1 else None
    return Summary(len(exact), float(_mean(exact)), sd, float(min(exact)), float(max(exact)))


def compare(
    metric: str,
    baseline: tuple[str, Mapping[int, float]],
    arm: tuple[str, Mapping[int, float]],
    *,
    test: Test = "paired",
    alternative: Alternative = "two-sided",
) -> Comparison:
    """Compare two arms, each a name and its values by seed (at least one each).

    ``test="paired"`` is over the seeds that both have; with fewer than two of them it falls back to Welch and says so.

    Raises:
        DataError: a value is infinite or no number.
    """
    shared = sorted(baseline[1].keys() & arm[1].keys())
    before, after = (
        dict(zip(values, _exact(list(values.values()), f"{metric} of {name}"), strict=True))
        for name, values in (baseline, arm)
    )
    first, second = [before[seed] for seed in shared], [after[seed] for seed in shared]
    paired = test == "paired" and len(shared) >= 2
    found = (
        _sign_flip(first, second, alternative)
        if paired
        else _welch(list(before.values()), list(after.values()), alternative)
    )
    note = found.note
    if paired and set(baseline[1]) ^ set(arm[1]):
        left_out = len(set(baseline[1]) ^ set(arm[1]))
        note = f"{left_out} seeds that only one arm has are left out"
    elif test == "paired" and not paired:
        note = "; ".join(filter(None, ("fewer than two shared seeds", note)))
    return Comparison(
        metric=metric,
        baseline=baseline[0],
        arm=arm[0],
        test=found.name,
        alternative=alternative,
        of_baseline=summary(list(baseline[1].values())),
        of_arm=summary(list(arm[1].values())),
        pairs=len(shared),
        correlation=_correlation(first, second),
        difference=found.difference,
        interval=found.interval,
        p=found.p,
        smallest_p=found.smallest_p,
        note=note,
    )


def holm(values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down correction of the p-values of one family; None stays None and does not count.

    The k-th smallest of m is multiplied by m - k + 1, never below what a smaller one got, and cut at 1.
    """
    order = sorted((value, position) for position, value in enumerate(values) if value is not None)
    adjusted: list[float | None] = [None] * len(values)
    floor = 0.0
    for rank, (value, position) in enumerate(order):
        floor = max(floor, min(1.0, value * (len(order) - rank)))
        adjusted[position] = floor
    return adjusted


def with_holm(family: Sequence[Comparison]) -> list[Comparison]:
    """The comparisons of one family, with ``p_holm``."""
    corrected = holm([item.p for item in family])
    return [replace(item, p_holm=value) for item, value in zip(family, corrected, strict=True)]


@dataclass(frozen=True)
class _Tested:
    name: str
    difference: float
    interval: tuple[float, float] | None
    p: float | None
    smallest_p: float | None
    note: str = ""


def _exact(values: Sequence[float], where: str) -> list[Fraction]:
    """The values as they are, without any rounding."""
    if wrong := [value for value in values if not math.isfinite(value)]:
        raise DataError(
            "a value that cannot be compared",
            where=where,
            expected="finite numbers",
            found=str(wrong[0]),
            cure="find out what the run measured: `marin show RUN`",
        )
    return [Fraction(float(value)) for value in values]


def _mean(values: Sequence[Fraction]) -> Fraction:
    return sum(values, Fraction()) / len(values)


def around_mean(values: Sequence[Fraction]) -> Fraction:
    """The sum of squares of the distances from the mean."""
    mean = _mean(values)
    return sum(((value - mean) ** 2 for value in values), Fraction())


def _variance(values: Sequence[Fraction]) -> Fraction:
    """Of a sample: over n - 1."""
    return around_mean(values) / (len(values) - 1)


def _root(value: Fraction) -> float:
    """The square root, also of what no float can hold; infinite where it is not finite itself."""
    half = (value.numerator.bit_length() - value.denominator.bit_length()) // 2
    try:
        return math.ldexp(math.sqrt(value / Fraction(4) ** half), half)
    except OverflowError:
        return math.inf


def _float(value: Fraction) -> float:
    """The nearest float; infinite where it is beyond the greatest."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def varies(values: Sequence[Fraction], off: Sequence[Fraction] | None = None) -> bool:
    """Whether the values are not all one number, each of which may be ``off`` by so much; None: by its own rounding."""
    off = list(map(_off, values)) if off is None else off
    return max(map(Fraction.__sub__, values, off)) > min(map(Fraction.__add__, values, off))


def _off(*values: Fraction) -> Fraction:
    """By how much a sum or difference of the values may be off."""
    return ROUNDED * sum(map(abs, values), Fraction())


def _sign_flip(baseline: Sequence[Fraction], arm: Sequence[Fraction], alternative: Alternative) -> _Tested:
    differences = [second - first for first, second in zip(baseline, arm, strict=True)]
    off = list(map(_off, baseline, arm))
    count = len(differences)
    exact = count <= EXACT_PAIRS
    scale = math.lcm(*(value.denominator for value in (*differences, *off)))  # powers of two, so the greatest of them
    amounts, doubts = (
        np.array([int(value * scale) for value in values], dtype=object) for values in (differences, off)
    )

    def beyond(sample: np.ndarray, axis: int) -> np.ndarray:
        """Whether the sum with these signs is above the observed one (1), below (-1), or equal: by what is flipped, in integers.
        ``sample``: numbers of pairs from 1, negative where the sign of the difference is flipped."""
        flipped = (np.moveaxis(sample, axis, -1) < 0).astype(object)
        moved, doubt = np.asarray(flipped @ amounts), np.asarray(flipped @ doubts)
        return np.where(np.abs(moved) <= doubt, 0.0, np.where(moved < 0, 1.0, -1.0))

    from scipy import stats  # half a second, for who compares

    found = stats.permutation_test(
        (np.arange(1.0, count + 1),),
        beyond,
        permutation_type="samples",
        vectorized=True,
        alternative=alternative,
        n_resamples=2**count if exact else RANDOM_FLIPS,
        rng=np.random.default_rng(0),
    )
    name = f"paired sign-flip, all {2**count}" if exact else f"paired sign-flip, {RANDOM_FLIPS + 1} of 2^{count}"
    floor = smallest_p(count, alternative) if exact else 1 / (RANDOM_FLIPS + 1)
    mean = _mean(differences)
    interval = _interval(mean, _variance(differences) / count, count - 1) if varies(differences, off) else None
    return _Tested(name, _float(mean), interval, float(found.pvalue), floor)


def _welch(baseline: Sequence[Fraction], arm: Sequence[Fraction], alternative: Alternative) -> _Tested:
    difference = _mean(arm) - _mean(baseline)
    if len(baseline) < 2 or len(arm) < 2:
        return _Tested(
            "Welch's t",
            _float(difference),
            None,
            None,
            None,
            "one value of an arm has no spread: nothing can be tested",
        )
    # An arm that varies by rounding alone has no spread.
    spreads = [_variance(values) / len(values) if varies(values) else Fraction() for values in (baseline, arm)]
    spread = sum(spreads, Fraction())
    if not spread:
        return _Tested("Welch's t", _float(difference), None, None, None, "neither arm varies: nothing can be tested")
    parts = (part**2 / (len(values) - 1) for part, values in zip(spreads, (baseline, arm), strict=True))
    freedom = float(spread**2 / sum(parts, Fraction()))
    t = _root(difference**2 / spread) * (1 if difference > 0 else -1)
    tail = {"less": t, "greater": -t, "two-sided": -abs(t)}[alternative]
    from scipy import stats

    p = float(stats.t.cdf(tail, freedom)) * (2 if alternative == "two-sided" else 1)
    return _Tested("Welch's t", _float(difference), _interval(difference, spread, freedom), p, None)


def _interval(mean: Fraction, variance: Fraction, freedom: float) -> tuple[float, float]:
    """The t interval of a mean whose own variance this is."""
    from scipy import stats

    half = float(stats.t.ppf((1 + LEVEL) / 2, freedom)) * _root(variance)
    return _float(mean) - half, _float(mean) + half


def _correlation(first: Sequence[Fraction], second: Sequence[Fraction]) -> float | None:
    if len(first) < 3 or not (varies(first) and varies(second)):
        return None
    means = _mean(first), _mean(second)
    along = sum(((x - means[0]) * (y - means[1]) for x, y in zip(first, second, strict=True)), Fraction())
    square = along**2 / (_variance(first) * _variance(second) * (len(first) - 1) ** 2)
    return _root(square) * (1 if along > 0 else -1)
