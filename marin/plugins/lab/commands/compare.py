"""`marin compare`: runs held against each other, on the terminal, as JSON, or as a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from marin.cli.output import print_json, print_table, say, say_folded
from marin.process.files import write_whole
from marin.process.waiting import waiting
from marin.record.root import open_root

if TYPE_CHECKING:
    from marin.plugins.lab.comparing.compared import Compared


@click.command()
@click.argument("names", metavar="[RUN]...", nargs=-1)
@click.option("--sweep", metavar="ID", help="The runs of a sweep (`marin train -m`); latest is the newest one.")
@click.option("--experiment", metavar="NAME", help="The runs of a registered experiment, arm by arm.")
@click.option(
    "--filter",
    "filters",
    metavar="EXPRESSION",
    multiple=True,
    help="Of these, or of all runs, only those for which it holds, as in `marin ls`.",
)
@click.option(
    "--metric",
    "metrics",
    metavar="NAME",
    multiple=True,
    help="Compare this number: loss, evaluate.pairs_won, tokens_per_second, seconds, …  [default: loss, bits per byte, "
    "train loss, tokens_per_second]",
)
@click.option(
    "--baseline",
    default="",
    metavar="RUN|KEY=VALUE",
    help="What the others are held against.  [default: the first row]",
)
@click.option(
    "--html", "target", type=click.Path(dir_okay=False, path_type=Path), help="Write it as a page with pictures, too."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def compare(
    names: tuple[str, ...],
    sweep: str | None,
    experiment: str | None,
    filters: tuple[str, ...],
    metrics: tuple[str, ...],
    baseline: str,
    target: Path | None,
    as_json: bool,
) -> None:
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
        open_root(), *names, sweep=sweep, experiment=experiment, filters=filters, metrics=metrics, baseline=baseline
    )
    if target is not None:
        from marin.plugins.lab.comparing.page import page
        from marin.provenance.extras import DRAWING, need

        need(*DRAWING)
        with waiting("drawing the page"):
            write_whole(target, page(found))
    if as_json:
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
    if any(told.n > 1 for group in found.groups for told in group.summaries.values()):
        say(text.SPREAD, err=True)
    if rows := text.difference_rows(found):
        say()
        say_folded(f"against {found.baseline}, {found.verdict}: {found.because}")
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
