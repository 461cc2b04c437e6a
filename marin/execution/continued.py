"""The state that a phase goes on from: which run recorded it, and its bytes."""

from __future__ import annotations

from pathlib import Path

from ledger import Store
from marin.errors import MissingEvidence, UsageError
from marin.history import runs
from marin.history.runs import History
from marin.recipe.schema import Recipe
from marin.record.events import CheckpointSaved, Continues


def origin(history: History, recipe: Recipe, run: str | None) -> Continues:
    """Where the state that ``recipe`` begins with comes from: in ``run`` if it is named, otherwise in any.

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
    candidates = (
        runs.load(history, runs.resolve(history, run)).checkpoints
        if run is not None
        else tuple(runs.facts(history, CheckpointSaved))
    )
    for fact in reversed(candidates):
        saved: CheckpointSaved = fact.body
        if (saved.state, saved.step) == (phase.state, phase.first_step):
            return Continues(
                run=run_of(history, run, saved), step=saved.step, state=saved.state, checkpoint=saved.artifact
            )
    raise MissingEvidence(
        "no run recorded the state that the phase begins with",
        where=f"run {run}" if run else "this root",
        expected=f"{phase.state} before train step {phase.first_step}",
        found="no such training checkpoint",
        cure="continue in the root of that run, or fetch it from there",
    )


def run_of(history: History, run: str | None, saved: CheckpointSaved) -> str:
    """The whole id of the run that is continued: the named one, or the one that saved the state."""
    return saved.run if run is None else runs.resolve(history, run)


def checkout(store: Store, checkpoint: str, folder: Path) -> Path:
    """The folder ``previous`` of a train step, from a stored training checkpoint."""
    store.checkout(checkpoint, folder / "checkpoint")
    return folder
