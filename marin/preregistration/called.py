"""What lists, pages and legends call a run: by what sets it apart in the newest sweep that asked for its recipe, else by its arm
of the registration that it cites, else by its model and seed; then its id."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from marin.errors import MarinError
from marin.history.run import Run
from marin.history.runs import History, facts
from marin.history.table.sweeps import RECIPES, VARIED, words_in
from marin.history.table.varied import name_among
from marin.kinds.families.experiment import ExperimentRegistered
from marin.kinds.families.graph import GraphStarted
from marin.preregistration.arms import arm_of
from marin.recipe.schema import from_plain
from marin.record.events import RunStarted


def names_in(history: History, begun: Iterable[RunStarted]) -> dict[str, str]:
    """What each of these runs is called, by run."""
    swept = {
        recipe: words_in(fact.body, VARIED)
        for fact in facts(history, GraphStarted)
        for recipe in words_in(fact.body, RECIPES)
    }
    cited = {fact.body.registration: fact.body for fact in facts(history, ExperimentRegistered)}
    return {body.run: run_name(body, swept.get(body.recipe_digest, ()), cited.get(body.experiment)) for body in begun}


def name_in(history: History, run: Run) -> str:
    """What one run is called."""
    return names_in(history, [run.started.body])[run.run]


def run_name(body: RunStarted, keys: Sequence[str], cited: ExperimentRegistered | None) -> str:
    """What a run is called. ``keys`` set it apart in its sweep; ``cited`` is the registration that it cites."""
    if not keys and cited is not None and (arm := _arm(body, cited)):
        return f"{arm} seed={body.recipe.get('seed', '?')} · {body.run}"
    return name_among(body.run, body.recipe, keys)


def _arm(body: RunStarted, cited: ExperimentRegistered) -> str | None:
    try:
        return arm_of(cited, from_plain(body.recipe, where=f"run {body.run}"), body.pipeline)
    except MarinError:
        return None  # of another version
