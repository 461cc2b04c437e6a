"""Step ``tokens``: the corpus as Levanter's token caches, one for each split, digested by content.

Light to import; the work is in :mod:`marin.training.tokens.building`, which needs TensorStore and neither jax nor Levanter.
"""

from __future__ import annotations

from marin.execution.step import StepDefinition, StepResult, Task
from marin.recipe import schema as recipes
from marin.recipe.model import APART, EXCLUSION, LEARNED
from marin.recipe.schema import Recipe, chats
from marin.runners.places import place_of


def config(recipe: Recipe) -> object:
    """The part of the recipe that decides the token stream."""
    own: dict[str, object] = {"tokens": recipes.plain(recipe.tokens)}
    if recipe.together > 1:
        own |= {"each": recipe.model.seq_len}
    own |= recipes.reading(recipe)
    if found := chats(recipe.dataset):
        own |= {"chat_reference": found[0].chat_reference}
    return own if recipe.exclude is None else own | {"exclude": list(recipe.exclude)}


def run(task: Task) -> StepResult:
    """Tokenize both splits, with ``--runner ray --processes N`` in shards on N workers.

    Raises:
        DataError: a split has no tokens.
        UsageError: an excluded document is not there.
    """
    from marin.training.tokens.building import build_caches  # TensorStore

    if task.execution.runner == "local" or task.execution.processes == 1:
        return build_caches(task)
    # a worker is a core, and no more
    place, variables = place_of(task.execution.runner), {"TOKENIZERS_PARALLELISM": "false"}
    return build_caches(task, place.workers(task.execution.processes, task.execution.address, variables=variables).run)


def plugins(recipe: Recipe) -> tuple[tuple[str, str], ...]:
    """What knows which tokens of a conversation are learned, what sets documents apart, and what excludes them."""
    return (
        *((LEARNED,) if recipes.may_be_masked(recipe) else ()),
        *((APART,) if recipe.together > 1 else ()),
        *((EXCLUSION,) if recipe.exclude is not None else ()),
    )


TOKENS = StepDefinition(
    name="tokens",
    inputs=("corpus", "tokenizer"),
    config=config,
    starts=("marin/pipeline/tokens.py",),
    run=run,
    plugins=plugins,
)
