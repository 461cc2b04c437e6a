"""Steps executed without recording them: the same functions, in temporary folders, with a journal that only
remembers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ledger import Store
from marin.data.reach import EVERYTHING, Reach, reaching
from marin.execution.step import StepDefinition, StepResult, Task
from marin.recipe.schema import Execution, Recipe
from marin.record.events import Body


@dataclass
class MemoryJournal:
    """Keeps what a step reports; nothing reaches the ledger."""

    recorded: list[tuple[str, Body]] = field(default_factory=list)

    def record(self, kind: str, body: Body) -> int:
        """Remember the event; the index counts from 0."""
        self.recorded.append((kind, body))
        return len(self.recorded) - 1

    def history(self, kind: str) -> Sequence[Body]:
        """What was reported of one type."""
        return [body for name, body in self.recorded if name == kind]


@dataclass(frozen=True)
class Rehearsal:
    """A temporary folder in which steps of ``recipe`` are executed again."""

    folder: Path
    run: str
    recipe: Recipe
    store: Store
    execution: Execution
    reach: Reach = EVERYTHING

    def execute(self, step: StepDefinition, inputs: Mapping[str, Path]) -> tuple[Path, StepResult]:
        """The folder that ``step`` filled from ``inputs``, and what it says of it."""
        out, work = self.folder / step.name / "out", self.folder / step.name / "work"
        out.mkdir(parents=True)
        work.mkdir()
        task = Task(
            run=self.run,
            recipe=self.recipe,
            inputs=inputs,
            out=out,
            work=work,
            store=self.store,
            journal=MemoryJournal(),
            execution=self.execution,
        )
        with reaching(self.reach):
            return out, step.run(task)
