"""Step ``evaluate``: validation loss, perplexity and minimal pairs of the trained state."""

from __future__ import annotations

from marin import recipe as recipes
from marin.arithmetic import apply
from marin.recipe import Execution, Recipe
from marin.steps import StepDefinition, StepResult, Task


def config(recipe: Recipe) -> object:
    """The part of the recipe that decides the measured numbers."""
    parts = ("model", "evaluation", "arithmetic")
    packing = {"packing": recipe.trainer.packing} if recipe.trainer.packing is not None else {}
    return {"seed": str(recipe.seed)} | {name: recipes.plain(getattr(recipe, name)) for name in parts} | packing


def run(task: Task) -> StepResult:
    """Evaluate in this process, on one device whatever the training used."""
    apply(task.recipe.arithmetic, Execution(devices=1))
    from marin.training.evaluate import evaluate

    return evaluate(task)


EVALUATE = StepDefinition(
    name="evaluate",
    inputs=("train", "tokens", "tokenizer", "corpus"),
    config=config,
    code=(
        "marin/arithmetic.py",
        "marin/mixture.py",
        "marin/recipe.py",
        "marin/steps/evaluate.py",
        "marin/training/compilation.py",
        "marin/training/data.py",
        "marin/training/evaluate.py",
        "marin/training/hosts.py",
        "marin/training/model.py",
        "marin/training/products.py",
        "marin/training/state.py",
        "marin/training/loss_mask.py",
        "marin/training/token_cache.py",
    ),
    run=run,
)
