"""`marin verify`: replay a run and judge it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from ledger import LedgerError, VerifierKey
from marin.cli.output import print_json, print_table
from marin.errors import UsageError
from marin.recipe import Execution
from marin.replay.verdict import NAMES, Report


@click.command()
@click.argument("run", metavar="RUN")
@click.option("--only", metavar="NAMES", help=f"Some of the verdicts, by commas: {','.join(NAMES)}.")
@click.option("--devices", type=click.IntRange(min=1), default=1, show_default=True,
              help="Devices to replay on; virtual on a CPU.")
@click.option("--workers", type=click.IntRange(min=1), default=1, show_default=True,
              help="Processes that replay training, each segment on its own.")
@click.option("--sample", type=click.IntRange(min=1), metavar="N", help="Replay N segments, drawn by the log's root.")
@click.option("--steps", metavar="A:B", help="Replay the segments that hold train steps A to B-1.")
@click.option("--vkey", multiple=True, metavar="KEY", help="Trust this verifier key instead of the root's own.")
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), help="Write the report as one self-contained page.")
@click.option("--no-record", is_flag=True, help="Do not append the verdicts to the ledger.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def verify(ctx: click.Context, run: str, only: str | None, devices: int, workers: int, sample: int | None,
           steps: str | None, vkey: Sequence[str], html: Path | None, no_record: bool, as_json: bool) -> None:
    """Replay RUN and judge it: ledger, artifacts, data, training, model.

    RUN is an id, a unique beginning of one, or latest. Each verdict is PASS, FAIL, NOT_RUN, UNAVAILABLE (something
    needed is missing) or UNSUPPORTED (this machine cannot honour the arithmetic contract).

    Exit status: 0 all that ran pass, 1 one fails, 2 wrong usage, 3 unavailable or unsupported and nothing failed.

    \b
    Examples:
      marin verify latest
      marin verify latest --only ledger,artifacts --json
      marin verify 3f9c --devices 8
      marin verify latest --workers 4
      marin verify latest --only training --sample 3
    """
    wanted = _names(only)
    covered = _steps(steps)
    from marin.replay.pins import Pins, default_pins  # what follows reads the whole root: not for --help
    from marin.replay.sampling import Scope
    from marin.replay.verify import Verification
    from marin.root import open_root

    verification = Verification(open_root(), run, execution=Execution(devices=devices),
                                trusted=[VerifierKey.parse(key) for key in vkey], pins=Pins(default_pins()),
                                workers=workers, scope=Scope(sample=sample, steps=covered))
    report = verification.report(wanted)
    if not no_record:
        try:
            report = verification.record(report)
        except LedgerError as error:
            click.echo(f"the verdicts were not recorded: {error}", err=True)
    if html is not None:
        from marin.replay.page import page

        html.write_text(page(report, verification.run), encoding="utf-8")
    if as_json:
        print_json(report.as_json())
    else:
        print_report(report)
    ctx.exit(report.exit_code())


def print_report(report: Report) -> None:
    """Verdicts as a table, then what they are about."""
    for remark in report.remarks:
        click.echo(f"note: {remark}", err=True)
    rows = []
    for name in NAMES:
        verdict = report.verdicts[name]
        lines = verdict.lines or ("",)
        rows.append([name, verdict.outcome, lines[0]])
        rows += [["", "", line] for line in lines[1:]]
    print_table(("verdict", report.run, ""), rows, empty="")
    if report.divergence is not None:
        click.echo(f"first divergence: {report.divergence.describe()}")
    if report.event is not None:
        click.echo(f"recorded as event {report.event}", err=True)


def _names(only: str | None) -> tuple[str, ...]:
    if only is None:
        return NAMES
    chosen = tuple(name.strip() for name in only.split(",") if name.strip())
    unknown = [name for name in chosen if name not in NAMES]
    if unknown or not chosen:
        raise UsageError("unknown verdict", where="--only", expected=", ".join(NAMES), found=", ".join(unknown) or "nothing",
                         cure="name some of these, separated by commas")
    return chosen


def _steps(steps: str | None) -> tuple[int, int] | None:
    """``A:B`` as a half-open range of train steps."""
    if steps is None:
        return None
    first, _, end = steps.partition(":")
    if not (first.isdecimal() and end.isdecimal() and int(first) < int(end)):
        raise UsageError("not a range of train steps", where="--steps", expected="A:B with A below B", found=steps,
                         cure="for train steps 100 to 199 write 100:200")
    return int(first), int(end)
