"""The generator against SplitMix64's published outputs, and the draws against their definition."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.plugins.grammar.generator import Generator, Weighted, ranked


def test_outputs_are_those_of_splitmix64() -> None:
    # The sequence for seed 1234567 that implementations of SplitMix64 are commonly checked against.
    generator = Generator(1234567)
    assert [generator.next64() for _ in range(5)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


def test_names_do_not_run_together() -> None:
    assert Generator.named("a", "bc").next64() != Generator.named("ab", "c").next64()
    assert Generator.named("train", 1).next64() != Generator.named("train", 11).next64()
    assert Generator.named("train", 1).next64() == Generator.named("train", "1").next64()


@given(st.integers(1, 2**40), st.integers(0, 2**64 - 1))
def test_below_stays_below(bound: int, state: int) -> None:
    assert 0 <= Generator(state).below(bound) < bound


def test_weights_are_kept() -> None:
    generator = Generator.named("weights")
    counts = Counter(generator.draw(Weighted(["a", "b", "c"], [1, 2, 7])) for _ in range(20_000))
    assert abs(counts["a"] - 2000) < 200
    assert abs(counts["b"] - 4000) < 300
    assert abs(counts["c"] - 14000) < 300


def test_two_are_never_the_same_place() -> None:
    generator = Generator.named("two")
    pairs = {generator.two("abc") for _ in range(200)}
    assert pairs == {(x, y) for x in "abc" for y in "abc" if x != y}


def test_ranks_fall() -> None:
    distribution = ranked(list(range(50)))
    weights = [distribution.cumulative[0]] + [
        after - before for before, after in zip(distribution.cumulative, distribution.cumulative[1:], strict=False)
    ]
    assert weights == sorted(weights, reverse=True)
    assert min(weights) >= 1


@pytest.mark.parametrize(("items", "weights"), [([], []), (["a"], [0]), (["a", "b"], [1])])
def test_impossible_distributions_are_refused(items: list[str], weights: list[int]) -> None:
    with pytest.raises(ValueError, match="distribution"):
        Weighted(items, weights)
