"""Sweeps: recipes that were executed together, and the run that each has.

An execution of `marin train -m` says in its ``graph.started`` which recipes it was asked for, so that it can be named as
one, also while it goes on. The run of a recipe is the newest that began before the execution ended.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from marin.history.runs import LATEST, History, facts, pick, started_runs, stream_of_graph
from marin.record.events import GraphCompleted, GraphStarted

RECIPES = "recipes"
"""The option of ``graph.started`` that lists the digests of a sweep's recipes."""


@dataclass(frozen=True)
class Sweep:
    """``runs`` are those that have begun, in the order of ``recipes``."""

    id: str
    index: int
    started: str
    recipes: tuple[str, ...]
    runs: tuple[str, ...]


def sweeps(history: History) -> Iterator[Sweep]:
    """Every sweep of the log, the oldest first."""
    for fact in facts(history, GraphStarted):
        asked = fact.body.options.get(RECIPES)
        recipes = tuple(one for one in asked if isinstance(one, str)) if isinstance(asked, list) else ()
        if recipes:
            yield Sweep(fact.body.graph, fact.index, fact.time, recipes, _begun_by(history, fact.body.graph, recipes))


def _begun_by(history: History, graph: str, recipes: tuple[str, ...]) -> tuple[str, ...]:
    ended = max(
        (fact.index for fact in facts(history, GraphCompleted, stream=stream_of_graph(graph))), default=math.inf
    )
    found = []
    for recipe in recipes:
        begun = [fact.body.run for fact in started_runs(history, recipe=recipe) if fact.index < ended]
        found += begun[-1:]
    return tuple(dict.fromkeys(found))


def find_sweep(history: History, name: str) -> Sweep | None:
    """The sweep with this id, a beginning of it that only it has, or ``latest``; None where the log has no sweep.

    Raises:
        UsageError: none or several are called so.
    """
    known = {one.id: one for one in sweeps(history)}
    if not known:
        return None
    return known[pick(list(known), name)] if name != LATEST else list(known.values())[-1]
