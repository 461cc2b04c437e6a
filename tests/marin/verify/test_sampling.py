"""Samples: the same for everybody, of the asked size, fair, and no weaker than the bound that is printed."""

from __future__ import annotations

import hashlib
from collections import Counter
from itertools import combinations
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.errors import UsageError
from marin.verify.segments.sampling import WHOLE, Scope, describe_bound, detection, draw, seed, select

ROOT = bytes(range(32))
RANGES = [(0, 10), (10, 20), (20, 30), (30, 35)]


def test_the_seed_is_what_the_documentation_says() -> None:
    assert seed(ROOT, "abc") == hashlib.sha256(b"marin sample v1\n" + ROOT + b"abc").digest()


def by_the_book(count: int, size: int, key: bytes) -> tuple[int, ...]:
    """A whole Fisher-Yates shuffle over an explicit list; no word is rejected for counts as small as here."""
    items = list(range(count))
    for at in range(size):
        word = int.from_bytes(hashlib.sha256(key + at.to_bytes(8, "big")).digest()[:8], "big")
        other = at + word % (count - at)
        items[at], items[other] = items[other], items[at]
    return tuple(sorted(items[:size]))


@given(
    st.integers(0, 60).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))), st.binary(min_size=32, max_size=32)
)
def test_a_draw_is_the_head_of_a_shuffle(shape: tuple[int, int], key: bytes) -> None:
    count, size = shape
    drawn = draw(count, size, key)
    assert drawn == by_the_book(count, size, key)
    assert len(set(drawn)) == size
    assert all(0 <= number < count for number in drawn)


def test_every_set_comes_up_equally_often() -> None:
    draws = 6000
    seen = Counter(draw(6, 2, seed(number.to_bytes(32, "big"), "run")) for number in range(draws))
    expected = draws / comb(6, 2)
    assert seen.keys() == set(combinations(range(6), 2))
    statistic = sum((count - expected) ** 2 / expected for count in seen.values())
    assert statistic < 36.1  # chi-square with 14 degrees of freedom: 0.999


def test_another_root_or_run_is_another_sample() -> None:
    samples = {draw(1000, 10, seed(root, run)) for root in (ROOT, bytes(32)) for run in ("a", "b")}
    assert len(samples) == 4


def test_more_than_there_are_cannot_be_drawn() -> None:
    with pytest.raises(ValueError, match="5 of 4"):
        draw(4, 5, ROOT)


@given(st.integers(1, 40).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(0, n))))
def test_the_bound_holds_for_drawing_without_replacement(shape: tuple[int, int, int]) -> None:
    count, wrong, size = shape
    exact = 1 - comb(count - wrong, size) / comb(count, size)
    assert exact >= detection(wrong / count, size) - 1e-12


def test_the_bound_as_a_line() -> None:
    assert describe_bound(3).endswith("1-(1-f)^3 or more (1%: 0.0297, 10%: 0.2710, 50%: 0.8750)")


@pytest.mark.parametrize(
    ("steps", "positions"),
    [
        ((0, 35), (0, 1, 2, 3)),
        ((0, 1), (0,)),
        ((9, 10), (0,)),
        ((9, 11), (0, 1)),
        ((10, 20), (1,)),
        ((19, 31), (1, 2, 3)),
        ((34, 900), (3,)),
    ],
)
def test_a_range_takes_the_segments_that_hold_its_train_steps(
    steps: tuple[int, int], positions: tuple[int, ...]
) -> None:
    found = select(RANGES, Scope(steps=steps), ROOT, "run")
    assert found.positions == positions
    assert found.mode == ("full" if len(positions) == 4 else "range")


def test_steps_that_were_never_made_are_refused() -> None:
    with pytest.raises(UsageError, match="35:40"):
        select(RANGES, Scope(steps=(35, 40)), ROOT, "run")


def test_a_sample_is_drawn_from_the_range() -> None:
    found = select(RANGES, Scope(sample=2, steps=(10, 35)), ROOT, "run")
    assert found.positions == tuple(1 + i for i in draw(3, 2, seed(ROOT, "run")))
    assert (found.among, found.mode) == (3, "sampled")


def test_a_sample_of_everything_is_everything() -> None:
    assert select(RANGES, Scope(sample=4), ROOT, "run") == select(RANGES, WHOLE, ROOT, "run")
    assert select(RANGES, WHOLE, ROOT, "run").mode == "full"
