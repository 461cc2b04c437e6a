"""Step ``export``: the trained state as a Hugging Face folder."""

from __future__ import annotations

from marin.execution.step import StepDefinition, StepResult, Task
from marin.process.arithmetic import apply
from marin.process.waiting import waiting
from marin.recipe import schema as recipes
from marin.recipe.schema import Execution, Recipe, chats


def config(recipe: Recipe) -> object:
    """The part of the recipe that decides the exported bytes."""
    own = {name: recipes.plain(getattr(recipe, name)) for name in ("model", "export", "arithmetic")}
    if chats(recipe.dataset):  # its folder has their template
        own["dataset"] = recipes.plain(recipe.dataset)
    return own | recipes.adapters(recipe)


def run(task: Task) -> StepResult:
    """Export in this process."""
    apply(task.recipe.arithmetic, Execution(devices=1))
    with waiting("importing jax and Levanter"):
        from marin.training.export import export

    return export(task)


EXPORT = StepDefinition(
    name="export",
    inputs=("train", "tokenizer"),
    config=config,
    code=(
        "marin/process/arithmetic.py",
        "marin/provenance/processor.py",
        "marin/data/borrowed/chats.py",
        "marin/data/chat.py",
        "marin/data/template.py",
        "marin/data/tokenizer.py",
        "marin/exact/program.py",
        "marin/recipe/arithmetic.py",
        "marin/recipe/evaluation.py",
        "marin/recipe/mixture.py",
        "marin/recipe/model.py",
        "marin/recipe/form/record.py",
        "marin/recipe/form/schedule.py",
        "marin/recipe/schema.py",
        "marin/recipe/section.py",
        "marin/pipeline/export.py",
        "marin/training/checkpoints/whole.py",
        "marin/training/export.py",
        "marin/training/adapters.py",
        "marin/training/model.py",
        "marin/training/runtime/products.py",
        "marin/training/state.py",
    ),
    run=run,
    devices="one",
)
