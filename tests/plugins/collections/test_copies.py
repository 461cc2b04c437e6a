"""Which documents go as exact copies, beside a look at each; and how much memory it takes where all of them are equal."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from marin.plugins.collections.making import rows
from marin.plugins.collections.making.exact import copies

COUNT = 1 << 17


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.parametrize("values", [2, 5, 1000], ids=["many begin alike", "some", "few"])
def test_of_equal_digests_that_with_the_least_id_stays(values: int) -> None:
    draw = np.random.default_rng(values)
    for count in (0, 1, 2, 300):
        digests, ids = draw.integers(0, values, (count, 4), np.uint64), draw.integers(0, 1 << 60, (count, 2), np.uint64)
        together: dict[tuple[int, ...], list[int]] = {}
        for place in sorted(range(count), key=lambda place: tuple(ids[place])):
            together.setdefault(tuple(digests[place].tolist()), []).append(place)
        expected = [(place, group[0]) for _, group in sorted(together.items()) for place in group[1:]]
        assert list(zip(*map(np.ndarray.tolist, copies(digests, ids)), strict=True)) == expected


def test_many_equal_digests_take_the_memory_of_a_few_numbers_each(traced: None) -> None:
    draw = np.random.default_rng(1)
    digests, ids = np.ones((COUNT, 4), np.uint64), draw.integers(0, 1 << 60, (COUNT, 2), np.uint64)
    before = tracemalloc.get_traced_memory()[0]
    removed, _ = copies(digests, ids)
    assert len(removed) == COUNT - 1
    assert (tracemalloc.get_traced_memory()[1] - before) / COUNT < 64


def test_a_piece_with_one_key_is_not_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, traced: None) -> None:
    monkeypatch.setattr(rows, "WAITING", 1 << 16)
    part = 1 << 10
    parts = ((np.arange(part) + begin, [np.ones((part, 4), np.uint64)]) for begin in range(0, COUNT, part))
    before = tracemalloc.get_traced_memory()[0]
    (piece,) = rows._spread(parts, ["column_0"], 4, tmp_path)
    assert (tracemalloc.get_traced_memory()[1] - before) / COUNT < 8
    assert (piece["number"] == np.arange(COUNT)).all() and (piece["column_0"] == 1).all()
