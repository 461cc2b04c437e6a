"""Step ``export``: the trained state as a Hugging Face folder."""

from __future__ import annotations

from marin import recipe as recipes
from marin.arithmetic import apply
from marin.recipe import Execution, Recipe
from marin.steps import StepDefinition, StepResult, Task


def config(recipe: Recipe) -> object:
    """The part of the recipe that decides the exported bytes."""
    return {name: recipes.plain(getattr(recipe, name)) for name in ("model", "export", "arithmetic")}


def run(task: Task) -> StepResult:
    """Export in this process."""
    apply(task.recipe.arithmetic, Execution(devices=1))
    from marin.training.export import export

    return export(task)


EXPORT = StepDefinition(
    name="export",
    inputs=("train", "tokenizer"),
    config=config,
    code=("marin/steps/export.py", "marin/training", "marin/recipe.py", "marin/arithmetic.py"),
    run=run,
)
