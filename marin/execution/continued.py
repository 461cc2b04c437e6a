"""The state that a phase goes on from: which run recorded it, and its bytes."""

from __future__ import annotations

from pathlib import Path

from ledger import Store
from marin.errors import MissingEvidence, UsageError
from marin.history.executions import History, executed, facts
from marin.recipe.schema import Recipe
from marin.record.events import CheckpointSaved, Continues


def origin(history: History, recipe: Recipe, run: str | None) -> Continues:
    """Where the state that ``recipe`` begins with comes from: in the run with the id ``run`` if one is named, otherwise in any.

    Raises:
        UsageError: the recipe does not say which state.
        MissingEvidence: no run recorded it.
    """
    phase = recipe.phase
    if phase is None or phase.state is None:
        raise UsageError(
            "a phase without the state that it begins with",
            where="phase.state",
            expected="sha256:<hex>",
            found="null",
            cure="`marin train --continue RUN` fills it in",
        )
    candidates = tuple(facts(history, CheckpointSaved)) if run is None else executed(history, run).checkpoints
    for fact in reversed(candidates):
        saved: CheckpointSaved = fact.body
        if (saved.state, saved.step) == (phase.state, phase.first_step):
            return Continues(run=run or saved.run, step=saved.step, state=saved.state, checkpoint=saved.artifact)
    raise MissingEvidence(
        "no run recorded the state that the phase begins with",
        where=f"run {run}" if run else "this root",
        expected=f"{phase.state} before train step {phase.first_step}",
        found="no such training checkpoint",
        cure="continue in the root of that run, or fetch it from there",
    )


def checkout(store: Store, checkpoint: str, folder: Path) -> Path:
    """The folder ``previous`` of a train step, from a stored training checkpoint."""
    store.checkout(checkpoint, folder / "checkpoint")
    return folder
