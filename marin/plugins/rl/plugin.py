"""What this plugin adds: the objective of :class:`marin.training.runtime.objective.ObjectivePlugin`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marin.recipe.schema import Execution, Recipe

if TYPE_CHECKING:
    import jax

    from ledger import Store
    from marin.training.runtime.objective import Rollouts
    from marin.training.step.contract import Step


def loss(recipe: Recipe, model: Any, tokens: jax.Array, numbers: jax.Array) -> jax.Array:
    """See there."""
    from marin.plugins.rl.loss import completion_losses

    return completion_losses(recipe, model, tokens, numbers)


def counted(recipe: Recipe, tokens: jax.Array, numbers: jax.Array) -> jax.Array:
    """See there."""
    from marin.plugins.rl.loss import divisor

    return divisor(recipe, tokens, numbers)


def rollouts(
    recipe: Recipe, step: Step, vocab_size: int, tokenizer: Path, store: Store | None, execution: Execution
) -> Rollouts:
    """See there."""
    from marin.plugins.rl.rollouts import DrawnRollouts

    return DrawnRollouts(recipe, step, vocab_size, tokenizer, store, execution)


def with_own(store: Store, recipe: Recipe, prompts: Path | None, reward: str | None) -> Recipe:
    """See there."""
    from marin.plugins.rl import own

    return own.with_own(store, recipe, prompts, reward)


def completion_texts(recipe: Recipe, store: Store, record: bytes) -> Sequence[tuple[str, str, str]]:
    """See there."""
    from marin.plugins.rl.record import first_of_each

    return first_of_each(recipe, store, record)


def difference(recorded: bytes | None, found: bytes) -> str:
    """See there."""
    from marin.plugins.rl.record import first_difference

    return first_difference(recorded, found)
