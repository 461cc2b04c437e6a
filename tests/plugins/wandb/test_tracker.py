"""tracker=NAME is taken off the line before a recipe is composed, and a tracker's failure takes nothing from a run."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from marin.errors import UsageError
from marin.execution import tracker
from marin.execution.tracker import choose
from marin.record.events import TRAIN_STARTED, TrainStarted


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """`choose` sets the variable; afterwards it is as before."""
    monkeypatch.setenv("MARIN_TRACKER", "")


def test_the_word_is_no_part_of_the_recipe(monkeypatch: pytest.MonkeyPatch):
    assert choose(("seed=1",)) == ("seed=1",) and tracker.choose_tracker() == "none"
    assert (
        choose(("model=nano", "tracker=wandb", "seed=1")) == ("model=nano", "seed=1")
        and tracker.choose_tracker() == "wandb"
    )
    assert tracker.environment() == {"MARIN_TRACKER": "wandb"}
    assert choose(("tracker=none",)) == () and tracker.environment() == {}
    assert choose(("+tracker=wandb",)) == () and tracker.choose_tracker() == "wandb"
    assert choose(("++trainer.tracker=none",)) == () and tracker.choose_tracker() == "none"
    assert (
        choose(("trainer.tracker=wandb", "trainer=short")) == ("trainer=short",) and tracker.choose_tracker() == "wandb"
    )
    assert choose() == () and tracker.choose_tracker() == "wandb"
    with pytest.raises(UsageError, match="none or wandb, found tensorboard"):
        choose(("tracker=tensorboard",))
    monkeypatch.setenv("MARIN_TRACKER", "mlflow")
    with pytest.raises(UsageError, match="MARIN_TRACKER"):
        choose()


def test_a_failure_at_the_end_is_said_and_that_is_all(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    broken: Any = ModuleType("marin.plugins.wandb.export")
    broken.export_wandb = lambda *_: (_ for _ in ()).throw(OSError("disk full"))
    monkeypatch.setitem(sys.modules, "marin.plugins.wandb.export", broken)
    monkeypatch.setenv("MARIN_TRACKER", "wandb")
    tracker.completed(SimpleNamespace(views=Path), "abcd2345")  # type: ignore[arg-type]
    assert caplog.messages == ["not written for W&B: disk full"]


def test_a_failure_while_it_trains_is_said_and_the_facts_are_recorded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    recorded: list[str] = []

    class Plain:
        def record(self, kind: str, body: object) -> int:
            recorded.append(kind)
            return len(recorded)

        def history(self, kind: str) -> list[Any]:
            raise AssertionError("not asked")

    some = "sha256:" + "0" * 64
    started = TrainStarted(
        run="abcd2345", first_step=0, num_steps=1, state=some, manifest=some, program={}, seeds={}, devices=1, attempt=1
    )
    root: Any = SimpleNamespace(local=Path("/proc/no such folder"))
    monkeypatch.setenv("MARIN_TRACKER", "wandb")
    with caplog.at_level(logging.WARNING), tracker.following(Plain(), root, "abcd2345", "train") as journal:
        assert journal.record(TRAIN_STARTED, started) == 1
        assert journal.record(TRAIN_STARTED, started) == 2
    assert recorded == [TRAIN_STARTED] * 2
    assert "the run goes on" in caplog.text
    with tracker.following(Plain(), root, "abcd2345", "corpus") as journal:
        assert isinstance(journal, Plain), "only training is followed"
