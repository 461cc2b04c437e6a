"""Named orders of the data: the definition by an implementation of its own, and statistics beside a fair shuffle.

A fair shuffle here is NumPy's (``Generator.permutation``). Every draw has a fixed seed, so nothing passes or fails by chance.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from marin.recipe.section import Order
from marin.training.data import EpochOrder

type Numbers = NDArray[np.int64]
type Measure = Callable[[Numbers], float]

MOST = 2**63 - 1
WORD = 2**32 - 1


def threefry(key: tuple[int, int], high: int, low: int) -> tuple[int, int]:
    """threefry2x32 with 20 rounds, in Python's integers."""
    keys = (*key, key[0] ^ key[1] ^ 0x1BD11BDA)
    x, y = (high + keys[0]) & WORD, (low + keys[1]) & WORD
    for group in range(5):
        for turn in ((13, 15, 26, 6), (17, 29, 16, 24))[group % 2]:
            x = (x + y) & WORD
            y = ((y << turn | y >> (32 - turn)) & WORD) ^ x
        x, y = (x + keys[(group + 1) % 3]) & WORD, (y + keys[(group + 2) % 3] + group + 1) & WORD
    return x, y


def placed(number: int, length: int, seed: int, purpose: str = "data") -> int:
    """docs/determinism.md ("The order of the data"), step by step."""
    name = hashlib.sha256(purpose.encode()).digest()
    key = threefry((0, seed & WORD), 0, seed >> 32)
    key = threefry(key, 0, int.from_bytes(name[0:4], "little"))
    key = threefry(key, 0, int.from_bytes(name[4:8], "little"))
    epoch, x = divmod(number, length)
    key = threefry(key, epoch >> 32, epoch & WORD)
    for turn in range(64 + 4 * (length - 1).bit_length()):
        a, b = threefry(key, 1, turn)
        y = ((a << 32 | b) - x) % length
        z = max(x, y)
        if threefry(threefry(key, 0, turn), z >> 32, z & WORD)[0] % 2:
            x = y
    return x


@given(st.one_of(st.integers(1, 40), st.integers(1, MOST)), st.integers(0, MOST), st.data())
@example(1, 0, None)
@example(2**31, 0, None)
@example(2**31 + 1, 1, None)
@example(2**32 - 1, 2, None)
@example(2**32 + 1, 3, None)
@example(MOST, MOST, None)
@settings(max_examples=30)
def test_an_order_is_the_one_of_its_definition(length: int, seed: int, data: st.DataObject | None) -> None:
    """Whatever the length is, and across epochs; also where many numbers of many epochs are asked for at once."""
    number = data.draw(st.integers(0, min(MOST, length * 2**34))) if data is not None else length - 1
    near = [n for n in (number, number + 1, number + length) if n <= MOST]
    found = EpochOrder(length, seed, order="swap-or-not")(near)
    assert found.tolist() == [placed(n, length, seed) for n in near]


def test_an_order_has_the_values_of_the_documentation() -> None:
    ten = EpochOrder(10, 0, order="swap-or-not")(range(20)).tolist()
    assert ten == [2, 6, 5, 8, 7, 1, 4, 3, 9, 0, 1, 6, 9, 5, 7, 0, 3, 4, 2, 8]
    assert ten == [placed(number, 10, 0) for number in range(20)]
    books = EpochOrder(3710, 2**40 + 1, "data/books", order="swap-or-not")([0, 1, 2, 3709, 3710])
    assert books.tolist() == [placed(number, 3710, 2**40 + 1, "data/books") for number in (0, 1, 2, 3709, 3710)]


def test_recipes_without_a_named_order_keep_levanters() -> None:
    """As 9f3ab419 placed them; recorded runs have these batches."""
    assert EpochOrder(10, 0)(range(20)).tolist() == LEVANTERS["10, seed 0"]
    assert EpochOrder(3710, 0)(range(8)).tolist() == LEVANTERS["3710, seed 0"]
    assert EpochOrder(1000, 7, "data/web")(range(998, 1006)).tolist() == LEVANTERS["1000, seed 7, data/web"]
    assert EpochOrder(24, 3, together=2)(range(46, 54)).tolist() == LEVANTERS["24, seed 3, two together"]


LEVANTERS = {
    "10, seed 0": [0, 4, 8, 3, 5, 1, 6, 9, 2, 7, 7, 9, 0, 1, 2, 8, 5, 4, 6, 3],
    "3710, seed 0": [2274, 3495, 3429, 3643, 3557, 3247, 3181, 3371],
    "1000, seed 7, data/web": [913, 573, 717, 815, 653, 243, 581, 951],
    "24, seed 3, two together": [4, 5, 6, 7, 20, 21, 22, 23],
}


@pytest.mark.parametrize("length", [1, 2, 3, 5, 8, 100, 4096, 5000])
def test_every_number_comes_once_an_epoch(length: int) -> None:
    order = EpochOrder(length, 11, order="swap-or-not")
    for epoch in range(3):
        seen = order(np.arange(epoch * length, (epoch + 1) * length))
        assert np.array_equal(np.sort(seen), np.arange(length))


@pytest.mark.parametrize("length", [7, 3000, 100_000])
def test_a_number_is_found_without_the_others(length: int) -> None:
    """In any company: alone, with neighbours, in no order, in a request of many blocks."""
    order = EpochOrder(length, 5, order="swap-or-not")
    whole = order(np.arange(40_000))
    for chosen in (
        np.arange(4090, 4100),
        np.array([39_999, 0, 20_000, 20_000]),
        np.arange(0, 40_000, 9),
        np.array([123]),
    ):
        assert np.array_equal(EpochOrder(length, 5, order="swap-or-not")(chosen), whole[chosen])
        assert np.array_equal(order(chosen), whole[chosen])
    assert order([]).tolist() == []


# --- beside a fair shuffle -------------------------------------------------------------------------------------------------


BATCH = 8


def batches(order: Numbers) -> Numbers:
    return order[: len(order) // BATCH * BATCH].reshape(-1, BATCH)


def of_one_parity(order: Numbers) -> float:
    """Batches whose sequences are all even, or all odd."""
    return float((np.ptp(batches(order) % 2, axis=1) == 0).sum())


def spread_of(bit: Callable[[Numbers], Numbers]) -> Measure:
    """The variance over batches of how many of their sequences have a bit."""
    return lambda order: float(bit(batches(order)).sum(axis=1).var())


def high(order: Numbers) -> Numbers:
    return (order >= (order.max() + 1) // 2).astype(np.int64)


def serial(values: Callable[[Numbers], Numbers], lag: int = 1) -> Measure:
    """The correlation of neighbours."""

    def measure(order: Numbers) -> float:
        found = values(order).astype(np.float64)
        return float(np.corrcoef(found[:-lag], found[lag:])[0, 1])

    return measure


def stretches(values: Callable[[Numbers], Numbers]) -> Measure:
    """How far the worst stretch of sqrt(N) is off, in standard deviations of a draw without replacement."""

    def measure(order: Numbers) -> float:
        width = int(len(order) ** 0.5)
        found = values(order).astype(np.float64)
        sums = found[: len(order) // width * width].reshape(-1, width).sum(axis=1)
        deviation = (width * found.var() * (len(order) - width) / (len(order) - 1)) ** 0.5
        return float(np.abs(sums - width * found.mean()).max() / deviation)

    return measure


def bits(order: Numbers) -> float:
    """The strongest of the correlations between a bit of a place and a bit of what stands there."""
    width = int(len(order) - 1).bit_length()
    of_place, of_value = ((x[:, np.newaxis] >> np.arange(width)) & 1 for x in (np.arange(len(order)), order))
    return float(np.abs(np.corrcoef(of_place.T, of_value.T)[:width, width:]).max())


def pairs_of_bits(order: Numbers) -> float:
    """The strongest correlation between two bits of a value and the same of the next one."""
    width = int(len(order) - 1).bit_length()
    each = ((order >> np.arange(width)[:, np.newaxis]) & 1).astype(np.bool_)
    both = np.stack([each[i] ^ each[j] for i in range(width) for j in range(i)])
    before, after = both[:, :-1], both[:, 1:]
    x, y, xy = (np.count_nonzero(one, axis=1) / before.shape[1] for one in (before, after, before & after))
    spread = x * (1 - x) * y * (1 - y)
    vary = spread > 0
    return float(np.abs((xy - x * y)[vary] / spread[vary] ** 0.5).max())


def steps(order: Numbers) -> float:
    """How many different distances, modulo N, neighbours have."""
    return float(len(np.unique(np.diff(order) % len(order))))


def rises(order: Numbers) -> float:
    return float((np.diff(order) > 0).sum())


MEASURES: dict[str, Measure] = {
    "batches of one parity": of_one_parity,
    "low bit in a batch": spread_of(lambda x: x & 1),
    "second bit in a batch": spread_of(lambda x: x >> 1 & 1),
    "every third in a batch": spread_of(lambda x: (x % 3 == 0).astype(np.int64)),
    "upper half in a batch": spread_of(high),
    "numbers in a row": serial(lambda x: x),
    "numbers two apart": serial(lambda x: x, 2),
    "low bits in a row": serial(lambda x: x & 1),
    "low bits eight apart": serial(lambda x: x & 1, BATCH),
    "stretches, low bit": stretches(lambda x: x & 1),
    "stretches, numbers": stretches(lambda x: x),
    "bits of place and value": bits,
    "pairs of bits in a row": pairs_of_bits,
    "distances": steps,
    "rises": rises,
}
LENGTHS = (64, 257, 1000, 3710, 4096, 20_000)
DRAWS = 12
FAIR_DRAWS = 100


def orders(length: int, order: Order | None, seed: int = 0) -> Iterator[Numbers]:
    """Whole epochs: of four seeds, three each."""
    for number in range(4):
        drawn = EpochOrder(length, seed + number * 2**33 + number, order=order)
        yield from (drawn(np.arange(epoch * length, (epoch + 1) * length)) for epoch in range(DRAWS // 4))


@cache
def of_fair_shuffles(length: int) -> dict[str, NDArray[np.float64]]:
    """Each measure of so many fair shuffles."""
    draw = np.random.default_rng(length)
    fair = [draw.permutation(length) for _ in range(FAIR_DRAWS)]
    return {name: np.array([measure(order) for order in fair]) for name, measure in MEASURES.items()}


def off(length: int, drawn: list[Numbers]) -> dict[str, float]:
    """How far the mean of each measure is from that of fair shuffles, in its standard errors."""
    found = {}
    for name, wanted in of_fair_shuffles(length).items():
        error = max(float(wanted.std(ddof=1)), 1e-9) * (1 / len(drawn) + 1 / len(wanted)) ** 0.5
        found[name] = float((np.mean([MEASURES[name](order) for order in drawn]) - wanted.mean()) / error)
    return found


@pytest.mark.parametrize("length", LENGTHS)
def test_orders_are_as_a_fair_shuffle(length: int) -> None:
    found = off(length, list(orders(length, "swap-or-not")))
    assert max(map(abs, found.values())) < 4, found


@pytest.mark.parametrize("length", LENGTHS)
def test_the_same_measures_find_levanters(length: int) -> None:
    found = off(length, list(orders(length, None)))
    assert max(map(abs, found.values())) > 8, found


@pytest.mark.parametrize("length", LENGTHS[:5])
def test_the_same_measures_let_a_fair_shuffle_pass(length: int) -> None:
    draw = np.random.default_rng(99)
    found = off(length, [draw.permutation(length) for _ in range(DRAWS)])
    assert max(map(abs, found.values())) < 4, found


def test_a_hundred_thousand_sequences() -> None:
    """Of 12,500 batches of eight about 98 are of one parity, by the hypergeometric distribution."""
    length = 100_000
    whole = EpochOrder(length, 1, order="swap-or-not")(np.arange(length))
    expected = length / BATCH * 2 * stats.hypergeom(length, length // 2, BATCH).pmf(BATCH)
    assert expected == pytest.approx(97.6, abs=0.1)
    assert abs(of_one_parity(whole) - expected) < 4 * expected**0.5
    assert of_one_parity(EpochOrder(length, 1)(np.arange(length))) > 5 * expected


def chi_square(counts: Counter[tuple[int, ...]], cells: int) -> float:
    """The p-value of equal chances for ``cells`` outcomes."""
    wanted = sum(counts.values()) / cells
    missing = (cells - len(counts)) * wanted
    found = sum((count - wanted) ** 2 / wanted for count in counts.values()) + missing
    return float(stats.chi2(cells - 1).sf(found))


def small(length: int, draws: int, order: Order | None, seed: int = 3) -> Counter[tuple[int, ...]]:
    drawn = EpochOrder(length, seed, order=order)(np.arange(length * draws)).reshape(draws, length)
    return Counter(map(tuple, drawn.tolist()))


@pytest.mark.parametrize(
    ("length", "cells", "draws"), [(2, 2, 4000), (3, 6, 6000), (4, 24, 9600), (5, 120, 12_000), (6, 720, 14_400)]
)
@pytest.mark.parametrize("seed", [3, 2**50])
def test_of_few_sequences_every_order_is_as_likely(length: int, cells: int, draws: int, seed: int) -> None:
    found = small(length, draws, "swap-or-not", seed)
    assert len(found) == cells
    assert 1e-3 < chi_square(found, cells) < 1 - 1e-3


@pytest.mark.parametrize(("length", "cells"), [(4, 24), (5, 120)])
def test_levanters_has_few_of_them(length: int, cells: int) -> None:
    found = small(length, 480, None)
    assert chi_square(found, cells) < 1e-12
    if length == 4:
        assert len(found) == 4


def test_of_few_sequences_every_order_is_as_likely_over_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("marin.training.permutation.BLOCK", 4)  # of a seed one epoch is looked at, not a thousand
    drawn = Counter(tuple(EpochOrder(4, seed, order="swap-or-not")(range(4)).tolist()) for seed in range(480))
    assert chi_square(drawn, 24) > 1e-3


@pytest.mark.parametrize("length", [9, 16, 64])
def test_places_neighbours_and_signs(length: int) -> None:
    """Of many epochs: every number at every place, every number after every other, even and odd permutations."""
    draws = 4000
    drawn = EpochOrder(length, 8, order="swap-or-not")(np.arange(length * draws)).reshape(draws, length)
    for placed_at in (0, 1, length // 2, length - 1):
        assert chi_square(Counter((x,) for x in drawn[:, placed_at].tolist()), length) > 1e-4
    neighbours = Counter((a, b) for row in drawn[:600].tolist() for a, b in pairwise(row))
    assert chi_square(neighbours, length * (length - 1)) > 1e-4
    odd = sum(int(np.linalg.slogdet(np.eye(length)[row])[0] < 0) for row in drawn[:1000])
    assert stats.binomtest(odd, 1000).pvalue > 1e-3


def test_epochs_and_seeds_do_not_follow_each_other() -> None:
    length, count = 1000, 40
    drawn = EpochOrder(length, 0, order="swap-or-not")(np.arange(length * count)).reshape(count, length)
    others = np.stack([EpochOrder(length, seed, order="swap-or-not")(np.arange(length)) for seed in range(1, 11)])
    every = np.concatenate([drawn, others])
    found = np.corrcoef(every)[np.triu_indices(len(every), 1)] * (length - 1) ** 0.5
    assert np.abs(found).max() < 5 and abs(float(found.std()) - 1) < 0.1
