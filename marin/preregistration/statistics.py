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
from typing import Literal

import numpy as np
from scipy import stats

from marin.preregistration.resolution import Alternative, smallest_p

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
    """Of at least one finite value."""
    array = np.asarray(values, dtype=np.float64)
    sd = float(array.std(ddof=1)) if len(array) > 1 else None
    return Summary(len(array), float(array.mean()), sd, float(array.min()), float(array.max()))


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
    """
    shared = sorted(baseline[1].keys() & arm[1].keys())
    first = np.asarray([baseline[1][seed] for seed in shared], dtype=np.float64)
    second = np.asarray([arm[1][seed] for seed in shared], dtype=np.float64)
    paired = test == "paired" and len(shared) >= 2
    found = _sign_flip(first, second, alternative) if paired else _welch(baseline[1], arm[1], alternative)
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


def _sign_flip(baseline: np.ndarray, arm: np.ndarray, alternative: Alternative) -> _Tested:
    differences = arm - baseline
    count = len(differences)
    exact = count <= EXACT_PAIRS
    found = stats.permutation_test(
        (differences,),
        _mean,
        permutation_type="samples",
        vectorized=True,
        alternative=alternative,
        n_resamples=2**count if exact else RANDOM_FLIPS,
        rng=np.random.default_rng(0),
    )
    name = f"paired sign-flip, all {2**count}" if exact else f"paired sign-flip, {RANDOM_FLIPS + 1} of 2^{count}"
    floor = smallest_p(count, alternative) if exact else 1 / (RANDOM_FLIPS + 1)
    return _Tested(name, float(differences.mean()), _interval(differences), float(found.pvalue), floor)


def _mean(sample: np.ndarray, axis: int) -> np.ndarray:
    return np.asarray(np.mean(sample, axis=axis))


def _welch(baseline: Mapping[int, float], arm: Mapping[int, float], alternative: Alternative) -> _Tested:
    first = np.asarray(list(baseline.values()), dtype=np.float64)
    second = np.asarray(list(arm.values()), dtype=np.float64)
    difference = float(second.mean() - first.mean())
    if len(first) < 2 or len(second) < 2:
        return _Tested(
            "Welch's t", difference, None, None, None, "one value of an arm has no spread: nothing can be tested"
        )
    if first.std() == 0 and second.std() == 0:
        return _Tested("Welch's t", difference, None, None, None, "neither arm varies: nothing can be tested")
    found = stats.ttest_ind(second, first, equal_var=False, alternative=alternative)
    two_sided = stats.ttest_ind(second, first, equal_var=False)
    low, high = two_sided.confidence_interval(LEVEL)
    return _Tested("Welch's t", difference, (float(low), float(high)), float(found.pvalue), None)


def _interval(differences: np.ndarray) -> tuple[float, float] | None:
    """The t interval of the mean; None where the differences are one number but for rounding."""
    if np.ptp(differences) <= 1e-12 * np.abs(differences).max():
        return None
    low, high = stats.ttest_1samp(differences, 0.0).confidence_interval(LEVEL)
    return float(low), float(high)


def _correlation(first: np.ndarray, second: np.ndarray) -> float | None:
    if len(first) < 3 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    value = float(stats.pearsonr(first, second).statistic)
    return value if math.isfinite(value) else None
