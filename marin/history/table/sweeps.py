"""Sweeps: recipes that were executed together, and the run that each has.

An execution of `marin train -m` says in its ``graph.started`` which recipes it was asked for, so that it can be named as
one, also while it goes on. The run of a recipe is the newest that began before the execution ended.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from marin.history.runs import LATEST, History, facts, pick, started_runs, stream_of_graph
from marin.kinds.families.graph import GraphCompleted, GraphStarted

RECIPES, VARIED = "recipes", "varied"
"""Options of ``graph.started``: the digests of a sweep's recipes, and the keys whose values differ among them."""


@dataclass(frozen=True)
class Sweep:
    """``runs`` are those that have begun, in the order of ``recipes``; ``varied``: the keys whose values differ."""

    id: str
    index: int
    started: str
    recipes: tuple[str, ...]
    runs: tuple[str, ...]
    varied: tuple[str, ...]


def sweeps(history: History) -> Iterator[Sweep]:
    """Every sweep of the log, the oldest first."""
    for fact in facts(history, GraphStarted):
        recipes, keys = words_in(fact.body, RECIPES), words_in(fact.body, VARIED)
        if recipes:
            runs = _begun_by(history, fact.body.graph, recipes)
            yield Sweep(fact.body.graph, fact.index, fact.time, recipes, runs, keys)


def words_in(body: GraphStarted, option: str) -> tuple[str, ...]:
    """The words that an option lists; none where someone else's log has another thing there."""
    found = body.options.get(option)
    return tuple(one for one in found if isinstance(one, str)) if isinstance(found, list) else ()


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
