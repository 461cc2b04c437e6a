"""The data browser: the graph from raw data to models on one page, with what is known of every node and samples of the
data.

One file that can be mailed: nothing is loaded, and two scripts are in it, named by their digests in the page's policy:
d3 (d3js.org), out of the installed package that carries it, and ``browser.js``, which moves, scales, filters and lights
the graph with it. The graph itself is laid out in layers and written as SVG, so the page reads without scripts, on
paper and to a screen reader: every node is a link to its panel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from ledger import NotFound
from marin.history.names import collections_of, name_of
from marin.history.run import Run
from marin.reporting.lineage.graph import LineageGraph, Node, graph_of, key_of, layers, verdict_of
from marin.reporting.lineage.samples import Samples, read_samples
from marin.reporting.template import render

__all__ = ["Samples", "graph_page", "lineage_page", "read_samples"]

COLUMN, ROW, WIDTH, HEIGHT, MARGIN, LIFT = 216, 66, 168, 48, 14, 34
SHORT = 24
"""A layer with so many nodes is never broken into columns."""


def lineage_page(run: Run, origin: str, samples: Samples, name: str = "") -> bytes:
    """The page of a run, as bytes that are the same for the same events and artifacts. ``name``: what the run is called."""
    started = run.started
    return graph_page(
        f"Lineage of run {run.run}",
        graph_of([run]),
        {run.run: run},
        {run.run: samples},
        about=f"{name or name_of(run.run, started.body.recipe)}, begun {started.time[:19].replace('T', ' ')} UTC by "
        f"{started.actor}, ",
        origin=origin,
        verified=verdict_of(run),
        asked=key_of(run.output("export").digest) if "export" in run.steps else "",
    )


def graph_page(
    title: str,
    graph: LineageGraph,
    runs: Mapping[str, Run],
    samples: Mapping[str, Samples],
    *,
    about: str = "",
    origin: str = "",
    verified: str = "",
    asked: str = "",
) -> bytes:
    """A page for any part of the graph. ``samples`` are shown at the data of the runs that they are of. ``about`` ends
    with the ledger ``origin``, and ``verified`` is a verdict or never; what is empty is left out. ``asked``: the key of the
    node that somebody asked for, which the page opens on."""
    rows = layers(graph)
    numbers = {key: f"n{number}" for number, key in enumerate(key for row in rows for key in row)}
    beside: dict[str, tuple[list[str], list[str]]] = {key: ([], []) for key in numbers}
    for source, target in graph.edges:
        beside[source][1].append(target)
        beside[target][0].append(source)
    width, height, edges, boxes = _drawn(graph, rows, numbers)
    return render(
        "lineage/lineage.html.j2",
        scripts=[_library(), files("marin.reporting.lineage").joinpath("browser.js").read_text("utf-8")],
        title=title,
        about=about,
        origin=origin,
        verified=verified,
        asked=numbers.get(asked, ""),
        count=len(graph.nodes),
        width=width,
        height=height,
        edges=edges,
        boxes=boxes,
        collected=collections_of,
        panels=[_panel(graph, key, numbers, beside[key], runs, samples) for key in numbers],
    )


@cache
def _library() -> str:
    """d3 as the package ``mpld3`` carries it, unchanged; the package itself, which needs matplotlib, is not
    imported."""
    found = find_spec("mpld3")
    path = Path(found.origin).parent / "js" / "d3.v5.min.js" if found is not None and found.origin else Path("mpld3")
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise NotFound(
            "the graph library of the data browser is not installed",
            where=str(path),
            expected="d3 from mpld3",
            found="no file",
            cure="make environment",
        ) from error


@dataclass(frozen=True)
class Edge:
    """A line from one node to another, as an SVG path."""

    path: str
    source: str
    target: str


@dataclass(frozen=True)
class Box:
    """A node and its place; ``layer`` is its distance from the raw data."""

    id: str
    node: Node
    x: int
    y: int
    layer: int
    width: int = WIDTH
    height: int = HEIGHT


def _drawn(
    graph: LineageGraph, rows: Sequence[Sequence[str]], numbers: Mapping[str, str]
) -> tuple[int, int, list[Edge], list[Box]]:
    """Width and height of the drawing, and what is in it."""
    layer = {key: x for x, row in enumerate(rows) for key in row}
    columns = _columns(rows)
    tallest = max(map(len, columns), default=0)
    column = {key: x for x, keys in enumerate(columns) for key in keys}
    span = max((column[target] - column[source] for source, target in graph.edges), default=1)
    head = MARGIN + LIFT * min(span - 1, 4)
    place = {
        key: (MARGIN + x * COLUMN, head + y * ROW + (tallest - len(keys)) * ROW // 2)
        for x, keys in enumerate(columns)
        for y, key in enumerate(keys)
    }
    width, height = len(columns) * COLUMN - COLUMN + WIDTH + 2 * MARGIN, tallest * ROW - ROW + HEIGHT + head + MARGIN
    edges = [
        Edge(_path(place[source], place[target]), numbers[source], numbers[target]) for source, target in graph.edges
    ]
    boxes = [Box(number, graph.nodes[key], *place[key], layer[key]) for key, number in numbers.items()]
    return max(width, 1), max(height, 1), edges, boxes


def _columns(rows: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """Layers as they stand side by side: one that is very long is broken into several columns, so that a graph of two
    thousand nodes is a sheet and not a tape."""
    longest = max(SHORT, math.ceil(1.5 * math.sqrt(sum(map(len, rows)))))
    found: list[Sequence[str]] = []
    for row in rows:
        count = max(1, math.ceil(len(row) / longest))
        each = math.ceil(len(row) / count)
        found += [row[start : start + each] for start in range(0, len(row), each)]
    return found


def _path(source: tuple[int, int], target: tuple[int, int]) -> str:
    x, y, u, v = source[0] + WIDTH, source[1] + HEIGHT // 2, target[0], target[1] + HEIGHT // 2
    bend = max(24, (u - x) // 4)
    # What passes a column rises over the nodes in it.
    lift = LIFT * min(max(0, (target[0] - source[0]) // COLUMN - 1), 4) * 4 // 3
    return f"M{x} {y}C{x + bend} {y - lift} {u - bend} {v - lift} {u} {v}"


@dataclass(frozen=True)
class Panel:
    """What is known of a node. Links are (id, name) of other panels; ``search`` is what the filter looks at."""

    id: str
    node: Node
    facts: Sequence[tuple[str, str]]
    made_of: Sequence[tuple[str, str]]
    used_by: Sequence[tuple[str, str]]
    search: str
    run: Run | None
    samples: Samples


def _panel(
    graph: LineageGraph,
    key: str,
    numbers: Mapping[str, str],
    beside: tuple[list[str], list[str]],
    runs: Mapping[str, Run],
    samples: Mapping[str, Samples],
) -> Panel:
    node = graph.nodes[key]
    made_of, used_by = ([(numbers[other], graph.nodes[other].name) for other in side] for side in beside)
    return Panel(
        id=numbers[key],
        node=node,
        facts=node.facts,
        made_of=made_of,
        used_by=used_by,
        search=" ".join([node.name, node.detail, *(value for _, value in node.facts)]).lower()[:600],
        run=runs.get(node.run),
        samples=samples.get(node.run, Samples()),
    )
