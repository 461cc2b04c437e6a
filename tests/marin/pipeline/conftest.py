"""A step run by itself: folders in a temporary place, a store in memory, a journal that remembers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from ledger import Store
from marin.execution.step import StepDefinition, StepResult, Task
from marin.recipe.schema import Recipe
from marin.record.events import Body
from tests.ledger.memory import MemoryStorage

RunStep = Callable[..., tuple[Path, StepResult]]


class _Journal:
    def __init__(self) -> None:
        self.recorded: list[tuple[str, Body]] = []

    def record(self, kind: str, body: Body) -> int:
        self.recorded.append((kind, body))
        return len(self.recorded) - 1

    def history(self, kind: str) -> list[Body]:
        return [body for recorded, body in self.recorded if recorded == kind]


@pytest.fixture
def store() -> Store:
    return Store(MemoryStorage())


@pytest.fixture
def run_step(tmp_path: Path, store: Store) -> RunStep:
    """``run_step(step, recipe, inputs={})`` -> its output folder and its result; each call gets folders of its own."""
    calls = 0

    def run(step: StepDefinition, recipe: Recipe, inputs: Mapping[str, Path] | None = None) -> tuple[Path, StepResult]:
        nonlocal calls
        calls += 1
        place = tmp_path / f"{step.name}-{calls}"
        out, work = place / "out", place / "work"
        out.mkdir(parents=True)
        work.mkdir()
        task = Task(run="test", recipe=recipe, inputs=inputs or {}, out=out, work=work, store=store, journal=_Journal())
        return out, step.run(task)

    return run
