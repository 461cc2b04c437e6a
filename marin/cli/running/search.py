"""`marin train -m hydra/sweeper=optuna …`: trials chosen by Hydra's sweeper, each through the whole pipeline, all of them one
experiment."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from marin.cli.output import print_json, say
from marin.cli.running.trained import Trained, as_json, number
from marin.cli.tables import print_table
from marin.process.text import several

if TYPE_CHECKING:
    from marin.recipe.composition import Composed
    from marin.recipe.search import Plan, Words
    from marin.record.root import Root

Prepare = Callable[["Words"], "Composed"]
"""The recipe of the words of a trial, ready to be executed."""
Execute = Callable[[Sequence["Composed"]], list[Trained]]


def search_trials(
    root: Root, overrides: Sequence[str], metric: str, prepare: Prepare, execute: Execute, *, json: bool
) -> list[Trained]:
    """Search, register each batch of trials before it is executed, and print every trial; all outcomes, in order.

    Raises:
        UsageError: the search cannot be read, no step ends with ``metric``, or too many trials failed.
    """
    from marin.preregistration.searching import register_trials
    from marin.recipe.search import search

    asked = _search_plan(overrides, metric)
    composed: list[Composed] = []
    outcomes: list[Trained] = []

    def attempt(batch: Sequence[Words], first: int) -> list[float | None]:
        new = [prepare(words) for words in batch]
        composed.extend(new)
        register_trials(root, asked, metric, [one.recipe for one in composed])
        tried = execute(new)
        outcomes.extend(tried)
        values = [_value(one, metric) for one in tried]
        for place, (words, value) in enumerate(zip(batch, values, strict=True), first):
            searched = [word for word in words if word not in asked.fixed]
            say(f"trial {place}: {' '.join(searched)}: {metric} {number(value) or 'none'}", err=True)
        return values

    try:
        search(asked, attempt)
    finally:
        if outcomes:
            _print_trials(asked.name, asked.direction, metric, outcomes, asked.fixed, json=json)
    return outcomes


def planned_trial(overrides: Sequence[str], metric: str) -> tuple[Plan, Words]:
    """What a search would be, and the trial that it begins with; later ones are chosen by results, and not known.

    Raises:
        UsageError: the search cannot be read, or no step ends with ``metric``.
    """
    from marin.recipe.search import first_trial

    asked = _search_plan(overrides, metric)
    return asked, first_trial(asked)


def _search_plan(overrides: Sequence[str], metric: str) -> Plan:
    from marin.pipeline.metrics import check_metric
    from marin.recipe.search import plan
    from marin.reporting.fonts import use_font_cache

    check_metric(metric)
    use_font_cache()  # Optuna imports matplotlib
    return plan(overrides, metric)


def _value(one: Trained, metric: str) -> float | None:
    value = one.metrics.get(metric)
    return value if value is not None and math.isfinite(value) and not one.failed else None


def _print_trials(
    name: str, direction: str, metric: str, outcomes: Sequence[Trained], fixed: Words, *, json: bool
) -> None:
    """All trials, the best marked; what they are is an experiment."""
    values = [_value(one, metric) for one in outcomes]
    told = [value for value in values if value is not None]
    best = (min if direction == "lower" else max)(told) if told else None
    if json:
        for place, (one, value) in enumerate(zip(outcomes, values, strict=True)):
            print_json({"experiment": name, "trial": place, "value": value, "best": value == best, **as_json(one)})
        return
    rows = [
        (
            str(place),
            " ".join(word for word in one.overrides if word not in fixed),
            one.run.run if one.run is not None else "",
            number(value) or f"failed at {one.failed}",
            "best of all" if value is not None and value == best else "",
        )
        for place, (one, value) in enumerate(zip(outcomes, values, strict=True))
    ]
    print_table(("trial", "values", "run", metric, ""), rows, empty="")
    say(
        f"{several(len(outcomes), 'trials')}, one experiment: marin experiment report {name}, marin compare --experiment {name}",
        err=True,
    )
