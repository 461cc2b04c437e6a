"""A run that trained for more epochs than its recipe allows is not what it says, whatever its bits are."""

from __future__ import annotations

import pytest

from marin.recipe.schema import Recipe, from_mapping
from marin.verify.judges.training import too_long


def recipe(steps: int, most: int | None) -> Recipe:
    """Train steps of 4 sequences of 16 tokens."""
    trainer = {"num_steps": steps, "batch_size": 4, "steps_per_segment": 1, "most_epochs": most}
    arithmetic = {"logical_shards": 2, "microbatch_size": 1}
    return from_mapping({"trainer": trainer, "model": {"seq_len": 16}, "arithmetic": arithmetic}, where="test")


@pytest.mark.parametrize(
    ("steps", "most", "tokens"), [(20, 2, 640.0), (21, None, 640.0), (21, 2, None), (21, 2, 704.0)]
)
def test_as_many_epochs_as_are_allowed_are_fine(steps: int, most: int | None, tokens: float | None) -> None:
    assert too_long(recipe(steps, most), tokens) is None


def test_one_train_step_more_is_a_difference() -> None:
    found = too_long(recipe(21, 2), 640.0)
    assert found is not None and "20 train steps at most, 2 epochs of 640 tokens" in found.describe()
    assert "found 21" in found.describe()
