"""The data browser for a name that somebody has: a run, a graph, an artifact or content by digest, an experiment."""

from __future__ import annotations

from collections.abc import Sequence

from marin.errors import UsageError
from marin.history.projection.reading import all_records, run_record
from marin.history.projection.record import RunRecord
from marin.record.root import Root
from marin.reporting.graph import graph_of
from marin.reporting.lineage import graph_page, lineage_page
from marin.reporting.samples import read_samples

RUNS_SAMPLED = 3
"""Of an experiment, so many of the newest runs are shown with samples of their data."""


def browser_page(root: Root, name: str, train_steps: Sequence[int] | None = None) -> bytes:
    """The page of what ``name`` means; ``train_steps`` are shown with the documents that they saw.

    Raises:
        UsageError: nothing in this root has the name.
    """
    origin, store = root.verifier.name, root.store()
    if not name.startswith("sha256:") and (run := _run(root, name)) is not None:
        return lineage_page(run, origin, read_samples(run, store, steps=train_steps))
    records = all_records(root)
    if name.startswith("sha256:"):
        whole = graph_of(records)
        ends = [
            key
            for key, node in whole.nodes.items()
            if node.kind == "artifact" and name in (value for _, value in node.facts)
        ]
        if not ends:
            raise UsageError(
                "no run of this root reads or made it",
                where=name,
                expected="the digest of an output",
                found="no mention",
                cure="see `marin ls artifacts`",
            )
        graph = whole.before_and_after(ends)
        title = f"Lineage of {name[:19]}…"
    else:
        records = [record for record in records if record.pipeline == name]
        graph, title = graph_of(records), f"Experiment {name}"
    by_run = {record.run: record for record in records if any(node.run == record.run for node in graph.nodes.values())}
    shown = list(by_run.values())[-RUNS_SAMPLED:]
    samples = {record.run: read_samples(record, store, steps=train_steps or []) for record in shown}
    return graph_page(title, graph, by_run, samples, about=f"{len(by_run)} runs of the ", origin=origin)


def _run(root: Root, name: str) -> RunRecord | None:
    """The run or graph of this name; None when it is an experiment's, and the error of a name that nothing has."""
    try:
        return run_record(root, name)
    except UsageError:
        if any(record.pipeline == name for record in all_records(root)):
            return None
        raise
