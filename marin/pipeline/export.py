"""Step ``export``: the trained state as a Hugging Face folder."""

from __future__ import annotations

from marin.execution.step import StepDefinition, StepResult, Task
from marin.process.arithmetic import apply
from marin.process.waiting import waiting
from marin.recipe import schema as recipes
from marin.recipe.model import CHATS, model_plugins
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
    starts=("marin/pipeline/export.py",),
    run=run,
    devices="one",
    plugins=lambda recipe: (*model_plugins(recipe), *((CHATS,) if chats(recipe.dataset) else ())),
)
