"""Tracks of speedruns as pages: the entries by score, the best score over what the track limits, what each recipe changed,
how to verify.

The pages are a function of the registered tracks and the admitted entries alone, load nothing and run no script.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from shlex import quote
from typing import Any

from ledger import Store, canonical_digest, digest_bytes
from marin.history.changes import leaves
from marin.history.run import Fact
from marin.history.runs import History
from marin.plugins.lab.kinds import SpeedrunEntered
from marin.plugins.lab.report import PAINTED, svg
from marin.plugins.lab.speedrun import Rules, Withdrawn, board, cost, tracks
from marin.recipe.schema import unplain
from marin.reporting.folder import Page, software
from marin.reporting.fonts import use_font_cache
from marin.reporting.template import render

Entries = Sequence[Fact[SpeedrunEntered]]
LABELS = {"flops": "training FLOPs", "parameters": "parameters", "hours": "hours to replay its training"}
"""What a track limits (:data:`marin.plugins.lab.speedrun.COSTS`), in words."""
PLACE = "speedruns"
"""Where the pages lie in a site, which has others beside them."""


@dataclass(frozen=True)
class EntryRow:
    """One entry as its track's page shows it. ``changes``: field, value of the entry that it beat, its own value."""

    place: int
    score: str
    flops: str
    parameters: str
    hours: str
    run: str
    origin: str
    admitted: str
    replayed: tuple[str, ...]
    changes: tuple[tuple[str, str, str], ...]
    command: str


def pages(history: History, store: Store) -> Iterator[tuple[str, bytes]]:
    """All pages by file name: one for each track, then ``index.html``."""
    found = [(rules, *board(history, rules)) for rules in tracks(history, store)]
    for rules, best, withdrawn in found:
        yield f"{rules.name}.html", track_page(rules, best, withdrawn)
    yield "index.html", index_page([(rules, best) for rules, best, _ in found])


def site_pages(history: History, store: Store) -> Iterator[Page]:
    """The same as pages of a site, in a place of their own."""
    drawer = software()
    for name, page in pages(history, store):
        yield Page(f"{PLACE}/{name}", canonical_digest([drawer, digest_bytes(page)]), partial(bytes, page))


def index_page(tracks: Sequence[tuple[Rules, Entries]]) -> bytes:
    """All tracks, with the best score of each."""
    rows = [
        (
            rules.name,
            rules.fact.body.question,
            rules.metric,
            f"{float.fromhex(found[0].body.score):.6g}" if found else "–",
            str(len(found)),
        )
        for rules, found in tracks
    ]
    return render("experiments/speedruns.html.j2", rows=rows)


def track_page(rules: Rules, found: Entries, withdrawn: Sequence[Withdrawn] = ()) -> bytes:
    """One track; ``found`` are its entries, the best first, and ``withdrawn`` those whose runs failed since."""
    limits = [
        f"{label} at most {limit:.6g}"
        for name, label in LABELS.items()
        if (limit := getattr(rules.limits, name)) is not None
    ]
    return render(
        "experiments/speedrun.html.j2",
        name=rules.name,
        question=rules.fact.body.question,
        metric=rules.metric,
        direction=rules.fact.body.primary["direction"],
        limits=limits,
        registration=rules.fact.body.registration,
        rows=rows(found),
        withdrawn=[
            f"run {one.fact.body.run} of {one.fact.body.origin}, admitted {one.fact.time[:10]}, which failed since: "
            f"event {one.failed} of this log"
            for one in withdrawn
        ],
        pictures=[
            (base64.b64encode(picture(rules, found, axis)).decode(), described(rules, found, axis))
            for axis in (rules.costs if found else ())
        ],
    )


def described(rules: Rules, found: Entries, axis: str) -> str:
    """What the picture shows, in words."""
    points = (f"{score:.6g} at {spent:.3g}" for spent, score in best_over_cost(rules, found, axis))
    return f"best {rules.metric} over {LABELS[axis]}: {', '.join(points) or 'no entries'}"


def rows(found: Entries) -> list[EntryRow]:
    """The entries by score; each with what it changed against the next one down."""
    made = []
    for place, fact in enumerate(found):
        entry, beaten = fact.body, found[place + 1].body if place + 1 < len(found) else None
        made.append(
            EntryRow(
                place=place + 1,
                score=f"{float.fromhex(entry.score):.6g}",
                flops=f"{entry.flops:.3g}",
                parameters=f"{entry.parameters:,}",
                hours="–" if entry.hours is None else f"{entry.hours:.3g}",
                run=entry.run,
                origin=entry.origin,
                admitted=fact.time[:10],
                replayed=tuple(item.key.split("+")[0] for item in entry.replayed),
                changes=() if beaten is None else tuple(changes(unplain(beaten.recipe), unplain(entry.recipe))),
                command=f"marin --root ROOT verify {quote(entry.run)}"
                + "".join(f" --vkey {quote(key)}" for key in entry.keys),
            )
        )
    return made


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Fields of two recipes that differ: name by dots, value before, value after."""
    one, other = leaves(before), leaves(after)
    for name in sorted(one.keys() | other.keys()):
        if one.get(name) != other.get(name):
            yield name, _leaf_text(one, name), _leaf_text(other, name)


def _leaf_text(leaves: Mapping[str, Any], name: str) -> str:
    return str(leaves[name]) if name in leaves else "–"


def best_over_cost(rules: Rules, found: Entries, axis: str) -> list[tuple[float, float]]:
    """Cost by ``axis`` and score of each entry that beats all cheaper ones, the cheapest first."""
    best: list[tuple[float, float]] = []
    sign = 1.0 if rules.lower_is_better else -1.0
    for spent, score in sorted(_points(found, axis), key=lambda point: (point[0], sign * point[1])):
        if not best or sign * score < sign * best[-1][1]:
            best.append((spent, score))
    return best


def _points(found: Entries, axis: str) -> list[tuple[float, float]]:
    """Cost and score of the entries that say what they cost."""
    points = [(cost(fact.body, axis), float.fromhex(fact.body.score)) for fact in found]
    return [point for point in points if math.isfinite(point[0])]


def picture(rules: Rules, found: Entries, axis: str) -> bytes:
    """All entries as dots, the best score over the cost by ``axis`` as a line; SVG, the same bytes for the same entries."""
    use_font_cache()
    import matplotlib  # a second; only where a plot is drawn
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with matplotlib.rc_context(PAINTED):
        figure = Figure(figsize=(7.5, 3.4), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        points, frontier = _points(found, axis), best_over_cost(rules, found, axis)
        axes.plot([spent for spent, _ in points], [score for _, score in points], "o", markersize=5, color="#7a8794")
        axes.step([spent for spent, _ in frontier], [score for _, score in frontier], where="post", color="#0969da")
        axes.set_xlabel(LABELS[axis])
        axes.set_ylabel(rules.metric, parse_math=False)
        axes.grid(linewidth=0.4)
        return svg(figure, f"{rules.metric} over {LABELS[axis]}")
