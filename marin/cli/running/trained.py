"""How one recipe of a command line ended, and how that is said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from marin.cli.output import print_json, say
from marin.cli.tables import print_table
from marin.record.root import Root

if TYPE_CHECKING:
    from marin.history.run import Run


@dataclass(frozen=True)
class Trained:
    """How one recipe of the command line ended: its run, what was done for each step, its numbers, and what failed
    first. ``paused``: that training stopped where it was told to, and where that is. ``sweep``: the id of the sweep that it was
    part of, where that is recorded."""

    overrides: tuple[str, ...]
    recipe_digest: str
    run: Run | None
    steps: Mapping[str, str]
    metrics: Mapping[str, float]
    failed: str
    error: str
    paused: str = ""
    sweep: str = ""


def print_trained(root: Root, outcomes: Sequence[Trained], *, json: bool, table: bool) -> None:
    """One object a run, a table of a sweep, or the headline of a single run."""
    from marin.cli.looking.summary import headline

    if json:
        for item in outcomes:
            print_json(as_json(item))
    elif table:
        print_points(outcomes)
    elif outcomes[0].paused:
        say(outcomes[0].paused)
    elif (view := outcomes[0].run) is not None:
        for name, value in headline(view, root.reader().checkpoint(), root.history()):
            say(f"{name.ljust(12)}{value}")
    elif not outcomes[0].failed:
        say("every step is a hit, in runs of other recipes; see --json")


def as_json(item: Trained) -> dict[str, Any]:
    """As `marin train --json` prints it."""
    return {
        "run": item.run.run if item.run is not None else None,
        "overrides": list(item.overrides),
        "recipe_digest": item.recipe_digest,
        "steps": dict(item.steps),
        "failed": item.failed or None,
        "error": item.error or None,
        "paused": item.paused or None,
        "sweep": item.sweep or None,
        "metrics": dict(item.metrics),
    }


def print_points(outcomes: Sequence[Trained]) -> None:
    """A row for each recipe by the words that the others do not have, and how to compare them."""
    common = set(outcomes[0].overrides).intersection(*(item.overrides for item in outcomes[1:]))
    if len(outcomes) == 1:
        common = set()
    print_table(
        ("", "run", "steps", "train loss", "loss", "perplexity"),
        [_point_row(item, [word for word in item.overrides if word not in common]) for item in outcomes],
        empty="",
        expendable=("perplexity", "steps"),
    )
    runs = list(dict.fromkeys(item.run.run for item in outcomes if item.run is not None))
    if len(runs) > 1:
        sweep = outcomes[0].sweep
        say(f"to compare them: marin compare {f'--sweep {sweep}' if sweep else ' '.join(runs)}", err=True)


def _point_row(item: Trained, words: Sequence[str]) -> tuple[str, ...]:
    executed = sum(action == "executed" for action in item.steps.values())
    done = "paused" if item.paused else f"{executed} executed, {len(item.steps) - executed} reused"
    state = f"failed at {item.failed}" if item.failed else done
    return (
        " ".join(words),
        item.run.run if item.run is not None else "",
        state,
        number(item.metrics.get("train.loss_last")),
        number(item.metrics.get("evaluate.loss")),
        number(item.metrics.get("evaluate.perplexity")),
    )


def number(value: float | None) -> str:
    """Four decimals; nothing where there is none."""
    return "" if value is None else f"{value:.4f}"
