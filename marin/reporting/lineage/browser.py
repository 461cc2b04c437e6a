"""The data browser for a name that somebody has: a run, a graph, an artifact or content by digest, an experiment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from marin.errors import UsageError
from marin.history.run import Run, plan_of
from marin.history.runs import History, facts, load_each, load_graph, load_named
from marin.kinds.families.experiment import ExperimentRegistered
from marin.kinds.families.graph import GraphStarted
from marin.record.events import RunStarted
from marin.record.root import Root
from marin.reporting.lineage.graph import LineageGraph, graph_of
from marin.reporting.lineage.page import graph_page, lineage_page
from marin.reporting.lineage.samples import Samples, read_samples

type Sampled = Callable[[Run], Samples]

RUNS_SAMPLED = 3
"""Of an experiment, so many of the newest runs are shown with samples of their data."""


def browser_page(root: Root, name: str, train_steps: Sequence[int] | None = None) -> bytes:
    """The page of what ``name`` means; ``train_steps`` are shown with the documents that they saw.

    Raises:
        UsageError: nothing in this root has the name.
    """
    origin, store, history = root.verifier.name, root.store(), root.history()
    if name.startswith("sha256:"):
        sampled = partial(read_samples, store=store, steps=train_steps or [])
        page = artifact_page(origin, runs := recorded_runs(history), graph_of(runs), name, sampled)
        if page is None:
            raise UsageError(
                "no run of this root reads or made it",
                where=name,
                expected="the digest of an output",
                found="no mention",
                cure="see `marin ls artifacts`",
            )
        return page
    try:
        run = load_named(history, name)
    except UsageError:
        if not (runs := _of_experiment(history, name)):
            raise
        sampled = partial(read_samples, store=store, steps=train_steps or [])
        return _part(origin, f"Experiment {name}", graph_of(runs), runs, sampled)
    return lineage_page(run, origin, read_samples(run, store, steps=train_steps))


def artifact_page(origin: str, runs: Sequence[Run], whole: LineageGraph, digest: str, sampled: Sampled) -> bytes | None:
    """What led to an output and what follows from it, in the graph ``whole`` of ``runs``; None where none has it."""
    ends = [key for key, node in whole.nodes.items() if digest in (value for _, value in node.facts)]
    if not ends:
        return None
    return _part(origin, f"Lineage of {digest[:19]}…", whole.before_and_after(ends), runs, sampled, ends[0])


def _part(
    origin: str, title: str, graph: LineageGraph, runs: Sequence[Run], sampled: Sampled, asked: str = ""
) -> bytes:
    shown = {node.run for node in graph.nodes.values()}
    by_run = {run.run: run for run in runs if run.run in shown}
    samples = {run.run: sampled(run) for run in list(by_run.values())[-RUNS_SAMPLED:]}
    count = len({run for node in graph.nodes.values() for run in node.runs})
    return graph_page(title, graph, by_run, samples, about=f"{count} runs of the ", origin=origin, asked=asked)


def _of_experiment(history: History, name: str) -> list[Run]:
    """The runs that cite a registration of this experiment or have it for their pipeline, and its graphs."""
    cited = {fact.body.registration: fact.body.experiment for fact in facts(history, ExperimentRegistered)}
    return recorded_runs(
        history, lambda run: cited.get(run.experiment, plan_of(run.pipeline)) == name, lambda graph: graph.name == name
    )


def recorded_runs(
    history: History,
    wanted: Callable[[RunStarted], bool] = lambda _: True,
    wanted_graph: Callable[[GraphStarted], bool] = lambda _: True,
) -> list[Run]:
    """These runs and graphs, in the order in which they began; one that does not hold together is named and left out."""
    runs = [fact.body.run for fact in facts(history, RunStarted) if wanted(fact.body)]
    graphs = [fact.body.graph for fact in facts(history, GraphStarted) if wanted_graph(fact.body)]
    found = [*load_each(history, runs), *load_each(history, graphs, load_graph)]
    return sorted(found, key=lambda run: run.started.index)
