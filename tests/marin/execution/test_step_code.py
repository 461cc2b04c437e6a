"""A step's code is what it imports: nothing that decides bits is left out of its identity, nothing else is in it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from marin.execution.step import StepDefinition
from marin.pipeline.stages import PIPELINE

PROJECT = Path(__file__).resolve().parents[3]

NEUTRAL = {
    "marin/__init__.py": "a version and a docstring",
    "marin/process/cache.py": "where compiled programs are kept",
    "marin/errors.py": "messages",
    "marin/process/text.py": "how foreign text is printed",
    "marin/record/bodies/__init__.py": "a docstring",
    "marin/record/bodies/body.py": "how results are recorded",
    "marin/record/bodies/collections.py": "how results are recorded",
    "marin/record/bodies/labels.py": "what people say of runs",
    "marin/record/events.py": "how results are recorded",
    "marin/process/interruption.py": "when training stops, not what it computes",
    "marin/record/meter.py": "measurements beside the evidence",
    "marin/process/progress.py": "bars",
    "marin/process/waiting.py": "says what takes long",
    "marin/execution/step.py": "how a step is called",
    "marin/training/step/hlo.py": "what is told of compiled programs",
    "marin/training/runtime/shape_checks.py": "which thread checks shapes",
}
ELSEWHERE = PROJECT / "marin" / "runners"
"""How a training is started on other machines; what it executes there is the same list."""
READS_CACHES = {
    "marin/data/chat.py",
    "marin/data/documents.py",
    "marin/data/exclusion.py",
    "marin/training/tokens/encoding.py",
}
"""Imported through marin/training/tokens/cache.py, which builds caches with them; train, evaluate and export only
read."""


def module_file(name: str) -> Path | None:
    path = PROJECT.joinpath(*name.split("."))
    candidates = (path.with_suffix(".py"), path / "__init__.py")
    return next((file for file in candidates if file.is_file()), None)


def imported(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module is not None:
            yield child.module
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        yield from imported(child)


def closure(start: Path) -> set[str]:
    found: set[Path] = set()
    waiting = [start]
    while waiting:
        file = waiting.pop()
        if file in found or file.is_relative_to(ELSEWHERE):
            continue
        found.add(file)
        names = (name for name in imported(ast.parse(file.read_text())) if name.partition(".")[0] == "marin")
        waiting += [path for name in names if (path := module_file(name)) is not None]
    return {
        file.relative_to(PROJECT).as_posix()
        for file in found
        if file.name != "__init__.py" or file.parent.name == "grammar"
    }


def listed(step: StepDefinition) -> set[str]:
    paths = [PROJECT / name for name in step.code]
    files = [file for path in paths for file in (path.rglob("*.py") if path.is_dir() else [path])]
    return {file.relative_to(PROJECT).as_posix() for file in files}


@pytest.mark.parametrize("step", PIPELINE.steps, ids=lambda step: step.name)
def test_a_step_lists_what_it_imports(step: StepDefinition) -> None:
    needed = closure(PROJECT / "marin" / "pipeline" / f"{step.name}.py") - NEUTRAL.keys()
    if step.name in ("train", "evaluate", "export"):
        needed -= READS_CACHES
    assert sorted(needed - listed(step)) == [], "code that decides bits and is not in the step's identity"
    extra = {name for name in listed(step) - needed if not name.startswith("marin/data/")}
    assert sorted(extra) == [], "code in the step's identity that it never imports"
