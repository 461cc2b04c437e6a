"""Step ``train``: from tokens to a trained state, recorded segment by segment.

Light to import; the work is in :mod:`marin.training`, loaded when the step runs and after the arithmetic contract is
in force.
"""

from __future__ import annotations

from marin.errors import UsageError
from marin.execution.step import StepDefinition, StepResult, Task
from marin.process.arithmetic import apply
from marin.process.waiting import waiting
from marin.recipe import schema as recipes
from marin.recipe.schema import Recipe


def config(recipe: Recipe) -> object:
    """The part of the recipe that decides the trained bits."""
    parts = {name: recipes.plain(getattr(recipe, name)) for name in ("model", "optimizer", "trainer", "arithmetic")}
    later = {
        name: recipes.plain(getattr(recipe, name))
        for name in ("order", "mixture", "phase", "initial", "lora", "exclude")
        if getattr(recipe, name) is not None
    }
    later |= recipes.ends(recipe)
    return {"seed": str(recipe.seed)} | parts | later


def run(task: Task) -> StepResult:
    """Train, or go on training: in this process, or in those of a Ray (then this one imports no jax).

    Raises:
        Unsupported: the contract can not be honoured here.
        UsageError: the recipe has no seed.
    """
    if task.recipe.seed is None:
        raise UsageError(
            "no seed",
            where="seed",
            expected="an integer from 0 to 2**63 - 1",
            found="null",
            cure="draw one with marin.execution.seeds.settled: the bits depend on it",
        )
    if task.recipe.trainer.states_at_words is not None and task.execution.keep is not None:
        raise UsageError(
            "states that a recipe asks for and a policy lets go",
            where="--keep-checkpoints",
            expected="none beside trainer.states_at_words",
            found=f"every={task.execution.keep.every},last={task.execution.keep.last}",
            cure="leave it out: these states are to be kept",
        )
    if task.execution.runner == "ray":
        from marin.runners.ray.training import train_on_ray

        return train_on_ray(task)
    apply(task.recipe.arithmetic, task.execution)
    with waiting("importing jax and Levanter"):
        from marin.training.run import train

    return train(task)


TRAIN = StepDefinition(
    name="train",
    inputs=("tokens", "tokenizer"),
    config=config,
    code=(
        "marin/process/arithmetic.py",
        "marin/provenance/processor.py",
        "marin/exact/compiled.py",
        "marin/exact/functions.py",
        "marin/exact/guarded.py",
        "marin/exact/integers.py",
        "marin/exact/known.py",
        "marin/exact/moving.py",
        "marin/exact/program.py",
        "marin/exact/reading.py",
        "marin/exact/reference.py",
        "marin/exact/threefry.py",
        "marin/exact/unguarded.py",
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
        "marin/recipe/seeds.py",
        "marin/record/fingerprint.py",
        "marin/pipeline/train.py",
        "marin/training/runtime/canary.py",
        "marin/training/runtime/compilation.py",
        "marin/tensors/array_form.py",
        "marin/tensors/reading.py",
        "marin/tensors/token_caches.py",
        "marin/training/blank.py",
        "marin/training/data.py",
        "marin/training/permutation.py",
        "marin/training/checkpoints/digesting.py",
        "marin/training/checkpoints/loading.py",
        "marin/training/checkpoints/saving.py",
        "marin/training/checkpoints/whole.py",
        "marin/training/initial.py",
        "marin/training/step/exact.py",
        "marin/training/step/fingerprint.py",
        "marin/training/runtime/hosts.py",
        "marin/training/loop.py",
        "marin/training/loss.py",
        "marin/training/imported.py",
        "marin/data/borrowed/tensor_files.py",
        "marin/training/adapters.py",
        "marin/training/model.py",
        "marin/training/runtime/products.py",
        "marin/training/run.py",
        "marin/training/step/slices.py",
        "marin/training/state.py",
        "marin/training/step/attention.py",
        "marin/training/step/contract.py",
        "marin/training/step/layered.py",
        "marin/training/step/parts.py",
        "marin/training/step/preference.py",
        "marin/training/step/shards.py",
        "marin/training/step/update.py",
        "marin/training/runtime/stopping.py",
        "marin/training/tokens/apart.py",
        "marin/training/tokens/loss_mask.py",
        "marin/training/learning.py",
        "marin/training/tokens/masked.py",
        "marin/training/tokens/cache.py",
        "marin/training/tokens/stored.py",
        "marin/training/tokens/words.py",
    ),
    run=run,
    devices="all",
    continues=True,
)
