"""`marin ls`: what is in this root."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from datetime import UTC, datetime

import click

from marin.cli.choice import OneOf
from marin.cli.looking.experiments import print_experiments
from marin.cli.output import print_json, print_table, say
from marin.errors import UsageError
from marin.history.catalog import Catalog, RunSummary, open_catalog
from marin.history.nondeterminism import MARK, nondeterministic
from marin.history.run import Run
from marin.recipe.units import human_size
from marin.record.root import Root, open_root
from marin.record.verdicts import described, passed_as

COLUMNS = ("run", "started", "dataset", "model", "steps", "loss", "perplexity", "verified")
"""What is shown without being asked for. How far a run has come stands under ``verified`` while it is not complete."""
ALL = (*COLUMNS, "state", "seed", "tags", "description")
EXPENDABLE = ("steps", "started", "dataset", "loss", "model")
"""What a narrow terminal goes without, the first first."""


@click.command()
@click.argument("what", type=OneOf(["runs", "artifacts", "experiments"]), default="runs")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=0),
    default=200,
    show_default=True,
    help="How many runs or artifacts a table has at most, the newest; 0 for all. --json always has all.",
)
@click.option("--columns", metavar="A,B,…", help=f"Of runs, only these, in this order: some of {', '.join(ALL)}.")
@click.option("--archived", is_flag=True, help="Runs that were archived, too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array.")
def ls(what: str, limit: int, columns: str | None, archived: bool, as_json: bool) -> None:
    """List runs, artifacts or experiments.

    Runs come with their headline numbers (loss and perplexity are the evaluation's) and what your verifications found:
    anyone who looked at less later took nothing back. `PASS as X` says that run X, which has the same recipe and made the same
    bytes, was verified. Artifacts are those that events name, with the step and the runs that they belong to; experiments
    are those that are registered. Runs that were archived (`marin run RUN archive`) are left out.

    A terminal too narrow for all columns leaves out those that matter least; a pipe gets all.

    \b
    Examples:
      marin ls
      marin ls --columns run,perplexity,verified
      marin ls runs --json
      marin ls artifacts
      marin ls experiments
    """
    root = open_root()
    if what == "experiments":
        print_experiments(root, as_json=as_json)
        return
    with open_catalog(root) as catalog:
        if what == "runs":
            _runs(catalog, limit, _chosen(columns), archived=archived, as_json=as_json)
        else:
            _artifacts(root, catalog, limit, as_json=as_json)


def _chosen(columns: str | None) -> tuple[str, ...]:
    if columns is None:
        return COLUMNS
    chosen = tuple(name.strip() for name in columns.split(","))
    for name in chosen:
        if name not in ALL:
            near = difflib.get_close_matches(name, ALL, n=1)
            raise UsageError(
                "no such column",
                where="--columns",
                expected=", ".join(ALL),
                found=name,
                cure=f"did you mean {near[0]}?" if near else "name some of them, joined by commas",
            )
    return chosen


def _runs(catalog: Catalog, limit: int, chosen: tuple[str, ...], *, archived: bool, as_json: bool) -> None:
    listed, metrics = catalog.runs(), catalog.all_metrics()
    twins = catalog.twins(listed)
    hidden = 0 if archived else sum(run.labels.archived for run in listed)
    if not archived:
        listed = [run for run in listed if not run.labels.archived]
    if as_json:
        outputs: dict[str, dict[str, str]] = {}
        for made in catalog.results():
            outputs.setdefault(made.run, {})[made.step] = made.digest
        print_json(
            [
                {
                    "run": run.run,
                    "status": run.status,
                    "started": run.started,
                    "plan": run.plan,
                    "recipe_digest": run.recipe_digest,
                    "outputs": outputs.get(run.run, {}),
                    "metrics": metrics.get(run.run, {}),
                    "verdicts": run.verdicts,
                    "claimed": run.claimed,
                    "same_as": twins.get(run.run),
                    "archived": run.labels.archived,
                    "description": run.labels.description,
                    "tags": run.labels.tags,
                }
                for run in listed
            ]
        )
        return
    rows = [_run_row(run, metrics.get(run.run, {}), twins.get(run.run, "")) for run in listed[-limit:]]
    print_table(
        chosen,
        [[row[name] for name in chosen] for row in rows],
        empty=f"no run but {hidden} archived: `marin ls --archived`"
        if hidden
        else "no runs yet: `dvc repro` makes one",
        expendable=EXPENDABLE if chosen == COLUMNS else (),
    )
    _say_of_the_rest(limit, len(listed))


def _say_of_the_rest(limit: int, count: int) -> None:
    if limit and count > limit:
        say(f"the newest {limit} of {count}; -n 0 for all", err=True)


def _run_row(run: RunSummary, metrics: dict[str, float], twin: str) -> dict[str, str]:
    verdict = passed_as(twin) if twin else described(run.verdicts, run.claimed, run.answerable)
    judged = run.status == "completed" or run.verdicts or run.claimed
    return {
        "run": run.run,
        "started": _moment(run.started),
        "dataset": run.dataset,
        "model": run.model,
        "steps": run.num_steps,
        "loss": _number(metrics.get("evaluate.loss")),
        "perplexity": _number(metrics.get("evaluate.perplexity")),
        "verified": " · ".join([verdict if judged else run.status] + ["archived"] * run.labels.archived),
        "state": run.status,
        "seed": run.seed,
        "tags": ", ".join(f"{name}={value}" if value else name for name, value in run.labels.tags.items()),
        "description": run.labels.description,
    }


def _moment(time: str) -> str:
    """A moment as a list has it: day and time, and the year where it is another than the present one."""
    year, rest = time[:4], time[5:16].replace("T", " ")
    return rest if year == f"{datetime.now(UTC):%Y}" else f"{year}-{rest}"


def summarize(view: Run) -> dict[str, object]:
    """A run in a few fields, as JSON shows it."""
    return {
        "run": view.run,
        "status": view.status,
        "started": view.started.time,
        "plan": view.plan,
        "recipe_digest": view.started.body.recipe_digest,
        "outputs": {step: result.output.digest for step, result in view.steps.items()},
        "metrics": view.metrics,
        "verdicts": view.verdict or None,
    }


def verdict(view: Run, twin: str = "") -> str:
    """What was found of a run in a word or two, or of its verified ``twin``."""
    claimed = view.claimed[-1].body.verdicts if view.claimed else None
    return passed_as(twin) if twin else described(view.verdict, claimed)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


@dataclass
class Named:
    """An artifact, and what names it."""

    artifact: str
    kind: str
    size: int
    step: str
    runs: list[str] = field(default_factory=list)


def artifacts_of(catalog: Catalog, limit: int = 0) -> list[Named]:
    """The artifacts that runs name, each once, in the order of its first mention; the newest ``limit`` of them, or
    all."""
    mentions = [
        (made.index, made.artifact, made.kind, made.size, made.step, made.run)
        for made in catalog.newest_results(limit or -1)
    ]
    mentions += [
        (saved.index, saved.artifact, f"checkpoint at {saved.step}", saved.size, "train", saved.run)
        for saved in catalog.newest_checkpoints(limit or -1)
    ]
    found: dict[str, Named] = {}
    for _, artifact, kind, size, step, run in sorted(mentions):
        named = found.setdefault(artifact, Named(artifact, kind, size, step))
        if run not in named.runs:
            named.runs.append(run)
    newest = list(found.values())[-limit:]
    for named in newest if limit else ():  # older runs may have it too
        makers = [(made.index, made.run) for made in catalog.made(named.artifact)]
        makers += [(saved.index, saved.run) for saved in catalog.checkpoints(named.artifact)]
        named.runs = list(dict.fromkeys(run for _, run in sorted(makers)))
    return newest


def _artifacts(root: Root, catalog: Catalog, limit: int, *, as_json: bool) -> None:
    store = root.store()
    named = artifacts_of(catalog, 0 if as_json else limit)
    if as_json:
        print_json(
            [
                {
                    "artifact": item.artifact,
                    "kind": item.kind,
                    "size": item.size,
                    "step": item.step,
                    "runs": item.runs,
                    "present": store.has(item.artifact),
                }
                for item in named
            ]
        )
        return
    differed = {
        made.artifact for identity in nondeterministic(root.history()) for made in catalog.by_identity(identity)
    }
    rows = [
        (
            item.artifact,
            item.step,
            item.kind,
            human_size(item.size),
            ", ".join(item.runs),
            "missing" if not store.has(item.artifact) else MARK if item.artifact in differed else "",
        )
        for item in named
    ]
    print_table(
        ("artifact", "step", "kind", "size", "runs", ""),
        rows,
        empty="no artifacts yet: `dvc repro` makes some",
        expendable=("step", "size"),
    )
    if len(named) == limit:
        say(f"the newest {limit}; -n 0 for all", err=True)
