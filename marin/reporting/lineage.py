"""The data browser: the graph from raw data to models on one page, with what is known of every node and samples of the
data.

One file that can be mailed: nothing is loaded, and two scripts are in it, named by their digests in the page's policy:
d3 (d3js.org), out of the installed package that carries it, and ``browser.js``, which moves, scales, filters and lights
the graph with it. The graph itself is laid out by networkx and written as SVG, so the page reads without scripts, on
paper and to a screen reader: every node is a link to its panel.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from ledger import NotFound
from marin.history.projection.record import RunRecord
from marin.record.verdicts import overall
from marin.reporting.graph import LineageGraph, Node, graph_of, layers
from marin.reporting.markup import Child, Html, element, page
from marin.reporting.run import STYLE, code, verdict
from marin.reporting.samples import Samples, SeenSequence, SeenStep, read_samples

__all__ = ["Samples", "graph_page", "lineage_page", "read_samples"]

COLUMN, ROW, WIDTH, HEIGHT, MARGIN, LIFT = 216, 66, 168, 48, 14, 34
SHORT = 24
"""A layer with so many nodes is never broken into columns."""

LINEAGE_STYLE = """
.graph{overflow:auto;max-height:75vh;margin:.6rem 0;border:1px solid var(--line);border-radius:8px}
.graph:focus-visible{outline-offset:-2px}.graph svg{max-width:none;display:block}
.graph.alive{overflow:hidden;max-height:none;cursor:grab}.graph.alive:active{cursor:grabbing}
.graph.alive svg{width:100%;height:100%}
.tiny text,.moving .edge{display:none}.tiny .edge{stroke-width:1;vector-effect:non-scaling-stroke}
.tiny .node rect{stroke-width:2;vector-effect:non-scaling-stroke}
.node rect{fill:var(--card);stroke:var(--line);stroke-width:1.5}.node.step rect{rx:4}.node.artifact rect{rx:22}
.node text{fill:var(--ink);font:13px system-ui,sans-serif}.node .digest{fill:var(--soft);font:11px ui-monospace,monospace}
.node:focus-visible{outline:none}.node:focus-visible rect,.node:hover rect,.node.hit rect{stroke:#0969da;stroke-width:3}
.edge{stroke:var(--soft);fill:none;stroke-opacity:.55}.edge.near{stroke-opacity:1;stroke-width:2}.edge.far{stroke-opacity:.15}
.node.far rect{fill-opacity:.15;stroke-opacity:.15}.node.far text{fill-opacity:.25}
.node.good rect{stroke:var(--good)}.node.bad rect{stroke:var(--bad)}.node.mid rect{stroke:var(--mid)}
section{content-visibility:auto;contain-intrinsic-size:auto 18rem}section h2{margin-top:1.2rem}
section:target{outline:2px solid #0969da;outline-offset:6px;border-radius:4px}
.token{background:var(--card);border-radius:3px;box-shadow:inset 0 0 0 1px var(--line);white-space:pre-wrap}
.token:nth-child(even){background:none}
.tools{display:flex;gap:.5rem;flex-wrap:wrap;align-items:center}.tools[hidden]{display:none}
.tools input,.tools button{font:inherit;color:inherit;background:var(--card);border:1px solid var(--line);border-radius:6px;
padding:.25rem .6rem}.tools input{min-width:min(18rem,100%)}
@media(max-width:600px){body{padding:.7rem}.graph{max-height:60vh}th,td{padding-right:.4rem}}
"""


def lineage_page(record: RunRecord, origin: str, samples: Samples) -> bytes:
    """The page of a run, as bytes that are the same for the same events and artifacts."""
    checked = overall(record.replays[-1][3].verdicts) if record.replays else None
    return graph_page(
        f"Lineage of run {record.run}",
        graph_of([record]),
        {record.run: record},
        {record.run: samples},
        element(
            "p",
            f"{record.pipeline}, begun {record.started[:19].replace('T', ' ')} UTC by {record.actor}, ledger ",
            code(origin),
        ),
        element("p", "Verified: ", verdict(checked) if checked else "never"),
    )


def graph_page(
    title: str, graph: LineageGraph, records: Mapping[str, RunRecord], samples: Mapping[str, Samples], *head: Child
) -> bytes:
    """A page for any part of the graph. ``samples`` are shown at the data of the runs that they are of."""
    rows = layers(graph)
    numbers = {key: f"n{number}" for number, key in enumerate(key for row in rows for key in row)}
    beside: dict[str, tuple[list[str], list[str]]] = {key: ([], []) for key in numbers}
    for source, target in graph.edges:
        beside[source][1].append(target)
        beside[target][0].append(source)
    return page(
        title,
        STYLE + LINEAGE_STYLE,
        element(
            "main",
            element("h1", title),
            head,
            element(
                "p",
                f"{sum(node.kind == 'step' for node in graph.nodes.values())} steps (corners), "
                f"{sum(node.kind == 'artifact' for node in graph.nodes.values())} artifacts (round); arrow keys "
                "walk the graph, Enter opens a node's panel; drag moves it, Ctrl and wheel or two fingers scale it.",
                class_="soft",
            ),
            _tools(),
            element("div", _drawn(graph, rows, numbers), class_="graph", tabindex=0, role="region", aria_label="graph"),
            [_panel(graph, key, numbers, beside[key], records, samples) for key in numbers],
        ),
        scripts=[_library(), files("marin.reporting").joinpath("browser.js").read_text("utf-8")],
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


def _tools() -> Html:
    buttons = [
        element("button", label, type="button", value=value, aria_label=name)
        for label, value, name in (("+", "1.25", "larger"), ("−", "0.8", "smaller"), ("all", "all", "show everything"))
    ]
    return element(
        "div",
        element("input", type="search", placeholder="find a step, digest, run…", aria_label="find"),
        buttons,
        element("output", class_="soft"),
        class_="tools",
        hidden=True,
    )


def _drawn(graph: LineageGraph, rows: Sequence[Sequence[str]], numbers: Mapping[str, str]) -> Html:
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
    edges = [_edge(place[source], place[target], numbers[source], numbers[target]) for source, target in graph.edges]
    nodes = [_node(graph.nodes[key], *place[key], number, layer[key]) for key, number in numbers.items()]
    return element(
        "svg",
        element("g", edges, nodes, class_="view"),
        width=max(width, 1),
        height=max(height, 1),
        viewBox=f"0 0 {max(width, 1)} {max(height, 1)}",
    )


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


def _edge(source: tuple[int, int], target: tuple[int, int], from_: str, to: str) -> Html:
    x, y, u, v = source[0] + WIDTH, source[1] + HEIGHT // 2, target[0], target[1] + HEIGHT // 2
    bend = max(24, (u - x) // 4)
    # What passes a column rises over the nodes in it.
    lift = LIFT * min(max(0, (target[0] - source[0]) // COLUMN - 1), 4) * 4 // 3
    return element(
        "path",
        d=f"M{x} {y}C{x + bend} {y - lift} {u - bend} {v - lift} {u} {v}",
        class_="edge",
        data_from=from_,
        data_to=to,
    )


def _node(node: Node, x: int, y: int, number: str, layer: int) -> Html:
    name = node.name if len(node.name) <= 22 else node.name[:21] + "…"
    return element(
        "a",
        element("rect", x=x, y=y, width=WIDTH, height=HEIGHT, rx=6),
        element("text", name, x=x + 12, y=y + 20),
        element("text", node.detail, x=x + 12, y=y + 37, class_="digest"),
        href=f"#{number}",
        class_=f"node {node.kind} {node.colour}",
        data_id=number,
        data_layer=layer,
        aria_label=f"{node.kind} {node.name}, {node.detail}",
    )


def _panel(
    graph: LineageGraph,
    key: str,
    numbers: Mapping[str, str],
    beside: tuple[list[str], list[str]],
    records: Mapping[str, RunRecord],
    samples: Mapping[str, Samples],
) -> Html:
    node = graph.nodes[key]
    rows = [(name, _value(name, value)) for name, value in node.facts if value]
    rows += [
        (name, _links(graph, numbers, keys)) for name, keys in zip(("made of", "used by"), beside, strict=True) if keys
    ]
    body = element(
        "tbody", [element("tr", element("th", name, scope="row"), element("td", value)) for name, value in rows]
    )
    searched = " ".join([node.name, node.detail, *(value for _, value in node.facts)]).lower()[:600]
    record = records.get(node.run)
    return element(
        "section",
        element("h2", f"{node.kind} {node.name}"),
        element("table", body),
        list(_shown(node, record, samples.get(node.run, Samples()))) if record is not None else None,
        id=numbers[key],
        data_search=searched,
    )


def _links(graph: LineageGraph, numbers: Mapping[str, str], keys: Sequence[str]) -> Child:
    return element(
        "span", [element("span", element("a", graph.nodes[key].name, href=f"#{numbers[key]}"), "  ") for key in keys]
    )


def _value(name: str, value: str) -> Child:
    if name in ("content", "stored as", "identity"):
        return code(value)
    if name == "run verified" and value != "never":
        return verdict(value)
    return value


def _shown(node: Node, record: RunRecord, samples: Samples) -> Iterator[Child]:
    match node.kind, node.step:
        case "artifact", "corpus":
            if samples.documents:
                yield element("p", "First documents", class_="soft")
                for place, text in enumerate(samples.documents):
                    if len(set(samples.parts)) > 1:
                        yield element("p", f"of the part {samples.parts[place]}", class_="soft")
                    yield element("pre", text)
            elif samples.missing:
                yield element("p", samples.missing, class_="soft")
        case "artifact", "tokens":
            if samples.tokens:
                yield element("p", "The same text, cut into tokens", class_="soft")
                yield from map(_pieces, samples.tokens)
            elif samples.missing:
                yield element("p", samples.missing, class_="soft")
        case "step", "train":
            yield from map(_seen, samples.seen)
            if samples.seen_missing:
                yield element("p", f"What train steps saw is not shown: {samples.seen_missing}", class_="soft")
            yield _states(record)


def _pieces(pieces: Sequence[str]) -> Html:
    return element("pre", [element("span", piece, class_="token") for piece in pieces])


def _seen(step: SeenStep) -> Html:
    same = step.found == step.recorded
    return element(
        "details",
        element("summary", f"What train step {step.step} saw ({step.batch_size} sequences)"),
        element(
            "p",
            "Batch ",
            code(step.recorded),
            ", found again: ",
            verdict("PASS") if same else verdict("FAIL"),
            "" if same else element("span", " ", code(step.found)),
        ),
        [_sequence(sequence) for sequence in step.sequences],
    )


def _sequence(sequence: SeenSequence) -> Html:
    first, last = sequence.first, sequence.last
    between = f"document {first}" if first == last else f"documents {first} to {last}"
    of = f" of the part {sequence.part}" if sequence.part else ""
    return element(
        "div",
        element("p", f"Sequence {sequence.index}, of {between}{of}", class_="soft"),
        _pieces(sequence.pieces),
        element(
            "details",
            element("summary", "The documents themselves"),
            [element("pre", text) for text in sequence.documents],
        )
        if sequence.documents
        else None,
    )


def _states(record: RunRecord) -> Html | None:
    """The chain of states: each segment begins with the state that the one before left."""
    if not record.segments:
        return None
    last = record.segments[-1]
    items = [*((part.start, part.start_state) for part in record.segments), (last.end, last.end_state)]
    return element(
        "details",
        element("summary", f"States ({len(items)})"),
        element("ol", [element("li", f"before train step {step}: ", code(state)) for step, state in items]),
    )
