"""A small recorded run to verify."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import ModuleType

import pytest

from marin.execution.executor import run_stage
from marin.recipe.schema import Recipe, from_mapping
from marin.record.creation import create_root
from marin.record.root import Root, open_root


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory, tiny_module: ModuleType) -> Path:
    """A folder with a real run of three small steps, and another one that takes two of them over; nobody may change it."""
    folder = tmp_path_factory.mktemp("recorded")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MARIN_KEY", str(folder / "key"))
        made = create_root(str(folder / ".marin"), origin="judged.example/log")
        for recipe in (Recipe(), from_mapping({"tokenizer": {"vocab_size": 300}}, where="test")):
            for step in tiny_module.PLAN.steps:
                run_stage(step.name, plan=tiny_module.PLAN, recipe=recipe, root=made, project=folder)
    return folder


@pytest.fixture
def root(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny: ModuleType) -> Root:
    """A copy of these runs, to be changed."""
    monkeypatch.setenv("MARIN_KEY", str(tmp_path / "key"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))  # of its own: the session's says where this log lives
    shutil.copytree(recorded, tmp_path, dirs_exist_ok=True)
    return open_root(str(tmp_path / ".marin"))
