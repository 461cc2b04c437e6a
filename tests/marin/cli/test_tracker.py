"""tracker=NAME is taken off the line before a recipe is composed, and a tracker's failure takes nothing from a run."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from marin.cli import tracker
from marin.errors import UsageError


def test_the_word_is_no_part_of_the_recipe(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("MARIN_TRACKER", raising=False)
    assert tracker.split(("model=nano", "tracker=wandb", "seed=1")) == (("model=nano", "seed=1"), "wandb")
    assert tracker.split(("+tracker=wandb",)) == ((), "wandb")
    assert tracker.split(("seed=1",)) == (("seed=1",), "none")
    monkeypatch.setenv("MARIN_TRACKER", "wandb")
    assert tracker.split(()) == ((), "wandb")
    assert tracker.split(("tracker=none",)) == ((), "none")
    with pytest.raises(UsageError, match="none or wandb, found tensorboard"):
        tracker.split(("tracker=tensorboard",))


def test_a_failure_is_said_and_that_is_all(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):

    broken: Any = ModuleType("marin.tracking.wandb_export")
    broken.export_wandb = lambda *_: (_ for _ in ()).throw(OSError("disk full"))
    monkeypatch.setitem(sys.modules, "marin.tracking.wandb_export", broken)
    tracker.after_run(SimpleNamespace(local=Path()), "abcd2345", "wandb")  # type: ignore[arg-type]
    assert capsys.readouterr().err == "not written for W&B: disk full\n"
