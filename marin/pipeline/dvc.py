"""dvc.yaml as far as it follows from the steps: the dependencies of each stage. And whether dvc.lock is of what lies here."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from marin.errors import DataError
from marin.execution.step import StepDefinition
from marin.pipeline.stages import PIPELINE
from marin.provenance.code import LOCK
from marin.recipe.schema import Recipe

_DEPENDENCIES = re.compile(r"^    deps:[^\n]*\n(?:      [^\n]*\n)*", re.MULTILINE)

_LOCKED = re.compile(r"^    - path: (\S.*)\n      hash: md5\n      md5: ([0-9a-f]{32})$", re.MULTILINE)
"""A file of a stage in dvc.lock, as DVC writes it."""


def dependencies(step: StepDefinition, recipe: Recipe) -> tuple[str, ...]:
    """The pointers of its inputs, the code that it executes under ``recipe``, and the lock, as dvc.yaml writes them."""
    return (*(f"${{out}}/{name}.json" for name in step.inputs), *step.code(recipe), LOCK)


def with_dependencies(text: str, recipe: Recipe) -> str:
    """A dvc.yaml with the dependencies that its stages have by now, under ``recipe``; all else in it stays.

    Raises:
        DataError: a stage is missing, or has no ``deps``.
    """
    for step in PIPELINE.steps:
        listed = "    deps:\n" + "".join(f"      - {path}\n" for path in dependencies(step, recipe))
        found = re.search(rf"(?ms)^  {step.name}:\n(?:(?:    [^\n]*)?\n)*", text)
        parts = _DEPENDENCIES.split(found[0]) if found is not None else []
        if found is None or len(parts) != 2:
            raise DataError(
                "a stage without dependencies",
                where=f"dvc.yaml: {step.name}",
                expected="one list `deps`, which is written here",
                found="no such stage" if found is None else f"{len(parts) - 1} of them",
                cure="restore the file: git checkout dvc.yaml",
            )
        text = text[: found.start()] + listed.join(parts) + text[found.end() :]
    return text


def first_changed(project: Path, names: Sequence[str]) -> str:
    """The first file that dvc.lock has for these stages and that is another one now, or a stage that it lacks; "" where there
    is neither, and in a folder without dvc.yaml. A parameter that changed is in the stage's receipt, by its identity."""
    if not (project / "dvc.yaml").is_file():
        return ""
    lock = project / "dvc.lock"
    text = lock.read_text("utf-8", errors="replace") if lock.is_file() else ""
    for name in names:
        stage = re.search(rf"(?ms)^  {name}:\n(?:    [^\n]*\n)*", text)
        files: list[tuple[str, str]] = _LOCKED.findall(stage[0]) if stage is not None else []
        if not files:
            return f"stage {name}"
        for path, md5 in files:
            file = project / path
            if not file.is_file() or hashlib.md5(file.read_bytes(), usedforsecurity=False).hexdigest() != md5:
                return path
    return ""
