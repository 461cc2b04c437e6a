"""`marin run FILE`: an experiment file, brought to its results. `marin run RUN archive`: what is said of a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from marin.cli.execution import Machine, no_diff
from marin.cli.options import argument, flag, group, option, takes
from marin.cli.output import print_json, say
from marin.cli.tables import print_table
from marin.process.text import several
from marin.process.waiting import waiting
from marin.recipe.units import human_size

if TYPE_CHECKING:
    from marin.graph.execution.loop import Options, Outcome
    from marin.graph.graph import Graph
    from marin.record.root import Root


@dataclass(frozen=True)
class RunOptions:
    """What `marin run` takes."""

    file: Path = argument("FILE|RUN", type=click.Path(path_type=Path))
    said: tuple[str, ...] = argument("[archive|restore|describe TEXT|tag NAME=VALUE…|untag NAME…]", nargs=-1)
    only: str | None = option("RE", "Only the steps whose address matches, and what they depend on.")
    force: bool = flag("Execute every step, even if an equal result is recorded.")
    force_failed: bool = flag("Execute again the steps whose own code failed.")
    max_concurrent: int | None = option(
        "N", "Run at most N processes at a time.  [default: as many as there are cores for]", least=1
    )
    machine: Machine = group(Machine)
    check: bool = flag("Execute every step twice and compare what it makes: which are not deterministic?")
    sanity: bool = flag("First every arm at a hundredth of its train steps; the rest only if that runs.")
    sanity_only: bool = flag("Every arm at a hundredth of its train steps, and nothing else.")
    dry_run: bool = flag("Say for every step whether it is a hit, or why not and what it would cost.")
    device: str = option("NAME", "For --dry-run: a device of conf/prices.yaml.  [default: here]", default="here")
    as_json: bool = flag("Print one JSON object.", "--json")


@click.command()
@takes(RunOptions)
@no_diff
def run(options: RunOptions) -> None:
    """Execute the steps of an experiment file whose results the ledger does not have, or label a run.

    A step is looked up by its identity: configuration, content of its inputs, code, seeds and locked packages. A
    recorded result is reused once its bytes were hashed again; the other steps are executed, in parallel as far as this
    machine allows. When a step fails, only the steps that depend on it are left out. After an interruption, call it
    again: it continues.

    With the name of a run and an action it is about that run: `archive` takes it out of lists and pages, `restore` brings
    it back, `describe` and `tag` say what it is about. Each is an event of the log, from which nothing is ever taken.

    \b
    Examples:
      marin run experiments/exp001_grammar_scaling.py --dry-run
      marin run experiments/exp001_grammar_scaling.py --sanity
      marin run experiments/exp001_grammar_scaling.py --only 'train/nano-.*'
      marin run juzu7wlh describe "warm-up was too short"
      marin run juzu7wlh tag team=data baseline
      marin run juzu7wlh archive
    """
    execution = options.machine.execution()
    if options.said:
        from marin.cli.running.label import label

        label(str(options.file), options.said[0], options.said[1:], as_json=options.as_json)
        return
    with waiting(f"reading {options.file.name}"):
        from marin.execution.tracker import choose
        from marin.graph.execution.loop import Options
        from marin.graph.experiment.sanity import sanity as shrunk
        from marin.graph.files import load_graph
        from marin.record.root import open_root

        choose()
        graph = load_graph(options.file)
    if options.only:
        graph = graph.only(options.only)
    small = shrunk(graph) if options.sanity or options.sanity_only else None
    if options.dry_run:
        _dry_run(
            small if small and options.sanity_only else graph,
            open_root(),
            options.device,
            force=options.force,
            as_json=options.as_json,
        )
        return
    manner = Options(
        check=options.check,
        force=options.force,
        force_failed=options.force_failed,
        max_concurrent=options.max_concurrent or 0,
        execution=execution,
    )
    for each in (small, None if options.sanity_only else graph):
        if each is not None:
            quiet = each is small and not options.sanity_only
            _execute(each, open_root(), options.file, manner, quiet=quiet, as_json=options.as_json)


def _execute(graph: Graph, root: Root, file: Path, options: Options, *, quiet: bool, as_json: bool) -> None:
    """Bring ``graph`` to its results, and print them unless ``quiet``.

    Raises:
        Diverged: a second execution made other bits.
        StepFailed: a step has no output.
    """
    from marin.errors import Diverged, StepFailed
    from marin.graph.execution.loop import execute_graph

    outcome = execute_graph(graph, root, file=file.resolve(), options=options)
    if not quiet:
        _print_outcome(outcome, graph.ends, as_json=as_json)
    if options.check and outcome.nondeterministic:
        raise Diverged(
            "a step made other bits the second time",
            where=f"graph {graph.name}",
            expected="equal digests",
            found=", ".join(outcome.nondeterministic[:8]),
            cure="look for time, chance, order or threads in it; "
            "marin log --stream graph/" + outcome.graph + " has both digests",
        )
    failed = [item for item in outcome.failures.values() if not item.because]
    if failed:
        raise StepFailed(
            "not every step has its output",
            where=f"graph {graph.name}",
            expected=several(len(graph.nodes), "outputs"),
            found=f"{failed[0].address}: {failed[0].error}" + (f" and {len(failed) - 1} more" if failed[1:] else ""),
            cure="correct it and run the same command again: the rest is done",
        )


def _dry_run(graph: Graph, root: Root, device: str, *, force: bool, as_json: bool) -> None:
    from marin.graph.planning import Planner
    from marin.graph.why import explain
    from marin.history.measured import measurements
    from marin.recipe.composition import PRICES, conf_folder
    from marin.recipe.cost import in_words, load_prices, totals

    prices = load_prices(conf_folder() / PRICES)
    prices.device(device)
    with waiting(f"asking of {len(graph.nodes)} steps what there is"):
        planner = Planner(graph, root)
        answers = list(explain(planner, prices, measurements(root.history()), device=device, force=force))
    total = totals(answer.estimate for answer in answers)
    if as_json:
        print_json(
            {
                "graph": graph.name,
                "steps": [answer.as_json() for answer in answers],
                "total": total.as_json(),
                "prices": str(prices.date),
            }
        )
        return
    columns = ("step", "will", "FLOPs", "memory", "writes", "time", "price", "why")
    rows = []
    for answer in answers:
        words = in_words(answer.estimate)
        rows.append(
            (
                answer.address,
                answer.action,
                *(
                    words[name] if answer.action == "run" else ""
                    for name in ("flops", "memory", "bytes", "time", "price")
                ),
                "; ".join(answer.why),
            )
        )
    words = in_words(total)
    run = sum(answer.action == "run" for answer in answers)
    basis = f"{total.basis}; prices of {prices.date}, device {device}"
    rows.append(
        (
            "total",
            f"{run} of {len(answers)}",
            words["flops"],
            words["memory"],
            words["bytes"],
            words["time"],
            words["price"],
            basis,
        )
    )
    print_table(columns, rows, empty="no steps")


def _print_outcome(outcome: Outcome, ends: tuple[str, ...], *, as_json: bool) -> None:

    if as_json:
        print_json(
            {
                "graph": outcome.graph or None,
                "event": outcome.event if outcome.event >= 0 else None,
                "counts": outcome.counts,
                "steps": [
                    {
                        "address": item.address,
                        "action": item.action,
                        "digest": item.output.digest,
                        "artifact": item.output.artifact,
                        "kind": item.output.kind,
                        "metrics": dict(item.metrics),
                        "run": item.origin or None,
                        "completed_at": item.completed_at if item.completed_at >= 0 else None,
                    }
                    for item in outcome.results.values()
                ],
                "not_deterministic": list(outcome.nondeterministic),
                "failures": [
                    {"address": item.address, "error": item.error, "because": item.because or None}
                    for item in outcome.failures.values()
                ],
            }
        )
        return
    rows = [
        (item.address, item.action, item.output.kind, human_size(item.output.size), item.output.artifact)
        for address in ends
        if (item := outcome.results.get(address)) is not None
    ]
    print_table(("step", "how", "kind", "size", "artifact"), rows, empty="no step has an output")
    for address in outcome.nondeterministic:
        say(f"{address} is not deterministic: its results have differed", err=True)
    counts = ", ".join(f"{count} {name}" for name, count in outcome.counts.items())
    say(f"{counts}; graph {outcome.graph}" if outcome.graph else f"{counts}; nothing was executed", err=True)
