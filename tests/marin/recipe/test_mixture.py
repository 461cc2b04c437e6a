"""The order of a mixture's parts, against counting by hand."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.data.mixture import Interleave
from marin.errors import UsageError
from marin.recipe.mixture import block_counts

WEIGHTS = st.dictionaries(st.sampled_from("abcdef"), st.floats(0.25, 20.0), min_size=1)
BLOCKS = st.integers(512, 2048)
"""Long enough that each part has a sequence of one."""


@given(WEIGHTS, BLOCKS, st.integers(0, 5000))
def test_shares_ranks_and_counts(weights: dict[str, float], block: int, start: int) -> None:
    interleave = Interleave(weights, block)
    assert sum(interleave.counts.values()) == block
    assert all(abs(n - weights[name] / sum(weights.values()) * block) < 1 for name, n in interleave.counts.items())
    seen: Counter[int] = Counter()
    for one, number in map(interleave, range(start + 2 * block)):
        assert number == seen[one]  # each part is read without a gap
        seen[one] += 1
    assert interleave.consumed(start + 2 * block) == {name: seen[i] for i, name in enumerate(interleave.parts)}


@given(WEIGHTS, BLOCKS, st.floats(0.01, 0.14))
def test_a_part_with_less_than_one_sequence_of_a_block_is_refused(
    weights: dict[str, float], block: int, share: float
) -> None:
    """Below a seventh none is rounded up for it: of seven parts, those that are have the largest remainders."""
    with pytest.raises(UsageError, match=r"less than one sequence of a block.*found z"):
        Interleave(weights | {"z": sum(weights.values()) * share / block}, block)


@given(st.dictionaries(st.sampled_from("abcdef"), st.floats(0.5, 20.0), min_size=1))
def test_parts_are_spread_evenly(weights: dict[str, float]) -> None:
    interleave = Interleave(weights, 512)
    part = np.asarray([interleave(number)[0] for number in range(512)])
    for number, count in enumerate(interleave.counts.values()):
        so_far = np.cumsum(part == number)
        assert np.abs(so_far - (np.arange(512) + 1) * count / 512).max() <= len(weights)


def test_what_cannot_be_mixed() -> None:
    with pytest.raises(UsageError, match="nothing to mix"):
        block_counts({"a": 0.0}, 8)
    with pytest.raises(UsageError, match=r"less than one sequence of a block.*found b"):
        block_counts({"a": 1.0, "b": 1e-6}, 8)
    assert block_counts({"a": 1.0, "b": 0.0}, 8) == {"a": 8}
