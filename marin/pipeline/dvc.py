"""dvc.yaml as far as it follows from the steps: the dependencies of each stage."""

from __future__ import annotations

import re

from marin.errors import DataError
from marin.execution.step import StepDefinition
from marin.pipeline.stages import PIPELINE
from marin.provenance.code import LOCK
from marin.recipe.schema import Recipe

_DEPENDENCIES = re.compile(r"^    deps:[^\n]*\n(?:      [^\n]*\n)*", re.MULTILINE)


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
