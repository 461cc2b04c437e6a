"""What a training with an objective learns, found by its plugin: completions that are drawn by the state before an update.

A position of such a batch has four numbers (``Recipe.columns``), which lie in a row one after another, each for all positions:
what its token weighs in the loss, the advantage of its completion, and the log-probability that the token had when it was
drawn, and has under the reference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import jax
import numpy as np

from marin.provenance.plugins import load_plugin
from marin.recipe.objective import OBJECTIVES
from marin.recipe.schema import Execution, Recipe

if TYPE_CHECKING:
    from ledger import Store
    from marin.training.step.contract import Step
    from marin.training.step.slices import SlicedState


@dataclass(frozen=True)
class Rollout:
    """The completions of one update. ``indices``: int64[batch], the prompt of each; ``tokens``: int32[batch, seq_len];
    ``numbers``: float32[batch, 4 seq_len]; ``record``: all of it as it is stored, whose sha256 is the batch's digest;
    ``measured``: means over the batch, by name."""

    indices: np.ndarray
    tokens: np.ndarray
    numbers: np.ndarray
    record: bytes
    measured: Mapping[str, float] = field(default_factory=dict)


class Rollouts(Protocol):
    """Draws the completions of a recipe's updates."""

    def draw(self, state: SlicedState, update: int, hint: bytes | None = None) -> Rollout:
        """Those of ``update`` (counted from the first of the phase), by the state before it. ``hint``: what they are claimed to
        be, which is looked at and never believed."""

    def close(self) -> None:
        """End what draws beside this process."""

    @property
    def program(self) -> Mapping[str, str]:
        """Digests of what computes, by name."""


class ObjectivePlugin(Protocol):
    """What the plugin has."""

    def loss(self, recipe: Recipe, model: Any, tokens: jax.Array, numbers: jax.Array) -> jax.Array:
        """The sum, float32, of the losses of all tokens."""

    def counted(self, recipe: Recipe, tokens: jax.Array, numbers: jax.Array) -> jax.Array:
        """What that sum is divided by, float32."""

    def rollouts(
        self, recipe: Recipe, step: Step, vocab_size: int, tokenizer: Path, store: Store | None, execution: Execution
    ) -> Rollouts:
        """What draws. ``store`` has the prompts, where they are not shipped, and the state that judges.

        Raises:
            DataError: a prompt leaves no room for a completion, or the stored prompts are not such.
            NotFound: they are not in the store, or the judge is not.
            MissingEvidence: the file of a reward of one's own is not below the working folder, or is another one.
        """

    def with_own(self, store: Store, recipe: Recipe, prompts: Path | None, reward: str | None) -> Recipe:
        """``recipe`` with the prompts of a user's file and the reward ``FILE.py:NAME``, whose bytes are in the store afterwards.

        Raises:
            UsageError: it has no objective, or the reward cannot be taken.
            DataError: the file has no prompts.
        """

    def completion_texts(self, recipe: Recipe, store: Store, record: bytes) -> Sequence[tuple[str, str, str]]:
        """Prompt, completion and reward of some of the completions in a record, for people.

        Raises:
            LedgerError: it is not a record, or its prompts are not here.
        """

    def difference(self, recorded: bytes | None, found: bytes) -> str:
        """The first thing in which two records of one update differ, in words."""


def objective_plugin() -> ObjectivePlugin:
    """The plugin.

    Raises:
        NotInstalled: it is not there.
    """
    found: ObjectivePlugin = load_plugin(OBJECTIVES, "rl", "objective")
    return found
