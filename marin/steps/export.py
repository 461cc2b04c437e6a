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
    code=(
        "marin/arithmetic.py",
        "marin/mixture.py",
        "marin/recipe.py",
        "marin/steps/export.py",
        "marin/training/compilation.py",
        "marin/training/data.py",
        "marin/training/evaluate.py",
        "marin/training/export.py",
        "marin/training/hosts.py",
        "marin/training/model.py",
        "marin/training/products.py",
        "marin/training/state.py",
        "marin/training/loss_mask.py",
        "marin/training/token_cache.py",
    ),
    run=run,
)
