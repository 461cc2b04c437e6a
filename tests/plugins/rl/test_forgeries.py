"""A training that was made otherwise than it says, by somebody who holds the key and goes on from the lie truly: replay finds the
first update in which it was, and names what differs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ledger import Store
from marin.plugins.rl.record import read_record
from marin.training.loop import Steps
from tests.adversary.forgeries.rewards import HONEST, LIES, Runs, prepared_runs
from tests.adversary.forgeries.workshop import changes
from tests.ledger.memory import MemoryStorage

pytestmark = pytest.mark.long(together="forgeries", seconds=40)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    with prepared_runs(tmp_path_factory.mktemp("rewards")) as made:
        yield made


def test_a_training_that_is_what_it_says_is_made_again(runs: Runs) -> None:
    told = runs.trained()
    assert runs.judged(told) == ""
    assert {len(set(segment.batches)) for segment in told.segments} == {2}, "two train steps on the same completions"
    records = [read_record(told.store.read(batch)) for segment in told.segments for batch in segment.batches[::2]]
    assert [one.drawn_before for one in records if one is not None] == [0, 0, 2, 2], (
        "one update behind, in each segment"
    )
    assert runs.trained().segments == told.segments


@pytest.mark.parametrize("name", LIES)
def test_a_lie_is_named(runs: Runs, name: str) -> None:
    lie, step, said = LIES[name]
    with changes() as made:
        lie(made)
        found = runs.judged(runs.trained())
    assert found.startswith(f"train step {step}: ") and said in found


def test_the_table_has_a_row_for_each_lie() -> None:
    text = Path("docs/verify.md").read_text("utf-8")
    assert [name for name in (HONEST, *LIES) if f" | {name} | operator | " not in text] == []


def test_a_record_that_is_kept_back_is_drawn_again(runs: Runs) -> None:
    """The verdict on artifacts misses it; what was learned is judged without it."""
    told = runs.trained()
    assert runs.judged(replace(told, store=Store(MemoryStorage()))) == ""


def test_a_batch_that_an_update_did_not_see_is_named(runs: Runs) -> None:
    def same(steps: Steps) -> None:
        steps.batches[1] = "sha256:" + "0" * 64

    assert "train step 1: the completions differ: the recorded ones are not in the store" in runs.judged(
        runs.trained(same)
    )
