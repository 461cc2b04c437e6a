"""What a phase's recipe says, from the recipes before it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from marin.errors import UsageError
from marin.execution.phases import successor
from marin.recipe.schema import Recipe, digest, from_mapping, from_plain, plain, recorded


def recipe(**sections: Any) -> Recipe:
    return from_mapping({"trainer": {"num_steps": 10, "batch_size": 8}} | sections, where="test")


def test_a_run_without_phases_has_the_digest_that_it_always_had() -> None:
    assert "phase" not in plain(recipe()) and "mixture" not in plain(recipe())
    assert digest(from_plain(recorded(recipe()), where="test")) == digest(recipe())
    # Recorded before there were phases and mixtures: the recipe of nothing but defaults.
    assert digest(Recipe()) == "sha256:8e0cddaa986a83524125301504c3c5db6f911d9891a8da3b41570e283c90960c"


def test_steps_and_sequences_are_counted_through_all_phases() -> None:
    second = successor(recipe(), recipe(trainer={"num_steps": 5, "batch_size": 16}))
    third = successor(second, recipe(trainer={"num_steps": 7, "batch_size": 8}), at=13)
    assert second.phase is not None and third.phase is not None
    assert (second.first_step, second.last_step, second.phase.first_sequence) == (10, 15, 80)
    assert (third.first_step, third.last_step, third.phase.first_sequence) == (13, 20, 80 + 3 * 16)
    assert second.phase.consumed == {"grammar": 80}
    assert third.phase.consumed == {"grammar": 128}
    assert from_plain(recorded(third), where="test") == third


@pytest.mark.parametrize(
    "change",
    [
        {"model": {"seq_len": 64}},
        {"seed": 1},
        {"dataset": {"kind": "grammar", "seed": 1}},
        {"tokens": {"append_eos": False}},
    ],
)
def test_other_sequences_are_read_from_their_beginning(change: dict[str, Any]) -> None:
    phase = successor(recipe(), recipe(**change)).phase
    assert phase is not None and phase.consumed == {} and phase.first_sequence == 80


def test_what_a_phase_keeps() -> None:
    for change in ({"model": {"num_layers": 3}}, {"optimizer": {"name": "lion"}}, {"tokenizer": {"vocab_size": 300}}):
        with pytest.raises(UsageError, match="a phase keeps this"):
            successor(recipe(), recipe(**change))
    gpt2 = {"architecture": "gpt2", "intermediate_dim": 512}
    with pytest.raises(UsageError, match=r"model\.seq_len"):
        successor(recipe(model=gpt2), recipe(model=gpt2 | {"seq_len": 64}))
    for at in (0, 11):
        with pytest.raises(UsageError, match="begins after a train step"):
            successor(recipe(), recipe(), at=at)


def test_a_recipe_of_a_newer_version_is_refused() -> None:
    with pytest.raises(UsageError, match=r"another version: here: recipe_version: expected 1, found 2"):
        from_plain(recorded(recipe()) | {"recipe_version": 2}, where="here")


def test_parts_and_weights_belong_together() -> None:
    parts = {"kind": "mixture", "parts": {"a": {"kind": "grammar"}, "b": {"kind": "grammar", "seed": 1}}}
    for sections in (
        {"dataset": parts},
        {"mixture": {"weights": {"a": 1.0}}},
        {"dataset": parts, "mixture": {"weights": {"c": 1.0}}},
    ):
        with pytest.raises(UsageError, match=r"mixture|weight"):
            recipe(**sections)
    with pytest.raises(UsageError, match="at least 1 entries"):
        recipe(dataset={"kind": "mixture", "parts": {}}, mixture={"weights": {"a": 1.0}})
    mixed = recipe(dataset=parts, mixture={"weights": {"a": 1.0, "b": 0.0}})
    assert from_plain(recorded(mixed), where="test") == mixed
    assert msgspec.to_builtins(mixed)["dataset"]["parts"]["a"]["kind"] == "grammar"
