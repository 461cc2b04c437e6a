"""The graph of what was made of what in one or many runs, and where each node stands when it is drawn.

A node is what a step made, by content, with the executions that made it: what two runs share is one node, so that an
experiment of many runs is one graph from raw data to models. What nobody here made, and a step that made nothing (yet),
are nodes too. Layers are the topological generations; within a layer nodes are ordered by the middle of their
neighbours (Sugiyama's barycentre method), a few sweeps up and down.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from typing import Literal

from marin.history.run import Run, StepState
from marin.process.text import number_text, short
from marin.recipe.units import human_size
from marin.record.verdicts import NEVER, overall

SWEEPS = 6


@dataclass(frozen=True)
class Node:
    """One node. ``key`` is unique in its graph. ``kind``: what a step made, a step without an output, or data that no run
    here made. ``colour`` is good, mid, bad or none; ``facts`` are what its panel shows; ``run`` and ``step`` say whose
    samples fit it."""

    key: str
    kind: Literal["output", "step", "source"]
    name: str
    detail: str
    colour: str
    facts: Sequence[tuple[str, str]] = ()
    run: str = ""
    step: str = ""
    runs: Sequence[str] = ()
    """Every run that made it or took it over."""


@dataclass
class LineageGraph:
    """Nodes by key, and edges from what was read to what was made of it."""

    nodes: dict[str, Node] = field(default_factory=dict)
    edges: dict[tuple[str, str], None] = field(default_factory=dict)

    def before_and_after(self, keys: Iterable[str]) -> LineageGraph:
        """The part that led to these nodes or follows from them."""
        named = list(keys)
        wanted = self._reached(named, self.neighbours(back=True)) | self._reached(named, self.neighbours(back=False))
        return LineageGraph(
            {key: node for key, node in self.nodes.items() if key in wanted},
            {edge: None for edge in self.edges if wanted.issuperset(edge)},
        )

    def neighbours(self, *, back: bool) -> dict[str, list[str]]:
        """What leads to each node, or follows from it, where there is any."""
        found: dict[str, list[str]] = {}
        for source, target in self.edges:
            found.setdefault(target if back else source, []).append(source if back else target)
        return found

    @staticmethod
    def _reached(keys: Iterable[str], neighbours: Mapping[str, list[str]]) -> set[str]:
        reached, waiting = set(keys), list(keys)
        while waiting:
            for key in neighbours.get(waiting.pop(), ()):
                if key not in reached:
                    reached.add(key)
                    waiting.append(key)
        return reached


def graph_of(runs: Iterable[Run]) -> LineageGraph:
    """The graph of these runs."""
    graph = LineageGraph()
    for run in runs:
        verified = verdict_of(run)
        for step in run.ordered_states():
            key = key_of(step.output.digest) if step.output is not None else f"{run.run}/{step.step}"
            graph.nodes[key] = _joined(graph.nodes.get(key), _node(key, run, step, verified))
            for name, digest in step.inputs.items():
                source = key_of(digest)
                if source == key:  # a step may give back what it was given
                    continue
                graph.nodes.setdefault(source, _source(source, name, digest))
                graph.edges[source, key] = None
    return graph


def key_of(digest: str) -> str:
    """The key of what has this content."""
    return f"content:{digest}"


def verdict_of(run: Run) -> str:
    """What the verdicts on a run that count say, as one word, or never."""
    return overall(run.verdict, run.answerable) if run.verdicts else NEVER


def _joined(known: Node | None, new: Node) -> Node:
    """One node of two executions that made the same content: one run that was verified speaks for the bytes."""
    if known is None or known.kind == "source":
        return new
    runs = tuple(dict.fromkeys((*known.runs, *new.runs)))
    better = {"good": 3, "bad": 2, "mid": 1, "none": 0}
    shown = new if better[new.colour] > better[known.colour] else known
    facts = tuple(fact for fact in shown.facts if fact[0] != "runs")
    return replace(shown, runs=runs, facts=(*facts, ("runs", ", ".join(runs))) if len(runs) > 1 else facts)


def _source(key: str, name: str, digest: str) -> Node:
    return Node(key, "source", name, short(digest), "none", (("content", digest), ("made by", "no run of this root")))


def _node(key: str, run: Run, step: StepState, verified: str) -> Node:
    output, result = step.output, step.result
    colour = (
        "bad" if step.state == "failed" else {"PASS": "good", "FAIL": "bad", "PARTIAL": "mid"}.get(verified, "none")
    )
    took = f"{result.seconds:.1f} s" if result is not None and not result.cached else ""
    facts = [("run", run.run), ("state", step.state), ("run verified", verified)]
    if output is not None:
        facts += [("kind", output.kind), ("content", output.digest)]
        facts += [("stored as", output.artifact)] if output.artifact != output.digest else []
        facts += [("size", f"{human_size(output.size)} ({output.size:,} bytes)")]
    facts += [
        ("by", run.started.actor),
        ("begun", step.started[:19].replace("T", " ") + " UTC"),
        ("took", took),
        ("event", str(step.index)),
        ("identity", step.identity),
        ("reused from", f"event {result.completed_at}" if result is not None and result.cached else ""),
        ("error", step.error),
        *((name, number_text(value)) for name, value in sorted(step.metrics.items())),
    ]
    detail = (
        f"{short(output.digest)} · {human_size(output.size)}" if output is not None else f"{run.run} · {step.state}"
    )
    kind: Literal["output", "step"] = "step" if output is None else "output"
    told = tuple((name, value) for name, value in facts if value)
    return Node(key, kind, step.step, detail, colour, told, run.run, step.step, (run.run,))


def layers(graph: LineageGraph) -> list[list[str]]:
    """The nodes by layer, each layer in the order in which it is drawn."""
    before, after = (graph.neighbours(back=back) for back in (True, False))
    while True:
        sorter = TopologicalSorter({key: before.get(key, ()) for key in graph.nodes})
        try:
            sorter.prepare()
            break
        except CycleError as error:  # the same bytes made twice on one way: cut where it closes
            start, end = error.args[1][-2:]
            before[end].remove(start)
            after[start].remove(end)
    rows: list[list[str]] = []
    while ready := sorter.get_ready():
        rows.append(sorted(ready, key=list(graph.nodes).index if len(graph.nodes) < 300 else str))
        sorter.done(*ready)
    for sweep in range(SWEEPS):
        order = range(1, len(rows)) if sweep % 2 == 0 else range(len(rows) - 2, -1, -1)
        near = before if sweep % 2 == 0 else after
        place = {key: position for row in rows for position, key in enumerate(row)}
        for layer in order:

            def middle(key: str) -> float:
                known = [place[other] for other in near.get(key, ())]  # noqa: B023 - called in this round
                return sum(known) / len(known) if known else float(place[key])  # noqa: B023

            rows[layer].sort(key=middle)
            place |= {key: position for position, key in enumerate(rows[layer])}
    return rows
