"""Step ``tokens``: the corpus as Levanter's token caches, one for each split, digested by content.

Light to import; the work is in :mod:`marin.training.token_cache`, which loads Levanter when the step runs.
"""

from __future__ import annotations

from marin import recipe as recipes
from marin.recipe import Recipe
from marin.steps import StepDefinition, StepResult, Task


def config(recipe: Recipe) -> object:
    """The part of the recipe that decides the token stream."""
    return {"tokens": recipes.plain(recipe.tokens)}


def run(task: Task) -> StepResult:
    """Tokenize both splits. Raises ``DataError`` if a split has no tokens."""
    from marin.training.token_cache import build_caches

    return build_caches(task)


TOKENS = StepDefinition(
    name="tokens",
    inputs=("corpus", "tokenizer"),
    config=config,
    code=("marin/steps/tokens.py", "marin/steps/tokenizer.py", "marin/training/loss_mask.py",
          "marin/training/token_cache.py", "marin/corpus",
          "marin/mixture.py", "marin/recipe.py"),
    run=run,
)
