"""The order of the data: a pure function of seed and length, without gaps or repeats within an epoch."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from marin.training.data import EndlessDataset, EpochOrder, batch_digest


class Numbers:
    """A dataset whose item n is n."""

    async def get_batch(self, indices: Sequence[int]) -> Sequence[int]:
        return list(indices)


@pytest.mark.parametrize("length", [1, 2, 7, 64, 1000])
def test_an_epoch_sees_every_sequence_once(length: int) -> None:
    order = EpochOrder(length, seed=3)
    for epoch in range(3):
        seen = order(range(epoch * length, (epoch + 1) * length))
        assert sorted(seen.tolist()) == list(range(length))


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    first, second = EpochOrder(100, seed=1), EpochOrder(100, seed=2)
    orders = {tuple(order(range(start, start + 100)).tolist()) for order in (first, second) for start in (0, 100, 200)}
    assert len(orders) == 6
    assert tuple(range(100)) not in orders


def test_a_step_is_found_without_the_steps_before_it() -> None:
    straight, late = EpochOrder(37, seed=5), EpochOrder(37, seed=5)
    whole = straight(range(200))
    for start in (0, 30, 36, 37, 150):  # inside epochs and across their borders, in any order of asking
        assert late(range(start, start + 16)).tolist() == whole[start : start + 16].tolist()


def test_reading_past_the_end_goes_on_with_the_next_epoch() -> None:
    order = EpochOrder(10, seed=0)
    dataset: Any = EndlessDataset(Numbers(), order)  # type: ignore[arg-type]
    assert not dataset.is_finite()
    items = asyncio.run(dataset.get_batch(range(5, 25)))
    assert items == order(range(5, 25)).tolist()
    assert sorted(items[5:15]) == list(range(10))


def test_a_batch_is_named_by_indices_and_tokens() -> None:
    tokens = np.arange(8, dtype=np.int32).reshape(2, 4)
    indices = np.array([5, 9])
    whole = batch_digest(indices, tokens)
    assert batch_digest(indices, tokens.copy(order="F")) == whole
    assert batch_digest(np.array([9, 5]), tokens) != whole
    assert batch_digest(indices, tokens[::-1]) != whole
    assert len({batch_digest(indices, tokens ^ (1 << bit)) for bit in range(31)} | {whole}) == 32
