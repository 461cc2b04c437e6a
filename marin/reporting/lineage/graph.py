"""The graph of steps and artifacts of one or many runs, and where each node stands when it is drawn.

Nodes are executions of steps, and artifacts by content: what two runs share is one node, so that an experiment of many
runs is one graph from raw data to models. Layers are networkx's topological generations; within a layer nodes are
ordered by the middle of their neighbours (Sugiyama's barycentre method), a few sweeps up and down.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from marin.history.run import Run, StepState
from marin.record.verdicts import overall

SWEEPS = 6


@dataclass(frozen=True)
class Node:
    """One node. ``key`` is unique in its graph; ``colour`` is good, mid, bad or none; ``facts`` are what its panel
    shows."""

    key: str
    kind: Literal["step", "artifact"]
    name: str
    detail: str
    colour: str
    facts: Sequence[tuple[str, str]] = ()
    run: str = ""
    step: str = ""


@dataclass
class LineageGraph:
    """Nodes by key, and edges from what is read to what reads it, from a step to what it made."""

    nodes: dict[str, Node] = field(default_factory=dict)
    edges: dict[tuple[str, str], None] = field(default_factory=dict)

    def before_and_after(self, keys: Iterable[str]) -> LineageGraph:
        """The part that led to these nodes or follows from them."""
        named = list(keys)
        wanted = self._reached(named, dict(self._pairs(back=True))) | self._reached(
            named, dict(self._pairs(back=False))
        )
        return LineageGraph(
            {key: node for key, node in self.nodes.items() if key in wanted},
            {edge: None for edge in self.edges if wanted.issuperset(edge)},
        )

    def _pairs(self, *, back: bool) -> list[tuple[str, list[str]]]:
        found: dict[str, list[str]] = {}
        for source, target in self.edges:
            found.setdefault(target if back else source, []).append(source if back else target)
        return list(found.items())

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
    """The graph of these runs. A step that was taken over is the execution that made it."""
    graph = LineageGraph()
    for run in runs:
        verified = verdict_of(run)
        for step in run.ordered_states():
            key = f"made:{step.identity}" if step.identity and step.output is not None else f"{run.run}/{step.step}"
            graph.nodes.setdefault(key, _step(key, run, step, verified))
            for name, digest in step.inputs.items():
                source = f"artifact:{digest}"
                graph.nodes.setdefault(
                    source, Node(source, "artifact", name, digest[7:19], "none", (("content", digest),))
                )
                graph.edges[source, key] = None
            if step.output is not None:
                made = f"artifact:{step.output.digest}"
                known = graph.nodes.get(made)
                if (
                    known is None or not known.run or known.colour == "none"
                ):  # one run that was verified speaks for the bytes
                    graph.nodes[made] = _artifact(made, run, step, verified)
                if (made, key) not in graph.edges:  # a step may give back what it was given
                    graph.edges[key, made] = None
    return graph


def verdict_of(run: Run) -> str:
    """The newest verdict on a run that counts, as one word, or never."""
    return overall(run.verdicts[-1].body.verdicts) if run.verdicts else "never"


def _step(key: str, run: Run, step: StepState, verified: str) -> Node:
    colour = {"completed": "good", "cached": "good", "failed": "bad"}.get(step.state, "mid")
    facts = [
        ("step", step.step),
        ("run", run.run),
        ("state", step.state),
        ("by", run.started.actor),
        ("begun", step.started[:19].replace("T", " ") + " UTC"),
        ("event", str(step.index)),
        ("identity", step.identity),
        ("run verified", verified),
    ]
    result = step.result
    took = f"{result.seconds:.1f} s" if result is not None and not result.cached else ""
    if took:
        facts.insert(5, ("took", took))
    if result is not None and result.cached:
        facts.append(("taken over from", f"event {result.completed_at}"))
    if step.error:
        facts.append(("error", step.error))
    facts += [(name, f"{value:.6g}") for name, value in sorted(step.metrics.items())]
    detail = f"{run.run} · {took}" if took else run.run
    return Node(key, "step", step.step, detail, colour, tuple(facts), run.run, step.step)


def _artifact(key: str, run: Run, step: StepState, verified: str) -> Node:
    assert step.output is not None
    output = step.output
    colour = {"PASS": "good", "FAIL": "bad", "PARTIAL": "mid"}.get(verified, "none")
    facts = (
        ("kind", output.kind),
        ("content", output.digest),
        ("stored as", output.artifact),
        ("bytes", f"{output.size:,}"),
        ("made by", f"{step.step} of run {run.run}, {run.started.actor}"),
        ("when", (step.ended or step.started)[:19].replace("T", " ") + " UTC"),
        ("run verified", verified),
    )
    return Node(
        key,
        "artifact",
        output.kind,
        f"{output.digest[7:19]} · {size_text(output.size)}",
        colour,
        facts,
        run.run,
        step.step,
    )


def size_text(count: int) -> str:
    """A number of bytes for people."""
    value, units = float(count), ["B", "kB", "MB", "GB", "TB"]
    while value >= 1000 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{value:.0f} {units[0]}" if units[0] == "B" else f"{value:.1f} {units[0]}"


def layers(graph: LineageGraph) -> list[list[str]]:
    """The nodes by layer, each layer in the order in which it is drawn."""
    # Here: networkx takes a quarter of a second, which only a drawing needs.
    import networkx

    drawn: Any = networkx.DiGraph()
    drawn.add_nodes_from(graph.nodes)
    drawn.add_edges_from(graph.edges)
    while not networkx.is_directed_acyclic_graph(drawn):  # the same bytes made twice on one way: cut where it closes
        drawn.remove_edge(*list(networkx.find_cycle(drawn))[-1][:2])
    rows = [
        sorted(layer, key=list(graph.nodes).index if len(graph.nodes) < 300 else str)
        for layer in networkx.topological_generations(drawn)
    ]
    for sweep in range(SWEEPS):
        order = range(1, len(rows)) if sweep % 2 == 0 else range(len(rows) - 2, -1, -1)
        near = drawn.predecessors if sweep % 2 == 0 else drawn.successors
        place = {key: position for row in rows for position, key in enumerate(row)}
        for layer in order:

            def middle(key: str) -> float:
                known = [place[other] for other in near(key)]  # noqa: B023 - called in this round
                return sum(known) / len(known) if known else float(place[key])  # noqa: B023

            rows[layer].sort(key=middle)
            place |= {key: position for position, key in enumerate(rows[layer])}
    return rows
