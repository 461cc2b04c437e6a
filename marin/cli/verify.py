"""`marin verify`: replay a run and judge it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ledger import LedgerError, Malformed, Tampered, Unverified, VerifierKey
from marin.cli.output import print_json, print_table
from marin.errors import UsageError
from marin.recipe import Execution
from marin.replay.verdict import NAMES, Report

if TYPE_CHECKING:
    from marin.root import Root
    from marin.runs import RunView

STEPS = ("corpus", "tokenizer", "tokens", "train", "evaluate", "export")


@click.command()
@click.argument("run", metavar="RUN")
@click.option("--only", metavar="NAMES", help=f"Some of the verdicts, by commas: {','.join(NAMES)}.")
@click.option("--devices", type=click.IntRange(min=1), default=1, show_default=True,
              help="Devices to replay on; virtual on a CPU.")
@click.option("--workers", type=click.IntRange(min=1), default=1, show_default=True,
              help="Processes that replay training, each segment on its own.")
@click.option("--address", metavar="HOST:PORT", help="The Ray cluster whose processes these are; without it a Ray of this "
              "machine, started and ended with the command.")
@click.option("--sample", type=click.IntRange(min=1), metavar="N", help="Replay N segments, drawn by the log's root.")
@click.option("--steps", metavar="A:B", help="Replay the segments that hold train steps A to B-1.")
@click.option("--since", metavar="WHEN", help="Replay the segments recorded from event WHEN on: an index, a time, or last "
              "(your last verification that passed).")
@click.option("--fresh", is_flag=True, help="Take nothing from your own earlier verifications.")
@click.option("--screen/--no-screen", default=None, help="Look at the recorded states first, without replay; a sample then "
              "begins with suspicious segments.  [default: with --sample]")
@click.option("--explain", is_flag=True, help="On failure, find the first operation that differs between two settings.")
@click.option("--setting", "settings", multiple=True, metavar="S", help="With --explain: a setting to compare, twice; "
              "devices=N,isa=NAME,flag=--XLA_FLAG=V,threads=N,python=PATH.")
@click.option("--vkey", multiple=True, metavar="KEY", help="Trust this verifier key instead of the root's own.")
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), help="Write the report as one self-contained page.")
@click.option("--record-in", metavar="R", help="The root whose log gets the verdicts.  [default: the verified one; the "
              "local one if that can only be read]")
@click.option("--no-record", is_flag=True, help="Append nothing to a ledger, and take nothing from it.")
@click.option("--at-commit", is_flag=True, help="Verify with the commit and the lock that the run names, built in a Git "
              "worktree after a yes.")
@click.option("--yes", is_flag=True, help="With --at-commit: do not ask.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def verify(ctx: click.Context, run: str, only: str | None, devices: int, workers: int, address: str | None,
           sample: int | None, steps: str | None, since: str | None, fresh: bool, screen: bool | None, explain: bool,
           settings: Sequence[str], vkey: Sequence[str], html: Path | None, record_in: str | None, no_record: bool,
           at_commit: bool, yes: bool, as_json: bool) -> None:
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
      marin verify latest --explain --setting devices=1 --setting devices=8
      marin --root https://example.org/log verify latest --vkey 'example.org/log+530d903a+AekyeRrm5...'
    """
    wanted, covered = _names(only), _steps(steps)
    from marin.replay.explanation import Setting  # what follows reads the whole root: not for --help
    from marin.replay.pins import Pins, default_pins
    from marin.replay.sampling import Scope
    from marin.replay.verify import Verification, unreadable
    from marin.root import open_root
    from marin.runners.cluster import one_ray

    if address is not None and workers == 1:
        raise UsageError("one worker is this process itself", where="--address", expected="--workers with it",
                         found="--workers 1", cure="say how many workers of the cluster replay, for example --workers 8")
    if settings and (len(settings) != 2 or not explain):
        raise UsageError("two settings are compared by --explain", where="--setting", expected="--explain and two settings",
                         found=f"{len(settings)}", cure="for example --explain --setting devices=1 --setting devices=8")
    chosen = [Setting.parse(text, devices) for text in settings]
    root, trusted = open_root(), [VerifierKey.parse(key) for key in vkey]
    own = None if no_record else own_root(root, record_in)
    try:
        verification = Verification(root, run, execution=Execution(devices=devices), trusted=trusted,
                                    pins=Pins(default_pins()), workers=workers, scope=Scope(sample=sample, steps=covered),
                                    own=own, fresh=fresh, since=since, screen=sample is not None if screen is None else screen)
    except (Malformed, Tampered, Unverified) as error:
        finish(ctx, unreadable(root, run, trusted, error, wanted), None, html=None, as_json=as_json)
        return
    if at_commit and verification.surroundings.reasons(STEPS):
        from marin.replay.worktree import verify_at_commit

        ctx.exit(verify_at_commit(verification.surroundings, root.location, run, forwarded(ctx),
                                  agreed=yes or (lambda text: click.confirm(text, err=True))))
    with one_ray(address):  # data and training on the same one
        report = verification.report(wanted)
        if explain:
            report = verification.explain(report, chosen, covered)
    if own is None and not no_record:
        click.echo("the verdicts are recorded nowhere: the key of this log is not here, and there is no ledger of your own; "
                   "`marin init` makes one, --record-in names one, --no-record says that this is meant", err=True)
    elif own is not None:
        try:
            report = verification.record(report, own)
        except LedgerError as error:
            click.echo(f"the verdicts were not recorded: {error}", err=True)
    finish(ctx, report, verification.run, html=html, as_json=as_json)


def own_root(verified: Root, given: str | None) -> Root | None:
    """The root that gets what is found: the one that is named, the verified one if its key is here, or the local one."""
    from marin.root import DEFAULT_ROOT, open_root

    if given is not None:
        return open_root(given)
    for root in (verified, DEFAULT_ROOT):
        try:
            opened = open_root(root) if isinstance(root, str) else root
            if "://" not in opened.location or isinstance(root, str):
                opened.signer()
                return opened
        except LedgerError:
            continue
    return None


def forwarded(ctx: click.Context) -> list[str]:
    """The options that were given on this command line, for the same command elsewhere, without those that led there."""
    arguments = []
    for name, value in ctx.params.items():
        option = {"as_json": "--json", "settings": "--setting"}.get(name, "--" + name.replace("_", "-"))
        given = ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if name in ("run", "at_commit", "yes") or not given or value is False:
            continue
        for item in value if isinstance(value, tuple) else (value,):
            arguments += [option] if item is True else [option, str(item)]
    return arguments


def finish(ctx: click.Context, report: Report, run: RunView | None, *, html: Path | None, as_json: bool) -> None:
    """Write the page, print the report, end with its exit status."""
    if html is not None and run is not None:
        from marin.replay.page import page

        html.write_text(page(report, run), encoding="utf-8")
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
    if report.screening is not None:
        looked = f"{report.screening.segments} of {report.screening.total} segments in {report.screening.seconds:.1f} s"
        click.echo(f"screening: {looked}: {len(report.screening.findings)} findings")
        for finding in report.screening.findings[:20]:
            click.echo(finding.describe())
    if report.divergence is not None:
        click.echo(f"first divergence: {report.divergence.describe()}")
    if report.explanation is not None:
        for line in report.explanation.lines:
            click.echo(f"explained: {line}")
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
