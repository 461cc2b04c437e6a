"""Step ``evaluate``: validation loss, perplexity and minimal pairs of the trained state."""

from __future__ import annotations

from marin.execution.step import StepDefinition, StepResult, Task
from marin.process.arithmetic import apply
from marin.process.waiting import waiting
from marin.recipe import schema as recipes
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
    code=(
        "marin/process/arithmetic.py",
        "marin/provenance/processor.py",
        "marin/exact/compiled.py",
        "marin/exact/functions.py",
        "marin/exact/guarded.py",
        "marin/exact/integers.py",
        "marin/exact/program.py",
        "marin/exact/reading.py",
        "marin/exact/threefry.py",
        "marin/data/mixture.py",
        "marin/data/tokenizer.py",
        "marin/recipe/arithmetic.py",
        "marin/recipe/form/chats.py",
        "marin/recipe/evaluation.py",
        "marin/recipe/mixture.py",
        "marin/recipe/model.py",
        "marin/recipe/form/record.py",
        "marin/recipe/form/schedule.py",
        "marin/recipe/schema.py",
        "marin/recipe/section.py",
        "marin/pipeline/evaluate.py",
        "marin/training/runtime/compilation.py",
        "marin/tensors/array_form.py",
        "marin/tensors/reading.py",
        "marin/tensors/token_caches.py",
        "marin/training/blank.py",
        "marin/training/checkpoints/whole.py",
        "marin/training/step/compiled.py",
        "marin/training/data.py",
        "marin/training/permutation.py",
        "marin/training/loss.py",
        "marin/evaluation/evaluate.py",
        "marin/training/runtime/hosts.py",
        "marin/training/adapters.py",
        "marin/training/model.py",
        "marin/training/runtime/products.py",
        "marin/training/state.py",
        "marin/training/tokens/apart.py",
        "marin/training/tokens/loss_mask.py",
        "marin/training/tokens/masked.py",
        "marin/training/tokens/cache.py",
        "marin/training/tokens/stored.py",
    ),
    run=run,
    devices="one",
)
