"""A small recorded run to verify."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from marin.execution.executor import run_stage
from marin.recipe.schema import Recipe, from_mapping
from marin.record.root import Root, create_root


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny: ModuleType) -> Root:
    """A real run of three small steps, and another one that takes two of them over."""
    monkeypatch.setenv("MARIN_KEY", str(tmp_path / "key"))
    made = create_root(str(tmp_path / ".marin"), origin="test.example/log")
    for recipe in (Recipe(), from_mapping({"tokenizer": {"vocab_size": 300}}, where="test")):
        for step in tiny.PLAN.steps:
            run_stage(step.name, plan=tiny.PLAN, recipe=recipe, root=made, project=tmp_path)
    return made
