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
from marin.recipe.arithmetic import step_plugins
from marin.recipe.model import BLANKS, IMPORTED, LEARNING, WORDS, model_plugins
from marin.recipe.objective import check_verdict, objective_plugins
from marin.recipe.schema import Recipe
from marin.runners.places import place_of


def config(recipe: Recipe) -> object:
    """The part of the recipe that decides the trained bits."""
    parts = {name: recipes.plain(getattr(recipe, name)) for name in ("model", "optimizer", "trainer", "arithmetic")}
    later = {
        name: recipes.plain(getattr(recipe, name))
        for name in ("order", "mixture", "phase", "initial", "lora", "objective", "exclude")
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
            cure="draw one with marin.execution.seeds.with_seed: the bits depend on it",
        )
    check_verdict(task.recipe, where="recipe")
    if task.recipe.trainer.states_at_words is not None and task.execution.keep is not None:
        raise UsageError(
            "states that a recipe asks for and a policy lets go",
            where="--keep-checkpoints",
            expected="none beside trainer.states_at_words",
            found=f"every={task.execution.keep.every},last={task.execution.keep.last}",
            cure="leave it out: these states are to be kept",
        )
    if task.execution.runner != "local" and not task.execution.samplers:  # which alone are there: it trains here
        return place_of(task.execution.runner).train(task)
    apply(task.recipe.arithmetic, task.execution)
    with waiting("importing jax and Levanter"):
        from marin.training.run import train

    return train(task)


def plugins(recipe: Recipe) -> tuple[tuple[str, str], ...]:
    """What the recipe's arithmetic, objective, experts, adapters and optimizer are computed by, what reads a model that was made
    elsewhere, and what counts the words and epochs that a recipe speaks of."""
    read = (IMPORTED,) if recipe.initial is not None else ()
    counted = recipe.trainer.states_at_words is not None or recipe.trainer.most_epochs is not None
    own = (
        *step_plugins(recipe.arithmetic),
        *objective_plugins(recipe),
        *model_plugins(recipe),
        *recipe.optimizer.plugins,
    )
    learned = (LEARNING,) if recipes.may_be_masked(recipe) else ()
    blank = (BLANKS,) if recipe.exclude is not None else ()
    return (*own, *read, *((WORDS,) if counted else ()), *learned, *blank)


TRAIN = StepDefinition(
    name="train",
    inputs=("tokens", "tokenizer"),
    config=config,
    starts=("marin/pipeline/train.py",),
    run=run,
    devices="all",
    plugins=plugins,
    continues=True,
)
