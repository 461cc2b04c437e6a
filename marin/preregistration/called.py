"""What lists, pages and legends call a run: by what sets it apart in the newest sweep that asked for its recipe, else by its arm
of the registration that it cites, else by its model and seed; then its id. And who made it what it is."""

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
from marin.record.root import Root


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


def people(root: Root, run: Run) -> list[tuple[str, str]]:
    """Who trained, verified and registered, in a log that enrolled people; a name that nobody signed says so."""
    history = root.history()
    if not len(history.written.authors):
        return []
    judged = [fact.actor for fact in (*run.verdicts, *run.claimed)]
    cited = run.started.body.experiment
    registered = [fact.actor for fact in facts(history, ExperimentRegistered, registration=cited) if cited]
    found = {"trained by": [run.started.actor], "verified by": judged, "registered by": registered}
    return [(title, ", ".join(dict.fromkeys(names))) for title, names in found.items() if names]


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
