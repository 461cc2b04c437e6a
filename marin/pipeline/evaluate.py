"""Step ``evaluate``: validation loss, perplexity and minimal pairs of the trained state."""

from __future__ import annotations

from marin.execution.step import StepDefinition, StepResult, Task
from marin.process.arithmetic import apply
from marin.process.waiting import waiting
from marin.recipe import schema as recipes
from marin.recipe.arithmetic import profile_plugins
from marin.recipe.model import model_plugins
from marin.recipe.schema import Execution, Recipe


def config(recipe: Recipe) -> object:
    """The part of the recipe that decides the measured numbers."""
    parts = ("model", "arithmetic")
    measured = {name: getattr(recipe.evaluation, name) for name in ("batch_size", "max_sequences", "minimal_pairs")}
    packing = {"packing": recipe.trainer.packing} if recipe.trainer.packing is not None else {}
    return (
        {"seed": str(recipe.seed), "evaluation": recipes.plain(measured)}
        | {name: recipes.plain(getattr(recipe, name)) for name in parts}
        | packing
        | recipes.adapters(recipe)
        | recipes.ends(recipe)
        | recipes.reading(recipe)
    )


def run(task: Task) -> StepResult:
    """Evaluate in this process, on one device whatever the training used."""
    apply(task.recipe.arithmetic, Execution(devices=1))
    with waiting("importing jax and Levanter"):
        from marin.evaluation.evaluate import evaluate

    return evaluate(task)


EVALUATE = StepDefinition(
    name="evaluate",
    inputs=("train", "tokens", "tokenizer", "corpus"),
    config=config,
    starts=("marin/pipeline/evaluate.py",),
    run=run,
    devices="one",
    plugins=lambda recipe: (*profile_plugins(recipe.arithmetic), *model_plugins(recipe)),
)
