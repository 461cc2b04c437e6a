"""`marin compare`: runs held against each other, on the terminal, as JSON, or as a page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from marin.cli.options import FILE, argument, flag, option, takes
from marin.cli.output import print_json, say
from marin.cli.tables import print_table, say_folded
from marin.process.files import write_whole
from marin.process.waiting import waiting
from marin.record.root import open_root

if TYPE_CHECKING:
    from marin.plugins.lab.comparing.compared import Compared


@dataclass(frozen=True)
class CompareOptions:
    """What `marin compare` takes."""

    names: tuple[str, ...] = argument("[RUN]...", nargs=-1)
    sweep: str | None = option("ID", "The runs of a sweep (`marin train -m`); latest is the newest one.")
    experiment: str | None = option("NAME", "The runs of a registered experiment, arm by arm.")
    filters: tuple[str, ...] = option(
        "EXPRESSION",
        "Of these, or of all runs, only those for which it holds, as in `marin ls`.",
        "--filter",
        multiple=True,
    )
    metrics: tuple[str, ...] = option(
        "NAME",
        "Compare this number: loss, evaluate.pairs_won, tokens_per_second, seconds, …  [default: loss, bits per byte, "
        "train loss, tokens_per_second]",
        "--metric",
        multiple=True,
    )
    baseline: str = option("RUN|KEY=VALUE", "What the others are held against.  [default: the first row]", default="")
    target: Path | None = option(None, "Write it as a page with pictures, too.", "--html", type=FILE)
    as_json: bool = flag("Print one JSON object.", "--json")


@click.command()
@takes(CompareOptions)
def compare(options: CompareOptions) -> None:
    """Hold runs against each other: a sweep, an experiment, or any that you name.

    Runs that differ in nothing but the seed are one row, with the mean and the spread of each number. The others are held
    against the first row, or --baseline: difference, 95% interval, and a test over the seeds that both have, corrected
    for how many there are. That is exploratory, unless an experiment was registered that asked for it. Then each key that
    differs, by the share of the spread that goes with it. What cannot be compared (other held-out text, tokenizer,
    code) is said beside its number.

    --html writes the same with pictures: curves, a number over each key, and all keys at once. It needs the extra `mlflow`.

    \b
    Examples:
      marin compare --sweep latest
      marin compare 3f9c 81aa latest --metric loss --metric pairs_won
      marin compare --experiment exp001 --html compared.html
      marin compare --filter "dataset = grammar and seed = 1" --baseline learning_rate=0.006
    """
    with waiting("loading what compares runs"):
        from marin.plugins.lab.comparing import text
        from marin.plugins.lab.comparing.whole import compare_runs

    found = compare_runs(
        open_root(),
        *options.names,
        sweep=options.sweep,
        experiment=options.experiment,
        filters=options.filters,
        metrics=options.metrics,
        baseline=options.baseline,
    )
    if options.target is not None:
        from marin.plugins.lab.comparing.page import page
        from marin.provenance.extras import DRAWING, need

        need(*DRAWING)
        with waiting("drawing the page"):
            write_whole(options.target, page(found))
    if options.as_json:
        print_json(text.as_json(found))
    else:
        print_compared(found)


def print_compared(found: Compared) -> None:
    """Table, differences, importance and remarks."""
    from marin.plugins.lab.comparing import text
    from marin.plugins.lab.comparing.compared import called

    say_folded(text.heading(found))
    say()
    titles = text.group_titles(found)
    rest = [called(metric) for metric in found.metrics[1:]]
    print_table(titles, text.group_rows(found), empty="", expendable=[*rest[::-1], titles[-1]])
    if said := text.ends(found):
        say_folded(said)
    if any(told.n > 1 for group in found.groups for told in group.summaries.values()):
        say(text.SPREAD, err=True)
    if not (tables := text.difference_tables(found)):
        say_folded(f"{found.verdict}: {found.because}")
    for of, rows in tables:
        say()
        say_folded(of)
        print_table(text.DIFFERENCES, rows, empty="", expendable=("test", "p", "95% interval"))
    metric = found.metrics[0]
    if rows := text.importance_rows(found, metric):
        say()
        say_folded(f"what {called(metric)} goes with ({text.METHOD})")
        print_table(text.IMPORTANCE, rows, empty="", expendable=("values",))
    if remarks := text.remarks(found):
        say()
        for line in remarks:
            say_folded(f"note: {line}")
