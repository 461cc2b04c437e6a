"""`marin ls`: what is in this root."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import click

from ledger import LedgerError
from marin.cli.choice import OneOf
from marin.cli.looking.experiments import print_experiments, print_sweeps
from marin.cli.options import argument, flag, option, takes
from marin.cli.output import print_json, say
from marin.cli.tables import print_table
from marin.errors import UsageError
from marin.history.catalog import Catalog, RunSummary, open_catalog
from marin.history.run import Run
from marin.history.runs import load
from marin.history.table.beside import BITS, LAST_LOSS, numbers_beside
from marin.history.table.machine import SPEED, rewards
from marin.history.table.nondeterminism import MARK, nondeterministic
from marin.history.table.query import conditions, in_order, matching_rows
from marin.history.table.rows import Column, Row, Table
from marin.history.table.underway import Underway, underway
from marin.history.table.varied import key_differences
from marin.recipe.units import human_size
from marin.record.root import Root, open_root
from marin.record.verdicts import passed_as, verdict_line

COLUMNS = ("run", "started", "dataset", "model", "steps", "loss", "perplexity", "verified")
"""What is shown without being asked for; what differs among the runs stands before the loss. How far a run has come stands
under ``verified`` while it is not complete."""
REWARDED = "mean reward"
ALL = (*COLUMNS, "train loss", REWARDED, "state", "seed", "by", "tags", "description")
SHOWN_ALREADY = {"model": "model", "dataset": "dataset", "trainer.num_steps": "steps"}
"""Keys that differ and have a column without that."""
FOLLOWED = 20
"""So many open runs are looked at closely, the newest."""
MOST, NAMED = 6, 8
"""So many keys that differ have a column; of the others so many are named below the table."""


@dataclass(frozen=True)
class LsOptions:
    """What `marin ls` takes."""

    what: str = argument(type=OneOf(["runs", "artifacts", "experiments", "sweeps"]), default="runs")
    limit: int = option(
        None,
        "How many runs or artifacts a table has at most, the newest; 0 for all. --json always has all.",
        "-n",
        "--limit",
        least=0,
        default=200,
        show_default=True,
    )
    columns: str | None = option(
        "A,B,…",
        f"Of runs, only these, in this order: some of {', '.join(ALL)}; any key of the recipe (optimizer.learning_rate, or "
        "an end of it that only one has), any number (evaluate.pairs_won, tokens_per_second), any tag (tags.team).",
    )
    filters: tuple[str, ...] = option(
        "EXPRESSION",
        "Only runs for which it holds: 'NAME OP VALUE and …', OP one of = != < <= > >= LIKE ILIKE; names as in --columns.",
        "--filter",
        multiple=True,
    )
    sort: str | None = option("NAME[ desc],…", "In this order; without it in the order in which they began.")
    archived: bool = flag("Runs that were archived, too.")
    as_json: bool = flag("Print one JSON array.", "--json")


@click.command()
@takes(LsOptions)
def ls(options: LsOptions) -> None:
    """List runs, artifacts, experiments or sweeps.

    Runs come with what differs among their recipes, their headline numbers (loss and perplexity are the evaluation's, train
    loss is that of the last minibatch) and what your verifications found: anyone who looked at less later took nothing
    back. `PASS as X` says that run X, which has the same recipe and made the same bytes, was verified. Artifacts are those
    that events name, with the step and the runs that they belong to; experiments are those that are registered, sweeps
    those that `marin train -m` began. Runs that were archived (`marin run RUN archive`) are left out.

    A terminal too narrow for all columns leaves out those that matter least; a pipe gets all. The grammar of --filter is
    MLflow's, its words `params.`, `metrics.` and `tags.` too; numbers of a recipe are compared as numbers. To weigh runs
    against each other: `marin compare`.

    \b
    Examples:
      marin ls
      marin ls --columns run,optimizer.learning_rate,seed,loss --sort loss
      marin ls --filter "optimizer.learning_rate >= 0.01 and loss < 3.2"
      marin ls --columns run,perplexity,verified
      marin ls runs --json
      marin ls artifacts
      marin ls experiments
      marin ls sweeps
    """
    root = open_root()
    if options.what != "runs" and (options.columns is not None or options.filters or options.sort is not None):
        raise UsageError(
            "an option for runs",
            where=f"marin ls {options.what}",
            expected="--columns, --filter and --sort with runs alone",
            found=options.what,
            cure="`marin ls --filter …`",
        )
    if options.what == "experiments":
        print_experiments(root, as_json=options.as_json)
        return
    if options.what == "sweeps":
        print_sweeps(root, as_json=options.as_json)
        return
    with open_catalog(root) as catalog:
        if options.what == "runs":
            _runs(root, catalog, options)
        else:
            _artifacts(root, catalog, options.limit, as_json=options.as_json)


def _runs(root: Root, catalog: Catalog, listing: LsOptions) -> None:
    listed, metrics = catalog.runs(), catalog.all_metrics()
    twins = catalog.twins(listed)
    hidden = 0 if listing.archived else sum(run.labels.archived for run in listed)
    summaries = {run.run: run for run in listed if listing.archived or not run.labels.archived}
    some = listing.filters or listing.sort is not None or listing.as_json or not listing.limit
    table = Table(
        [
            _row(run, catalog.recipe(run), metrics.get(run.run, {}), twins.get(run.run, ""))
            for run in (list(summaries.values()) if some else list(summaries.values())[-listing.limit :])
        ]
    )
    table = _with_beside(root, table, _asked_for(listing))
    rows = matching_rows(table, listing.filters)
    count = len(rows) if some else len(summaries)
    if listing.sort is not None:
        rows = in_order(table, rows, listing.sort)
    if not listing.as_json and listing.limit:
        rows = rows[: listing.limit] if listing.sort is not None else rows[-listing.limit :]
    if listing.as_json:
        _print_as_json(catalog, [summaries[row.run] for row in rows], rows, twins)
        return
    rows = [_with_reward(root, row) if row.recipe.get("objective") else row for row in _with_signs(root, rows)]
    columns, expendable, rest = _columns(table, rows, listing.columns)
    none = f"no run but {hidden} archived: `marin ls --archived`" if hidden else "no runs yet: `marin train` makes one"
    print_table(
        [column.title for column in columns],
        [[column.text(row) for column in columns] for row in rows],
        empty="no run for which that holds" if table.rows else none,
        expendable=expendable,
    )
    if rest and rows:
        more = f" and {len(rest) - NAMED} more (`marin ls --json` has all)" if len(rest) > NAMED else ""
        say(f"these keys differ too, --columns shows them: {', '.join(rest[:NAMED])}{more}", err=True)
    if listing.limit and count > listing.limit:
        say(f"the {'newest' if listing.sort is None else 'first'} {listing.limit} of {count}; -n 0 for all", err=True)


def _asked_for(listing: LsOptions) -> list[str]:
    """The names of columns, filters and order."""
    orders = [part.strip().removeprefix("-").partition(" ")[0] for part in (listing.sort or "").split(",")]
    named = [name.strip() for name in (listing.columns or "").split(",")]
    return [name for name in (*named, *(one.name for one in conditions(listing.filters)), *orders) if name]


def _with_beside(root: Root, table: Table, names: Sequence[str]) -> Table:
    """The table; where one of ``names`` is of what no step recorded, with that too, which takes a look into every run."""
    try:
        if not any(table.column(name, where="").name in (SPEED, BITS) for name in names):
            return table
    except UsageError:
        pass  # a number that the catalog does not hold, or a mistake: the caller says which
    history = root.history()
    beside = {row.run: numbers_beside(history, load(history, row.run)) for row in table.rows}
    return Table([replace(row, numbers={**beside[row.run], **row.numbers}) for row in table.rows])


def _with_signs(root: Root, rows: Sequence[Row]) -> list[Row]:
    """The rows, those of the newest open runs with how far they have come."""
    opened = [row.run for row in rows if row.own["state"] == "open"][-FOLLOWED:]
    if not opened:
        return list(rows)
    history, now = root.history(), datetime.now(UTC)
    signs: dict[str, Underway] = {}
    for run in opened:
        with suppress(LedgerError):  # somebody else's events may not fit: `marin show RUN` says which
            if (sign := underway(history, load(history, run), now)) is not None:
                signs[run] = sign
    return [_with_sign(row, signs[row.run]) if row.run in signs else row for row in rows]


def _with_reward(root: Root, row: Row) -> Row:
    """A run that learned from rewards with the mean of its last update, in place of a loss that says nothing."""
    drawn = rewards(root.history(), row.run)
    return replace(row, own={**row.own, "train loss": "", REWARDED: f"{drawn[-1]:.4f}" if drawn else ""})


def _with_sign(row: Row, sign: Underway) -> Row:
    first, *labels = row.own["verified"].split(" · ")
    judged = first != row.own["state"]  # a verdict on what there was of it says more than that it is open
    own = {**row.own, "verified": " · ".join([first if judged else sign.line, *labels])}
    loss = own["train loss"] or ("" if sign.train_loss is None else f"{sign.train_loss:.4f}")
    return replace(
        row, own={**own, "train loss": loss, "loss": own["loss"] or _number(sign.held_out and sign.held_out[1])}
    )


def _columns(table: Table, rows: Sequence[Row], named: str | None) -> tuple[list[Column], list[str], list[str]]:
    """The columns, the titles of those that a narrow terminal goes without (the first first), and keys that have none."""
    if named is not None:
        return [table.column(name.strip(), where="--columns") for name in named.split(",")], [], []
    own = [table.column(name, where="--columns") for name in COLUMNS]
    if any(row.own["by"] for row in rows):  # a log that enrolled nobody has one author
        own.append(table.column("by", where="--columns"))
    among = Table(rows)
    found = among.varied()
    differing = among.varied_columns(found, taken=COLUMNS)
    more = [column for column in differing if column.name not in SHOWN_ALREADY]
    telling = [column for column in more if column.name not in found.repeated]
    shown = telling if len(telling) <= MOST else [*telling[: MOST - 1], telling[-1]]  # the last one is the seed
    place = COLUMNS.index("loss")
    if any(row.own[REWARDED] for row in rows):
        own.insert(place, table.column(REWARDED, where="--columns"))
    alike = [
        name
        for key, name in {"trainer.num_steps": "steps", "dataset": "dataset", "model": "model"}.items()
        if key not in found.keys
    ]
    told = [name for name in ("steps", "dataset", "model") if name not in alike]
    expendable = [*alike, "started", *(column.title for column in shown[2:-1][::-1]), *told, "perplexity"]
    if any(row.own["state"] == "open" and row.own["train loss"] and not row.own["loss"] for row in rows):
        shown.append(table.column("train loss", where="--columns"))
    return [*own[:place], *shown, *own[place:]], expendable, [one.name for one in more if one not in shown]


def _print_as_json(
    catalog: Catalog, listed: Sequence[RunSummary], rows: Sequence[Row], twins: Mapping[str, str]
) -> None:
    outputs: dict[str, dict[str, str]] = {}
    for made in catalog.results():
        outputs.setdefault(made.run, {})[made.step] = made.digest
    differs = key_differences({row.run: row.recipe for row in rows}).values
    print_json(
        [
            {
                "run": run.run,
                "status": run.status,
                "started": run.started,
                "plan": run.plan,
                "recipe_digest": run.recipe_digest,
                "differs": differs[run.run],
                "outputs": outputs.get(run.run, {}),
                "metrics": row.numbers,
                "verdicts": run.verdicts,
                "claimed": run.claimed,
                "by": run.by or None,
                "same_as": twins.get(run.run),
                "archived": run.labels.archived,
                "description": run.labels.description,
                "tags": run.labels.tags,
            }
            for run, row in zip(listed, rows, strict=True)
        ]
    )


def _row(run: RunSummary, recipe: Mapping[str, object], metrics: Mapping[str, float], twin: str) -> Row:
    verdict = passed_as(twin) if twin else verdict_line(run.verdicts, run.claimed, run.answerable, by=run.claimed_by)
    judged = run.status == "completed" or run.verdicts or run.claimed
    own = {
        "run": run.run,
        "started": _moment(run.started),
        "dataset": run.dataset,
        "model": run.model,
        "steps": run.num_steps,
        "loss": _number(metrics.get("evaluate.loss")),
        "perplexity": _number(metrics.get("evaluate.perplexity")),
        "train loss": _number(metrics.get(LAST_LOSS, metrics.get("loop.loss_last"))),
        REWARDED: "",
        "verified": " · ".join([verdict if judged else run.status] + ["archived"] * run.labels.archived),
        "state": run.status,
        "seed": run.seed,
        "by": run.by,
        "tags": tags_in_words(run.labels.tags),
        "description": run.labels.description,
    }
    told = {LAST_LOSS: metrics["loop.loss_last"]} if "loop.loss_last" in metrics else {}
    return Row(run.run, recipe, {**told, **metrics}, run.labels.tags, own, {"started": run.started})


def _moment(time: str) -> str:
    """A moment as a list has it: day and time, and the year where it is another than the present one."""
    year, rest = time[:4], time[5:16].replace("T", " ")
    return rest if year == f"{datetime.now(UTC):%Y}" else f"{year}-{rest}"


def tags_in_words(tags: Mapping[str, str]) -> str:
    """Tags as people write them."""
    return ", ".join(f"{name}={value}" if value else name for name, value in tags.items())


def verdict(view: Run, twin: str = "", *, by: str = "") -> str:
    """What was found of a run in a word or two, or of its verified ``twin``; ``by``: who claims what this user did not find."""
    claimed = view.claimed[-1].body.verdicts if view.claimed else None
    return passed_as(twin) if twin else verdict_line(view.verdict, claimed, view.answerable, by=by)


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
