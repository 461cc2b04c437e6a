"""`marin diff`: where two runs part."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ledger import LedgerError
from marin.cli.output import print_json, say
from marin.cli.tables import print_table, say_folded, shortened
from marin.history.table.beside import LAST_LOSS
from marin.history.table.comparable import beside
from marin.process.text import number_text
from marin.process.waiting import waiting
from marin.provenance.extras import absent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from marin.history.run import Run
    from marin.verify.segments.difference import Comparison


BITS = "bits_per_byte"
OUTCOMES = ("evaluate.loss", "evaluate.perplexity", BITS, LAST_LOSS)
"""What came out of a run, in the order in which somebody asks."""
CAUSES, CONSEQUENCES = 12, 2
"""So many lines are shown of the first difference, and of each that may only follow from it."""


@click.command()
@click.argument("one", metavar="RUN")
@click.argument("other", metavar="RUN")
@click.option("--all", "whole", is_flag=True, help="Every line of every difference, digests whole.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def diff(ctx: click.Context, one: str, other: str, whole: bool, as_json: bool) -> None:
    """Name the first difference of two runs, in the order of causes.

    What came out of both stands first, bits per byte where they follow from what is recorded, and beside a number why it
    cannot be compared (other held-out text, tokenizer, context, code). Then these are asked in turn:
    recipe, code, environment, data, program, step, tensor. Of those after the first difference, which may only follow
    from it, the beginning is shown, and tensors are counted: their names follow from the recipe by jax, which takes
    seconds. Only records are compared; nothing is executed. Processor, cores and number of devices are told as notes: they
    never change a bit.

    Exit status: 0 no difference, 1 there is one, 2 wrong usage, 3 none found and not everything could be compared.

    \b
    Examples:
      marin diff 3f9c latest
      marin diff 3f9c 81aa --json
    """
    from marin.history.runs import load, resolve
    from marin.record.root import open_root
    from marin.verify.segments.difference import compare_runs  # reads the whole root: not for --help

    root = open_root()
    history, store = root.history(), root.store()
    runs = [load(history, resolve(history, name)) for name in (one, other)]

    if not as_json:
        print_outcomes(runs)

    def blob(digest: str) -> bytes | None:
        try:
            return store.read(digest)
        except LedgerError:
            return None

    def names(run: Run) -> list[str] | None:
        if absent("jax", "levanter"):
            return None
        with waiting("importing jax and Levanter, which know the names of tensors"):
            from marin.verify.jax.tensors import trace_names

            return trace_names(run.recipe, int(run.steps["tokenizer"].metrics["vocab_size"]))

    for run in runs:
        if run.completed is None:
            say(f"note: run {run.run} is {run.status}: compared as far as it is recorded", err=True)
    found = compare_runs(runs[0], runs[1], blob, names, whole=whole or as_json)
    if as_json:
        told = outcomes(runs)
        apart = {name: said for name, values in told.items() if (said := list(_beside_number(runs, name, values)))}
        print_json({**found.as_json(), "outcomes": told, "not_comparable": apart})
    else:
        print_comparison(found, whole=whole)
    ctx.exit(found.exit_code())


def outcomes(runs: Sequence[Run]) -> dict[str, list[float | None]]:
    """What came out of each run, by the name of the number; what none of them has is left out."""
    numbers = [{LAST_LOSS: run.metrics.get("loop.loss_last"), **run.metrics, BITS: run.bits_per_byte} for run in runs]
    found = {name: [of.get(name) for of in numbers] for name in OUTCOMES}
    return {name: values for name, values in found.items() if any(value is not None for value in values)}


def print_outcomes(runs: Sequence[Run]) -> None:
    """A row for each number that came out, before the causes."""
    rows = [
        [
            name,
            *("" if value is None else number_text(value) for value in values),
            ", ".join(filter(None, (_change(values), *_beside_number(runs, name, values)))),
        ]
        for name, values in outcomes(runs).items()
    ]
    if rows:
        print_table(("", *(run.run for run in runs), ""), rows, empty="")
        say()


def _beside_number(runs: Sequence[Run], name: str, values: Sequence[float | None]) -> Sequence[str]:
    return () if None in values else beside(runs[1], runs[0], name)


def _change(values: Sequence[float | None]) -> str:
    one, other = values
    if one is None or other is None:
        return ""
    return "same" if one.hex() == other.hex() else f"{other - one:+.4g}"


def print_comparison(found: Comparison, *, whole: bool = False) -> None:
    """A row for each line of each answer, then the first difference in one line. ``whole``: none is left out."""
    for note in found.notes:
        say(f"note: {note}", err=True)
    rows = []
    for answer in found.answers:
        most = len(answer.lines) if whole else CAUSES if answer is found.first else CONSEQUENCES
        lines = [line if whole else shortened(line) for line in answer.lines[:most]] or [""]
        rows.append([answer.question, answer.outcome, lines[0]])
        rows += [["", "", line] for line in lines[1:]]
        if len(answer.lines) > most:
            rows.append(["", "", f"and {len(answer.lines) - most} more (--all)"])
    print_table(("", "", f"{found.one} against {found.other}"), rows, empty="")
    if found.first is not None:
        more = f", and {len(found.first.lines) - 1} more" if len(found.first.lines) > 1 else ""
        say_folded(f"first difference: {found.first.question}: {shortened(found.first.lines[0])}{more}")
