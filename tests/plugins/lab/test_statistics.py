"""Comparisons against independent oracles: published data, brute force over all outcomes, closed testing."""

from __future__ import annotations

import itertools
import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.plugins.lab.statistics import compare, holm, summary, with_holm
from marin.preregistration.resolution import pairs_needed, smallest_p

finite = st.floats(-100, 100, allow_subnormal=False)

# Darwin's Zea mays, differences in eighths of an inch (Fisher 1935, The Design of Experiments, section 21).
MAIZE = (49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48)


def paired(differences: tuple[float, ...] | list[float], **options: str):  # type: ignore[no-untyped-def]
    baseline = {seed: 10.0 * seed for seed in range(len(differences))}
    arm = {seed: baseline[seed] + difference for seed, difference in enumerate(differences)}
    return compare("evaluate.loss", ("a", baseline), ("b", arm), **options)  # type: ignore[arg-type]


def test_fishers_own_count() -> None:
    found = paired(MAIZE)
    assert found.p == pytest.approx(1726 / 32768, abs=1e-12)
    assert found.pairs == 15 and found.difference == pytest.approx(314 / 15)
    assert found.test == "paired sign-flip, all 32768"


@given(st.lists(st.integers(-20, 20), min_size=2, max_size=8), st.sampled_from(["two-sided", "less", "greater"]))
def test_the_sign_flip_is_brute_force(differences: list[int], alternative: str) -> None:
    observed = sum(differences)
    sums = [
        sum(sign * value for sign, value in zip(signs, differences, strict=True))
        for signs in itertools.product((1, -1), repeat=len(differences))
    ]
    less = sum(total <= observed for total in sums) / len(sums)
    greater = sum(total >= observed for total in sums) / len(sums)
    expected = {"less": less, "greater": greater, "two-sided": min(1.0, 2 * min(less, greater))}[alternative]
    found = paired(list(map(float, differences)), alternative=alternative)
    assert found.p == pytest.approx(expected, abs=1e-12)
    assert found.smallest_p is not None and found.p is not None and found.p >= found.smallest_p - 1e-12


def test_many_pairs_are_sampled_with_a_fixed_seed() -> None:
    first, second = paired([1.0] * 15 + [-0.5] * 10), paired([1.0] * 15 + [-0.5] * 10)
    assert first.p == second.p and "99999" not in first.test and "100000 of 2^25" in first.test
    assert first.p is not None and 0.0 < first.p < 0.05


def test_welch_on_a_published_example() -> None:
    # Two samples of 15 with unequal means, p = 0.021 (Wikipedia, "Welch's t-test", example 1).
    first = (27.5, 21.0, 19.0, 23.6, 17.0, 17.9, 16.9, 20.1, 21.9, 22.6, 23.1, 19.6, 19.0, 21.7, 21.4)
    second = (27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0, 24.8, 20.2, 21.9, 22.1, 22.9, 20.5, 24.4)
    found = compare("evaluate.loss", ("a", dict(enumerate(first))), ("b", dict(enumerate(second, start=100))))
    assert found.test == "Welch's t" and found.note == "fewer than two shared seeds"
    assert found.p == pytest.approx(0.021, abs=5e-4)
    assert found.pairs == 0 and found.correlation is None
    assert found.interval is not None and found.interval[0] < found.difference < found.interval[1]


@given(st.lists(st.one_of(st.none(), st.floats(0, 1)), max_size=6))
def test_holm_is_closed_testing_with_bonferroni(values: list[float | None]) -> None:
    known = [index for index, value in enumerate(values) if value is not None]
    expected: list[float | None] = [None] * len(values)
    for index in known:
        expected[index] = max(
            min(1.0, len(group) * min(value for other in group if (value := values[other]) is not None))
            for size in range(1, len(known) + 1)
            for group in itertools.combinations(known, size)
            if index in group
        )
    found = holm(values)
    assert [value is None for value in found] == [value is None for value in expected]
    assert all(one == pytest.approx(other) for one, other in zip(found, expected, strict=True) if one is not None)


def test_the_correction_is_within_a_family() -> None:
    family = with_holm([paired([1.0, 2.0, 3.0, 4.0, 5.0]), paired([1.0, -1.0, 1.0, -1.0, 1.0])])
    assert family[0].p == pytest.approx(2 / 32) and family[0].p_holm == pytest.approx(4 / 32)
    assert family[1].p_holm == 1.0


@given(st.lists(finite, min_size=1, max_size=20))
def test_a_summary_is_that_of_the_standard_library(values: list[float]) -> None:
    found = summary(values)
    assert found.n == len(values) and found.mean == pytest.approx(statistics.fmean(values), abs=1e-9)
    if len(values) > 1:
        assert found.sd == pytest.approx(statistics.stdev(values), abs=1e-6)
    else:
        assert found.sd is None


def test_the_correlation_is_pearsons_over_shared_seeds() -> None:
    baseline = {1: 1.0, 2: 2.0, 3: 4.0, 9: 0.0}
    arm = {1: 2.0, 2: 3.0, 3: 7.0, 8: 5.0}
    found = compare("evaluate.loss", ("a", baseline), ("b", arm))
    assert found.correlation == pytest.approx(statistics.correlation([1, 2, 4], [2, 3, 7]))
    assert found.pairs == 3 and found.note == "2 seeds that only one arm has are left out"


def test_what_cannot_be_tested_is_said() -> None:
    alone = compare("evaluate.loss", ("a", {1: 1.0}), ("b", {1: 2.0}))
    assert alone.p is None and "one value" in alone.note and alone.difference == 1.0
    same = compare("evaluate.loss", ("a", {1: 1.0, 2: 1.0}), ("b", {3: 1.0, 4: 1.0}))
    assert same.p is None and "neither arm varies" in same.note
    assert paired([0.0, 0.0, 0.0]).p == 1.0


@pytest.mark.parametrize(
    ("pairs", "side", "expected"), [(3, "two-sided", 0.25), (5, "less", 1 / 32), (1, "two-sided", 1.0)]
)
def test_the_smallest_p(pairs: int, side: str, expected: float) -> None:
    assert smallest_p(pairs, side) == expected  # type: ignore[arg-type]
    extreme = paired([1.0 + number for number in range(pairs)] if pairs > 1 else [1.0, 1.0], alternative="two-sided")
    assert extreme.smallest_p is not None and math.isclose(extreme.p or 0.0, extreme.smallest_p)


def test_the_pairs_that_a_level_needs() -> None:
    assert pairs_needed(0.05, "two-sided") == 6 and pairs_needed(0.05, "less") == 5
