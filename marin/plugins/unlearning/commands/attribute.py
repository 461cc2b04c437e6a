"""`marin attribute`: what each of some documents did to the losses of a run, by training without it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from marin.cli.options import THERE, argument, flag, option, takes
from marin.cli.output import print_json, say
from marin.cli.tables import print_table
from marin.process.text import several

if TYPE_CHECKING:
    from marin.history.run import Run
    from marin.plugins.unlearning.attribution.groups import Group
    from marin.plugins.unlearning.attribution.measuring import Row
    from marin.plugins.unlearning.kinds import AttributionMeasured


@dataclass(frozen=True)
class AttributeOptions:
    """What `marin attribute` takes."""

    run: str = argument("RUN")
    path: Path = option(
        "FILE",
        "A group of ids a line, as `marin data list RUN` shows them; or its JSON lines.",
        "--documents",
        type=THERE,
        required=True,
    )
    sets: tuple[Path, ...] = option(
        "FILE.jsonl",
        "Measure the loss on these texts too, beside the held-out text; may be repeated.",
        "--on",
        type=THERE,
        multiple=True,
    )
    out: Path | None = option("DIR", "Write all of it as a data set.", type=click.Path(path_type=Path))
    keep_tokenizer: bool = flag("Do not look whether the tokenizer would be another one.")
    again: bool = flag("Execute what is recorded too; other bits are an error.")
    workers: int = option(
        "W",
        "How many trainings are executed side by side, in processes of their own.  [default: 1]",
        least=1,
        default=1,
    )
    devices: int = option("N", "Devices of each. It never changes a bit.", least=1, default=1)
    no_record: bool = flag("Print the numbers, and record nothing.")
    dry_run: bool = flag("Print what it would take; execute nothing.")
    as_json: bool = flag("Print one JSON object.", "--json")


@click.command()
@takes(AttributeOptions)
def attribute(options: AttributeOptions) -> None:
    """Train RUN again without each of some documents, and measure exactly what its losses would be.

    Each group of documents is left out from its first use on, as `marin unlearn` does it, and the losses of the state that
    comes of it are measured on the run's held-out text. Every result is recorded as soon as it is known; said again, the
    command goes on. A change above 0 means that the documents made the loss smaller.

    \b
    Examples:
      marin data list latest --json > all.jsonl
      marin attribute latest --documents all.jsonl --dry-run
      marin attribute latest --documents some.txt --on questions.jsonl --workers 4 --out leave-one-out/
    """
    from marin.history.runs import load, resolve
    from marin.plugins.unlearning.attribution import measuring
    from marin.plugins.unlearning.attribution.groups import plan, read_groups
    from marin.process.progress import bar
    from marin.recipe.schema import Execution
    from marin.record.root import open_root

    root = open_root()
    view = load(root.history(), resolve(root.history(), options.run))
    store = root.store()
    groups = plan(view, store, read_groups(options.path))
    if options.dry_run:
        _print_plan(view, groups, as_json=options.as_json)
        return
    if not options.no_record:
        root.check_writable()
    asked = measuring.MeasurementRequest(
        measuring.read_sets(view, store, options.sets),
        options.workers,
        Execution(devices=options.devices),
        options.keep_tokenizer,
        options.again,
        not options.no_record,
    )
    with bar("attribute", len(groups)) as progress:
        rows = list(measuring.measure(root, view, groups, asked, lambda count: progress(count, "")))
    by_group = {row.group.documents: row for row in rows}
    base = by_group[()].body
    if base is not None:
        found = [by_group[group.documents] for group in groups if group.documents]
        if options.out is not None:
            from marin.plugins.unlearning.attribution.dataset import write_dataset  # numpy

            write_dataset(options.out, view, store, asked.sets, base, found)
        _print_changes(view, base, found, as_json=options.as_json)
    wrong = [f"{_name(row.group)}: {line}" for row in rows for line in (*row.other, row.failure) if line]
    if wrong:
        say(*wrong, err=True)
        raise click.exceptions.Exit(1)


def _name(group: Group) -> str:
    return " ".join(group.documents) or "the run as it is"


def _print_plan(view: Run, groups: list[Group], *, as_json: bool) -> None:
    last = view.recipe.last_step
    rows = [(group, last - group.place.step) for group in groups if group.documents]
    total = sum(steps for _, steps in rows)
    if as_json:
        told = [
            {
                "documents": list(group.documents),
                "first_use": group.first_use,
                "train_steps": len(group.steps),
                "executed_from": group.place.step,
            }
            for group, _ in rows
        ]
        print_json({"run": view.run, "groups": told, "train_steps": total})
        return
    planned = f"{several(len(rows), 'groups')}, {several(total, 'train steps')} to execute"
    say(f"{planned}; the run itself has {last - view.recipe.first_step}")


def _print_changes(view: Run, base: AttributionMeasured, rows: list[Row], *, as_json: bool) -> None:
    from marin.plugins.unlearning.attribution.dataset import group_row

    told = [group_row(base, row) for row in rows if row.body is not None]
    if as_json:
        losses = {name: one.loss for name, one in base.sets.items()}
        print_json(
            {
                "run": view.run,
                "losses": losses,
                "state": base.end_state,
                "groups": told,
                "failed": [
                    {"documents": list(row.group.documents), "error": row.failure} for row in rows if row.body is None
                ],
            }
        )
        return
    words = {True: "same", False: "ANOTHER", None: "kept"}
    print_table(
        ("documents", "first use", "read by", "tokenizer", *(f"change on {name}" for name in base.sets)),
        [
            (
                " ".join(one[:12] for one in row["documents"]),
                "never" if row["first_use"] is None else str(row["first_use"]),
                f"{row['train_steps']} steps",
                words[row["same_tokenizer"]],
                *(f"{row['change'][name]:+.3e}" for name in base.sets),
            )
            for row in told
        ],
        empty="nothing could be measured",
    )
    for name, one in base.sets.items():
        say(f"{name}: {float.fromhex(one.loss):.6f} nats a token with all documents", err=True)
