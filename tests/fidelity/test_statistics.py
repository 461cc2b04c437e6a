"""Comparisons of arms beside counting in whole numbers, scipy, and Python's own statistics."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Sequence
from fractions import Fraction

import pytest
from scipy import stats

from marin.plugins.lab.comparing.importance import share
from marin.plugins.lab.statistics import compare as compared
from marin.plugins.lab.statistics import summary
from marin.preregistration.resolution import Alternative
from tests.fidelity.conftest import Compare

SIDES: tuple[Alternative, ...] = ("two-sided", "less", "greater")
CASES = 25
type Arms = tuple[list[float], list[float]]


def counted(differences: Sequence[Fraction | int], alternative: Alternative) -> float:
    """All signs, in rational numbers."""
    observed, count = sum(differences), 2 ** len(differences)
    sums = [
        sum(sign * one for sign, one in zip(signs, differences, strict=True))
        for signs in itertools.product((1, -1), repeat=len(differences))
    ]
    less, greater = (Fraction(sum(test), count) for test in (map(observed.__ge__, sums), map(observed.__le__, sums)))
    return float({"less": less, "greater": greater, "two-sided": min(Fraction(1), 2 * min(less, greater))}[alternative])


def paired(arms: Arms, alternative: Alternative) -> float | None:
    first, second = (dict(enumerate(values)) for values in arms)
    return compared("evaluate.loss", ("a", first), ("b", second), alternative=alternative).p


def apart(arms: Arms, alternative: Alternative = "two-sided"):  # type: ignore[no-untyped-def]
    first, second = (dict(enumerate(values, start)) for values, start in zip(arms, (0, 1000), strict=True))
    return compared("evaluate.loss", ("a", first), ("b", second), test="welch", alternative=alternative)


def near(one: object, other: object) -> bool:
    """Equal to twelve digits, where both are numbers."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return all(map(near, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-300)
    return one == other


@pytest.mark.table
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(
    ("form", "unit"),
    [
        ("of 300 pairs", Fraction(1, 300)),
        ("losses of four digits", Fraction(1, 10_000)),
        ("per cent", Fraction(1, 10)),
        ("whole", Fraction(1)),
    ],
)
def test_every_tie_counts(compare: Compare, form: str, unit: Fraction, seed: int) -> None:
    """A thousand drawn cases over all: values are whole multiples of a unit, and counted as whole numbers."""
    draw = random.Random(f"{form} {seed}")
    cases, wanted = [], []
    for _ in range(CASES):
        count, side = draw.randint(2, 9), draw.choice(SIDES)
        base = draw.choice((0, 1, 30, 32_913))
        before = [base + draw.randint(-30, 30) for _ in range(count)]
        moved = [draw.randint(-2, 6) for _ in range(count)]
        values = [
            [float(number * unit) for number in arm] for arm in (before, map(sum, zip(before, moved, strict=True)))
        ]
        cases.append(((values[0], values[1]), side))
        wanted.append(counted(moved, side))
    compare("statistics", f"sign-flip, {form}, {seed}", lambda: [paired(*case) for case in cases], wanted)


@pytest.mark.table
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e300])
def test_any_floats_are_compared_exactly(compare: Compare, scale: float, seed: int) -> None:
    """Floats that are no multiples of anything: by their own fractions."""
    draw = random.Random(seed)
    cases, wanted = [], []
    for _ in range(CASES):
        count, side = draw.randint(2, 8), draw.choice(SIDES)
        arms = [[draw.gauss(0, 1) * scale for _ in range(count)] for _ in range(2)]
        cases.append(((arms[0], arms[1]), side))
        wanted.append(counted([Fraction(b) - Fraction(a) for a, b in zip(*arms, strict=True)], side))
    compare(
        "statistics", f"sign-flip, floats about {scale:g}, {seed}", lambda: [paired(*case) for case in cases], wanted
    )


@pytest.mark.parametrize("count", [17, 20])
def test_many_pairs_keep_their_ties(compare: Compare, count: int) -> None:
    """99,999 drawn signs: the same numbers with and without a unit that floats round have one p-value."""
    draw = random.Random(count)
    moved = [draw.randint(-2, 4) for _ in range(count)]
    whole = paired(([0.0] * count, [float(number) for number in moved]), "two-sided")
    small = (
        [float(Fraction(k, 300)) for k in range(count)],
        [float(Fraction(k + d, 300)) for k, d in enumerate(moved)],
    )
    compare("statistics", f"sign-flip, {count} pairs", lambda: paired(small, "two-sided"), whole)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("scale", [2.0**-500, 2.0**-10, 1.0, 2.0**900])
def test_welch_is_scipys_where_arms_vary(compare: Compare, scale: float, seed: int) -> None:
    """In whatever unit: scipy has squares of squares, so it is asked in the one that it can."""
    draw = random.Random(seed)
    arms = [[draw.gauss(mean, spread) for _ in range(draw.randint(2, 9))] for mean, spread in ((1, 1), (2, 3))]
    side = draw.choice(SIDES)
    reference = stats.ttest_ind(arms[1], arms[0], equal_var=False, alternative=side)
    low, high = stats.ttest_ind(arms[1], arms[0], equal_var=False).confidence_interval(0.95)
    scaled = [[value * scale for value in arm] for arm in arms]
    found = apart((scaled[0], scaled[1]), side)
    compare(
        "statistics",
        f"Welch, {scale:g}, {seed}",
        lambda: (found.p, *found.interval),
        lambda given: near(given, (float(reference.pvalue), float(low) * scale, float(high) * scale)),
    )


CONSTANT: dict[str, Arms] = {
    "seven times 7/300, twice 7/300": ([7 / 300] * 7, [7 / 300] * 2),
    "three tenths, summed and written": ([0.1 + 0.2, 0.3, 0.3], [0.3, 0.1 * 3]),
    "two constants": ([0.1] * 5, [0.7] * 3),
    "zero and its negative": ([0.0, -0.0, 0.0], [-0.0, 0.0]),
    "tiny": ([5e-324] * 3, [5e-324] * 3),
    "huge": ([1.7e308] * 3, [-1.7e308] * 3),
}


@pytest.mark.parametrize("name", CONSTANT)
def test_constants_do_not_vary(compare: Compare, name: str) -> None:
    compare(
        "statistics", f"Welch, {name}", lambda: (apart(CONSTANT[name]).p, apart(CONSTANT[name]).interval), (None, None)
    )


def test_equal_differences_have_no_interval(compare: Compare) -> None:
    arms = ([k / 10_000 for k in range(32_900, 32_906)], [(k + 1) / 10_000 for k in range(32_900, 32_906)])
    found = compared("evaluate.loss", ("a", dict(enumerate(arms[0]))), ("b", dict(enumerate(arms[1]))))
    compare("statistics", "interval of one difference", lambda: (found.p, found.interval), (2 / 64, None))


@pytest.mark.parametrize("seed", range(10))
def test_intervals_and_correlation_are_scipys(compare: Compare, seed: int) -> None:
    draw = random.Random(seed)
    first = [draw.gauss(3, 0.1) for _ in range(draw.randint(3, 9))]
    second = [value + draw.gauss(0.05, 0.05) for value in first]
    found = compared("evaluate.loss", ("a", dict(enumerate(first))), ("b", dict(enumerate(second))))
    low, high = stats.ttest_1samp([b - a for a, b in zip(first, second, strict=True)], 0.0).confidence_interval(0.95)
    correlation = float(stats.pearsonr(first, second).statistic)
    compare(
        "statistics",
        f"interval and correlation, {seed}",
        lambda: (found.correlation, *found.interval),
        lambda given: near(given, (correlation, float(low), float(high))),
    )


@pytest.mark.parametrize("scale", [5e-324, 1e-200, 1.0, 1e200, 1.7e308])
def test_means_and_deviations_are_pythons(compare: Compare, scale: float) -> None:
    values = [scale, scale / 2, -scale, scale]
    found = summary(values)
    wanted = (float(statistics.mean(map(Fraction, values))), _deviation(values))
    compare(
        "statistics",
        f"mean and deviation about {scale:g}",
        lambda: (found.mean, found.sd),
        lambda given: near(given, wanted),
    )


def _deviation(values: Sequence[float]) -> float:
    unit = Fraction(max(values))
    return float(unit * Fraction(statistics.stdev([Fraction(value) / unit for value in values])))


@pytest.mark.parametrize("scale", [5e-324, 1e-300, 1.0, 1e300])
def test_what_a_number_goes_with_is_counted_in_fractions(compare: Compare, scale: float) -> None:
    """Epsilon squared from eta squared, 1 - (1 - eta^2) (N - 1) / (N - k): another way than by sums of squares."""
    draw = random.Random(scale)
    cases, wanted = [], []
    for _ in range(CASES):
        parts = [[draw.gauss(mean, 1) * scale for _ in range(draw.randint(2, 5))] for mean in (0, draw.random() * 3)]
        numbers = [Fraction(value) for part in parts for value in part]
        between = sum(
            len(part) * (statistics.mean(map(Fraction, part)) - statistics.mean(numbers)) ** 2 for part in parts
        )
        cases.append((["a"] * len(parts[0]) + ["b"] * len(parts[1]), [value for part in parts for value in part]))
        whole = len(numbers) * statistics.pvariance(numbers)
        unexplained = 1 - Fraction(between, whole) if whole else Fraction(1)
        found = 1 - unexplained * Fraction(len(numbers) - 1, len(numbers) - 2) if whole else Fraction()
        wanted.append(max(0.0, float(found)))
    compare(
        "statistics",
        f"epsilon squared about {scale:g}",
        lambda: [share(*case) for case in cases],
        lambda found: all(map(near, found, wanted)),
    )


@pytest.mark.parametrize("value", [7 / 300, 0.1, 2.7, 1 / 3])
def test_a_number_that_is_always_the_same_goes_with_nothing(compare: Compare, value: float) -> None:
    """Floating-point means of equal numbers differ by how many there are."""
    sizes = list(itertools.product(range(2, 11), range(2, 6)))
    compare(
        "statistics",
        f"epsilon squared, always {value:g}",
        lambda: [share(["a"] * one + ["b"] * other, [value] * (one + other)) for one, other in sizes],
        [0.0] * len(sizes),
    )


def test_a_difference_of_rounding_goes_with_nothing(compare: Compare) -> None:
    compare("statistics", "epsilon squared, 0.3 twice", lambda: share([*"aabb"], [0.3, 0.3, 0.1 + 0.2, 0.1 + 0.2]), 0.0)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("test", [paired, apart])
def test_what_is_no_finite_number_is_refused(compare: Compare, value: float, test) -> None:  # type: ignore[no-untyped-def]
    refusal = "infinite values and NaN, which no test here compares"
    compare(
        "statistics",
        f"{test.__name__}, {value}",
        lambda: test(([1.0, value], [2.0, 3.0]), "less"),
        None,
        refusal=refusal,
    )
