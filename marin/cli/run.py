"""`marin run FILE`: an experiment file, brought to its results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from marin.graph.execute import Outcome


@click.command()
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--only", metavar="RE", help="The steps whose address matches, and what they depend on.")
@click.option("--force", is_flag=True, help="Execute every step, even if an equal result is recorded.")
@click.option("--force-failed", is_flag=True, help="Execute again what failed by its own fault.")
@click.option("--max-concurrent", type=click.IntRange(min=1), metavar="N",
              help="At most N processes at a time.  [default: as many as there are cores for]")
@click.option("--runner", type=click.Choice(["local", "ray"]), default="local", show_default=True,
              help="Processes of this machine, or of a Ray.")
@click.option("--address", metavar="HOST:PORT", help="A Ray cluster that exists; without it --runner ray starts one here.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def run(file: Path, only: str | None, force: bool, force_failed: bool, max_concurrent: int | None, runner: str,
        address: str | None, as_json: bool) -> None:
    """Execute the steps of an experiment file, as far as the ledger lacks their results.

    A step is looked up by its identity: configuration, content of its inputs, code, seeds and locked packages. What has a
    recorded result, whole byte for byte, is taken over; the rest is executed, in parallel as far as this machine allows.
    A failed step takes down what depends on it, and nothing else. Called again after whatever interruption, it goes on.

    \b
    Examples:
      marin run experiments/exp001_grammar_scaling.py
      marin run experiments/exp001_grammar_scaling.py --only 'train/nano-.*'
    """
    from marin.errors import StepFailed
    from marin.graph.execute import Options, execute_graph
    from marin.graph.files import load_graph
    from marin.root import open_root

    graph = load_graph(file)
    if only:
        graph = graph.only(only)
    options = Options(force=force, force_failed=force_failed, max_concurrent=max_concurrent or 0,
                      runner="ray" if runner == "ray" else "local", address=address)
    outcome = execute_graph(graph, open_root(), file=file.resolve(), options=options)
    _print(outcome, graph.ends, as_json=as_json)
    failed = [item for item in outcome.failures.values() if not item.because]
    if failed:
        raise StepFailed("not every step has its output", where=f"graph {graph.name}", expected=f"{len(graph.nodes)} outputs",
                         found=f"{failed[0].address}: {failed[0].error}" + (f" and {len(failed) - 1} more" if failed[1:] else ""),
                         cure="correct it and run the same command again: the rest is done")


def _print(outcome: Outcome, ends: tuple[str, ...], *, as_json: bool) -> None:
    from marin.cli.output import human_size, print_json, print_table

    if as_json:
        print_json({
            "graph": outcome.graph or None, "event": outcome.event if outcome.event >= 0 else None, "counts": outcome.counts,
            "steps": [{"address": item.address, "action": item.action, "digest": item.output.digest,
                       "artifact": item.output.artifact, "kind": item.output.kind, "metrics": dict(item.metrics),
                       "run": item.run or None,
                       "completed_at": item.completed_at if item.completed_at >= 0 else None}
                      for item in outcome.settled.values()],
            "failures": [{"address": item.address, "error": item.error, "because": item.because or None}
                         for item in outcome.failures.values()],
        })
        return
    rows = [(item.address, item.action, item.output.kind, human_size(item.output.size), item.output.artifact)
            for address in ends if (item := outcome.settled.get(address)) is not None]
    print_table(("step", "how", "kind", "size", "artifact"), rows, empty="no step has an output")
    counts = ", ".join(f"{count} {name}" for name, count in outcome.counts.items())
    click.echo(f"{counts}; graph {outcome.graph}" if outcome.graph else f"{counts}: nothing to do", err=True)
