"""`marin verify`: replay a run and judge it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ledger import LedgerError, Malformed, Tampered, Unavailable, Unverified, VerifierKey, WitnessPolicy
from marin.cli.execution import accelerator_type, devices, execution_of, processes, topology
from marin.cli.keys import parse_vkey
from marin.cli.output import agree, print_json, print_table, say
from marin.cli.verifying.sources import ca_option, git_option, policy_option
from marin.errors import UsageError
from marin.process.text import several
from marin.process.waiting import waiting
from marin.provenance import plugins
from marin.recipe.schema import Execution
from marin.recipe.units import human_size
from marin.record.events import STEPS
from marin.record.verdicts import NAMES, SHOWN
from marin.verify.derivation.claims import counted, grouped
from marin.verify.verdict import Report

if TYPE_CHECKING:
    from marin.history.run import Run
    from marin.record.root import Root
    from marin.verify.alone.judgement import Judgement
    from marin.verify.verification import Options, Verification

GIB = 2**30
DOCUMENTS = "marin.documents"
"""Who judges what brings its own evidence."""
WITHOUT_EXECUTION = ("ledger", "artifacts")
"""The verdicts for which no code of a run is executed."""


@click.command()
@click.argument("run", metavar="RUN", default="")
@click.option("--only", metavar="NAMES", help=f"Some of the verdicts, by commas: {','.join(SHOWN)}.")
@devices
@processes
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="How many segments of the training are replayed at a time, each by a process of its own, or by P together.",
)
@click.option(
    "--address",
    metavar="HOST:PORT",
    help="The Ray cluster whose processes these are; without it a Ray of this "
    "machine, started and ended with the command.",
)
@accelerator_type
@topology
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    metavar="N",
    help="Replay N segments, N shards of each phase of a collection, N requests of each evaluation, drawn by the log's root.",
)
@click.option("--steps", metavar="A:B", help="Replay the segments that hold train steps A to B-1.")
@click.option(
    "--since",
    metavar="WHEN",
    help="Replay the segments recorded from event WHEN on: an index, a time, or last "
    "(your last verification that passed).",
)
@click.option("--follow", is_flag=True, help="Replay segments as a running training records them, until it ends.")
@click.option(
    "--stop", is_flag=True, help="With --follow: ask the training to stop at the first thing that does not hold."
)
@click.option(
    "--back", is_flag=True, help="With --follow: ask it to go back to the last state that held, and go on from there."
)
@click.option("--fresh", is_flag=True, help="Reuse nothing from your own earlier verifications.")
@click.option(
    "--screen/--no-screen",
    default=None,
    help="Look at the recorded states first, without replay; a sample then "
    "begins with suspicious segments. It reads all states.  [default: with --sample, where the root is on this machine]",
)
@click.option("--explain", is_flag=True, help="On failure, find the first operation that differs between two settings.")
@click.option(
    "--setting",
    "settings",
    multiple=True,
    metavar="S",
    help="With --explain: a setting to compare, twice; devices=N,isa=NAME,flag=--XLA_FLAG=V,threads=N,python=PATH.",
)
@click.option(
    "--experiment",
    type=click.Path(path_type=Path, dir_okay=False, exists=True, resolve_path=True),
    metavar="FILE",
    help="Your own experiment file: its step is executed where the run began with what such a step made.",
)
@click.option(
    "--by",
    default="",
    metavar="COMMAND",
    help="Your own command that makes a run of one's own loop (marin.start_run) again: executed twice, and compared.",
)
@click.option("--vkey", multiple=True, metavar="KEY", help="Trust this verifier key.  [default: yours, `marin trust`]")
@policy_option
@ca_option
@git_option
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the report as one self-contained page, and beside it the picture that a link to it shows.",
)
@click.option(
    "--record-in",
    metavar="R",
    help="The root whose log gets the verdicts.  [default: the verified one; the local one if that can only be read]",
)
@click.option(
    "--no-record",
    is_flag=True,
    help="Leave nothing behind: append to no ledger, take nothing from one, and move no pin.",
)
@click.option(
    "--at-commit",
    metavar="REF",
    help="Verify with the commit and the lock that the run names, built in a Git worktree after a yes, if it is in the "
    "history of REF (REMOTE/BRANCH is fetched).",
)
@click.option("--yes", is_flag=True, help="With --at-commit: do not ask.")
@click.option(
    "--allow",
    multiple=True,
    metavar="NAME",
    help="Open something to the verification of a root that is not yours: network:HOST, read:PATH, or unconfined.",
)
@click.option(
    "--memory",
    type=click.FloatRange(min=0.5),
    metavar="GIB",
    help="Memory that such a verification may take in each process.  [default: this machine's]",
)
@click.option(
    "--hours",
    type=click.FloatRange(min=0.001),
    default=24.0,
    show_default=True,
    metavar="H",
    help="Time limit of such a verification.",
)
@click.option(
    "--bundle",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Judge the evaluations that DIR brings, by the model in the Hugging Face folder RUN: no root is needed.",
)
@click.option(
    "--dossier",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Judge every file and field of the dossier in DIR, in the place of RUN: no root is needed.",
)
@click.option(
    "--unlearning",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Judge whether a certificate of unlearning is what its log says, in the place of RUN: no root is needed.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def verify(
    ctx: click.Context,
    run: str,
    only: str | None,
    devices: int,
    processes: int,
    workers: int,
    address: str | None,
    accelerator_type: str,
    topology: str,
    sample: int | None,
    steps: str | None,
    since: str | None,
    follow: bool,
    stop: bool,
    back: bool,
    fresh: bool,
    screen: bool | None,
    explain: bool,
    settings: Sequence[str],
    experiment: Path | None,
    by: str,
    vkey: Sequence[str],
    policy: Path | None,
    ca: Path | None,
    git: Sequence[Path],
    html: Path | None,
    record_in: str | None,
    no_record: bool,
    at_commit: str | None,
    yes: bool,
    allow: Sequence[str],
    memory: float | None,
    hours: float,
    bundle: Path | None,
    dossier: Path | None,
    unlearning: Path | None,
    as_json: bool,
) -> None:
    """Replay RUN and judge it: ledger, artifacts, data, training, model, evaluation.

    RUN is an id, a unique beginning of one, or latest; or the address of one that `marin publish` wrote, as a browser has it
    (any page of the run; the front means the newest). Each verdict is
    PASS (all of it established), PARTIAL (nothing wrong in what was looked at), FAIL, NOT_RUN, UNAVAILABLE (something
    needed is missing) or UNSUPPORTED (this machine cannot honour the arithmetic contract). Below them stands how
    many claims of the run were established, and by what; `marin -v verify` and --json have each of them, with its digests.

    A root that your key did not sign is verified in a process of its own, without network, which reads that root and the
    installed software and writes to a temporary folder and a cache of its own; --allow opens more by name.

    Exit status: 0 all that was asked for passes, 1 one fails, 2 wrong usage, 3 something is unavailable, unsupported or
    was not run, and nothing failed, 4 something is partial, and nothing worse.

    \b
    Examples:
      marin verify latest
      marin verify latest --only ledger,artifacts --json
      marin verify 3f9c --devices 8
      marin verify latest --workers 4
      marin verify latest --only training --sample 3
      marin verify latest --explain --setting devices=1 --setting devices=8
      marin verify latest --follow --stop
      marin verify model/ --bundle bundle/ --vkey 'example.org/log+530d903a+AekyeRrm5...'
      marin verify --dossier dossier/ --vkey 'example.org/log+530d903a+AekyeRrm5...'
      marin verify --unlearning unlearned.intoto.jsonl --vkey 'example.org/log+530d903a+AekyeRrm5...'
      marin --root https://example.org/log verify latest --vkey 'example.org/log+530d903a+AekyeRrm5...'
    """
    if dossier is not None or unlearning is not None:
        if run or None not in (dossier, unlearning):
            raise UsageError(
                "what is judged without a root names its run",
                where="marin verify",
                expected="--dossier or --unlearning alone",
                found=run or "both",
            )
        keys = [parse_vkey(key) for key in vkey]
        check_alone(ctx, "--dossier" if dossier is not None else "--unlearning")
        finish_alone(ctx, _judged_alone(dossier, unlearning, keys, policy), as_json=as_json)
    if not run:
        raise UsageError(
            "nothing to verify",
            where="marin verify",
            expected="RUN",
            found="none",
            cure="name a run, or latest; or a dossier with --dossier, a certificate with --unlearning",
        )
    run = published(run)
    if html is not None and not html.parent.is_dir():
        raise UsageError(
            "a page cannot be written there",
            where="--html",
            expected="a file in a folder",
            found=str(html.parent),
            cure="make the folder first, or name another",
        )
    if html is not None and not os.access(html.parent, os.W_OK):
        raise Unavailable(
            "a page cannot be written there",
            where="--html",
            expected="a folder that this user may write to",
            found=str(html.parent),
            cure="give this user the rights, or name another place",
        )
    wanted, covered = _names(only), _steps(steps)
    check_following(ctx)
    with waiting("loading what judges"):
        from marin.data.reach import EVERYTHING
        from marin.process.confinement import Limits, physical_memory
        from marin.record.root import open_root
        from marin.record.trust.evidence import sources
        from marin.record.trust.pins import Pins, default_pins
        from marin.runners.places import place_of
        from marin.verify import sealed
        from marin.verify.amount import amount
        from marin.verify.segments.explanation import Setting  # what follows reads the whole root: not for --help
        from marin.verify.segments.sampling import Scope
        from marin.verify.verification import Options, Verification, unreadable

    if address is not None and workers == processes == 1:
        raise UsageError(
            "one worker is this process itself",
            where="--address",
            expected="--workers or --processes with it",
            found="--workers 1",
            cure="say how many workers of the cluster replay, for example --workers 8",
        )
    if address is None and (accelerator_type or topology):
        raise UsageError(
            "only a cluster has machines of several kinds",
            where="--accelerator-type" if accelerator_type else "--topology",
            expected="--address and --workers with it",
            found="this machine alone",
            cure="name the cluster, or leave it out: what is here is used",
        )
    if settings and (len(settings) != 2 or not explain):
        raise UsageError(
            "two settings are compared by --explain",
            where="--setting",
            expected="--explain and two settings",
            found=f"{len(settings)}",
            cure="for example --explain --setting devices=1 --setting devices=8",
        )
    chosen = [Setting.parse(text, devices) for text in settings]
    trusted, allowed = [parse_vkey(key) for key in vkey], sealed.Allowed.parse(allow)
    told = sealed.seal()
    mine = None if told is not None or bundle is not None else sealed.opened_own(trusted)
    foreign = mine is None
    if foreign and (stop or back):
        option = "--back" if back else "--stop"
        raise plugins.named(*FOLLOWER, option).no_key(option, open_root(), "no key of yours")
    if foreign and told is None and not allowed.unconfined:
        refuse_outside(address, at_commit, by)
        limits = Limits(int((memory or physical_memory() / GIB) * GIB), int(hours * 3600))
        location = open_root().absolute if bundle is None else None
        recorded_in = None if no_record or bundle is not None else own_root(open_root(), False, record_in)
        front = ["-q"] if ctx.find_root().params.get("quiet") else ["-v"] * ctx.find_root().params.get("verbose", 0)
        arguments = forwarded(ctx, ("html",))
        brought = () if bundle is None else (bundle, run)
        named = [str(Path(path).resolve()) for path in (policy, ca, *git, *brought) if path is not None]
        named += [str(experiment.parent)] if experiment is not None else []
        allowed = replace(allowed, named=tuple(named))
        ctx.exit(
            sealed.verify(
                arguments,
                location,
                run=run,
                front=front,
                allowed=allowed,
                own=recorded_in,
                html=html,
                limits=limits,
                shared=workers > 1 or processes > 1,
                executes=explain or not set(wanted or NAMES) <= set(WITHOUT_EXECUTION),
            )
        )
    remarks: tuple[str, ...] = ("NOT CONFINED: as asked",) if foreign and told is None else ()
    if bundle is not None:
        check_alone(ctx, "--bundle")
        verify_bundle = plugins.named(DOCUMENTS, "bundle", "--bundle")
        if told is not None:
            remarks = sealed.enter(told)[0].lines()
        mine_to_ask = sources(policy).policy
        report = verify_bundle(bundle, Path(run), trusted, Execution(devices=devices), sample, mine_to_ask)
        finish(ctx, replace(report, remarks=(*remarks, *report.remarks)), None, html=html, as_json=as_json)
        return
    if told is not None:
        held, own = sealed.enter(told)
        root, remarks = sealed.untouched(open_root()), held.lines()
    else:
        root = mine or open_root()
        own = None if no_record else own_root(root, mine is not None, record_in)
    far = "://" in root.location
    looks = (sample is not None and not far) if screen is None else screen
    try:
        options = Options(
            execution=execution_of(
                devices=devices,
                processes=processes,
                runner="local" if address is None and processes == 1 else "ray",
                address=address,
                accelerator_type=accelerator_type,
                topology=topology,
            ),
            trusted=trusted,
            pins=Pins(default_pins()),
            remember=not no_record,
            sources=sources(policy, ca, git),
            workers=workers,
            scope=Scope(sample=sample, steps=covered),
            own=own,
            fresh=fresh,
            since=since,
            screen=looks,
            reach=allowed.reach() if foreign else EVERYTHING,
            experiment=experiment,
            by=by,
        )
        if follow:
            verification = followed(root, run, options, wanted or NAMES, stop=stop, back=back)
        else:
            verification = Verification(root, run, options)
        if far and not follow:
            size = amount(
                verification.run, wanted or NAMES, verification.selection, workers=workers, screen=options.screen
            )
            say(
                f"reads about {human_size(size)} of the store at {root.location}, what is asked for and no more",
                err=True,
            )
    except (Malformed, Tampered, Unverified) as error:
        finish(ctx, unreadable(root, run, trusted, error, wanted or NAMES), None, html=html, as_json=as_json)
        return
    if at_commit is not None and verification.environment.reasons(STEPS):
        known = verification.report(WITHOUT_EXECUTION)  # by the verifier that is installed, before the run's own one
        if known.exit_code() == 1:
            finish(ctx, known, verification.run, html=html, as_json=as_json)
        verify_at_commit = plugins.named("marin.judges", "commit", "--at-commit")
        ctx.exit(
            verify_at_commit(
                verification.environment,
                at_commit,
                root.location,
                run,
                forwarded(ctx, ("allow", "memory", "hours", "record_in", "no_record")),
                agreed=yes or agree,
            )
        )
    several = address is not None or workers * processes > 1
    with (
        place_of("ray").held(address, cpus=workers * processes) if several else nullcontext()
    ):  # one for data and training
        report = verification.report(wanted)
        report = replace(report, remarks=(*remarks, *report.remarks))
        if explain:
            report = verification.explain(report, chosen, covered)
    if own is None and not no_record:
        say(
            "the verdicts are recorded nowhere: the key of this log is not here, and there is no ledger of your own; "
            "`marin init` makes one, --record-in names one, --no-record says that this is meant",
            err=True,
        )
    elif own is not None:
        try:
            report = verification.record(report, own)
            if own.absolute != root.absolute:
                say(f"recorded in {own.location}", err=True)
        except LedgerError as error:
            say(f"the verdicts were not recorded: {error}", err=True)
    finish(ctx, report, verification.judged_run(report, own), html=html, as_json=as_json, log=own or root)


FOLLOWER = ("marin.judges", "follow")
"""The plugin that follows a run."""
FOLLOWED_WITHOUT = (
    "sample",
    "steps",
    "since",
    "screen",
    "explain",
    "settings",
    "by",
    "bundle",
    "dossier",
    "unlearning",
    "at_commit",
    "no_record",
)
"""Options that a follower has no use for: it judges everything, in order, and records it."""


def check_following(ctx: click.Context) -> None:
    """Refuse what does not go with --follow, or not without it.

    Raises:
        UsageError: some option does not.
    """
    named = [name for name, _ in _given(ctx)]
    lone = [name for name in named if name in ("stop", "back") and "follow" not in named]
    wrong = lone or ([name for name in FOLLOWED_WITHOUT if name in named] if "follow" in named else [])
    if wrong:
        option = {"settings": "--setting"}.get(wrong[0], "--" + wrong[0].replace("_", "-"))
        raise UsageError(
            "only a follower asks a training" if lone else "a follower judges everything in order, and records it",
            where=option,
            expected="--follow with it" if lone else f"--follow without {option}",
            found=f"{option} alone" if lone else f"--follow {option}",
        )


def followed(root: Root, run: str, options: Options, wanted: Sequence[str], *, stop: bool, back: bool) -> Verification:
    """Follow a run to its end; the verification that has the last word.

    Raises:
        UsageError: nothing could record what is established, or the training is not ours to stop.
    """
    follower = plugins.named(*FOLLOWER, "--follow")
    if options.own is None:
        raise UsageError(
            "what a follower establishes is recorded, and there is no log for it",
            where="--follow",
            expected="the key of this log, or a ledger of your own",
            found="neither",
            cure="make one with `marin init`, or name one with --record-in",
        )
    found: Verification = follower.follow(
        root, run, options, only=wanted, stop=stop, back=back, say=lambda line: say(line, err=True)
    )
    return found


def published(run: str) -> str:
    """The run that an address means, whose root is then the publication at the address before it; anything else as it is.

    What a browser shows of a publication is what is taken: ``https://HOST/PATH/RUN``, or the address of any page of the
    run, with a fragment, a query, ``index.html`` or a slash at the end; the front of a publication means its newest run.
    """
    if "://" not in run:
        return run
    scheme, _, place = run.partition("://")
    host, *parts = [part for part in re.split(r"[?#]", place, maxsplit=1)[0].split("/") if part]
    if RUNS in parts[:-1]:
        at = len(parts) - 1 - parts[::-1].index(RUNS)
        root, name = parts[:at], parts[at + 1]
    elif parts and parts[-1] in FRONTS:
        root, name = parts[:-1], "latest"
    elif parts and (not run.endswith("/") or re.fullmatch(r"[a-z2-7]{8}", parts[-1])):
        root, name = parts[:-1], parts[-1]
    else:
        root, name = parts, "latest"
    os.environ["MARIN_ROOT"] = f"{scheme}://{'/'.join([host, *root])}"
    return name


RUNS, FRONTS = "runs", ("index.html", "check.html")
"""Where the pages of runs lie in a publication, and the pages that are of all of it."""


def check_alone(ctx: click.Context, what: str) -> None:
    """Refuse evidence that is asked of a whole log alone.

    Raises:
        UsageError: some was asked for.
    """
    for name, _ in _given(ctx):
        if name in ("ca", "git", "at_commit"):
            option = "--" + name.replace("_", "-")
            raise UsageError(
                "that is asked of a whole log",
                where=option,
                expected=f"{what} with --vkey and --policy",
                found=f"{what} with {option}",
                cure="verify the run in its root, or at its address",
            )


def _judged_alone(
    dossier: Path | None, unlearning: Path | None, keys: Sequence[VerifierKey], policy: Path | None
) -> Judgement:
    from marin.record.trust.evidence import sources  # as above: not for --help

    name = "dossier" if unlearning is None else "certificate"
    judge: Callable[[Path | None, Sequence[VerifierKey], WitnessPolicy | None], Judgement] = plugins.named(
        DOCUMENTS, name, f"marin verify, a {name}"
    )
    return judge(dossier if unlearning is None else unlearning, keys, sources(policy).policy)


def finish_alone(ctx: click.Context, found: Judgement, *, as_json: bool) -> NoReturn:
    """Say what was found of something that brings its own evidence, and end with its exit status."""
    if as_json:
        print_json(found.as_json())
    else:
        rows = []
        for name, verdict in found.verdicts.items():
            lines = verdict.lines or ("",)
            rows.append([name, verdict.outcome, lines[0]])
            rows += [["", "", line] for line in lines[1:]]
        print_table(("verdict", found.run, ""), rows, empty="")
    ctx.exit(found.exit_code())


def refuse_outside(address: str | None, at_commit: object, by: str = "") -> None:
    """What a confined process cannot do: use other machines, build another commit's environment, or execute a command."""
    for option, given in (("--address", address), ("--at-commit", at_commit), ("--by", by)):
        if given:
            raise UsageError(
                "a root that is not yours is verified without network",
                where=option,
                expected="--allow unconfined with it",
                found=f"{option} alone",
                cure="add --allow unconfined if you trust who published it with your machine",
            )


def own_root(verified: Root, mine: bool, given: str | None) -> Root | None:
    """The root that gets what is found: the one that is named, the log that the verified one is or is a copy of if it is
    ``mine``, or the local one."""
    from marin.record.homes import home_of
    from marin.record.root import DEFAULT_ROOT, open_root

    if given is not None:
        named = open_root(given)
        named.check_writable()  # said before hours of work
        return named
    if mine and "://" not in verified.location:
        home = home_of(verified.verifier, verified.storage, verified.absolute)
        return verified if home == verified.absolute else open_root(home)
    with suppress(LedgerError):
        here = open_root(DEFAULT_ROOT)
        if mine or here.absolute != verified.absolute:  # somebody else's log gets nothing, whatever key it names
            here.signer()
            return here
    return None


def forwarded(ctx: click.Context, without: Sequence[str]) -> list[str]:
    """The options that were given on this command line, for the same command elsewhere, without those that led
    there."""
    arguments = []
    for name, value in _given(ctx):
        option = {"as_json": "--json", "settings": "--setting"}.get(name, "--" + name.replace("_", "-"))
        if name in ("run", "at_commit", "yes", *without) or value is False:
            continue
        for item in value if isinstance(value, tuple) else (value,):
            arguments += [option] if item is True else [option, str(item)]
    return arguments


def _given(ctx: click.Context) -> list[tuple[str, Any]]:
    """What stands on this command line, by the names of parameters."""
    from_line = click.core.ParameterSource.COMMANDLINE
    return [(name, value) for name, value in ctx.params.items() if ctx.get_parameter_source(name) is from_line]


def finish(
    ctx: click.Context, report: Report, run: Run | None, *, html: Path | None, as_json: bool, log: Root | None = None
) -> None:
    """Print the report, write the page, end with its exit status. ``log``: the one that says who executed what of the
    run."""
    if as_json:
        print_json(report.as_json())
    else:
        print_report(report, details=bool(ctx.find_root().params.get("verbose")))
    if html is not None:  # whatever came of it: the page of an earlier verification must not stay in its place
        with waiting("drawing the page of this verification"):
            plugins.named("marin.pages", "verification", "--html")(html, report, run, log)
    ctx.exit(report.exit_code())


def print_report(report: Report, *, details: bool = True) -> None:
    """Verdicts as a table, then what they are about; without ``details`` claims are counted, but for what contradicts the
    record."""
    for remark in report.remarks:
        say(f"note: {remark}", err=True)
    rows = []
    for name in SHOWN:
        verdict = report.verdict(name)
        lines = verdict.lines or ("",)
        rows.append([name, verdict.outcome, lines[0]])
        rows += [["", "", line] for line in lines[1:]]
    print_table(("verdict", report.run, ""), rows, empty="")
    if report.screening is not None:
        looked = f"{report.screening.segments} of {report.screening.total} segments in {report.screening.seconds:.1f} s"
        say(f"screening: {looked}: {several(len(report.screening.findings), 'findings')}")
        for finding in report.screening.findings[:20]:
            say(finding.describe())
    if report.divergence is not None:
        say(f"first divergence: {report.divergence.describe()}")
    if report.explanation is not None:
        for line in report.explanation.lines:
            say(f"explained: {line}")
    short = [] if details else counted(report.claims)
    for heading, sentences in grouped(report.claims):
        if heading in dict(short):
            continue
        say()
        say(f"{heading}:")
        for line in sentences:
            say(f"  {line}")
    if short:
        say()
        for heading, numbers in short:
            say(f"{heading}: {numbers}")
        say("each of these claims: marin -v verify, or --json")
    if report.event is not None:
        say(f"recorded as event {report.event}", err=True)


def _names(only: str | None) -> tuple[str, ...] | None:
    if only is None:
        return None
    chosen = tuple(name.strip() for name in only.split(",") if name.strip())
    unknown = [name for name in chosen if name not in SHOWN]
    if unknown or not chosen:
        raise UsageError(
            "unknown verdict",
            where="--only",
            expected=", ".join(SHOWN),
            found=", ".join(unknown) or "nothing",
            cure="name some of these, separated by commas",
        )
    return chosen


def _steps(steps: str | None) -> tuple[int, int] | None:
    """``A:B`` as a half-open range of train steps."""
    if steps is None:
        return None
    first, _, end = steps.partition(":")
    if not (first.isdecimal() and end.isdecimal() and int(first) < int(end)):
        raise UsageError(
            "not a range of train steps",
            where="--steps",
            expected="A:B with A below B",
            found=steps,
            cure="for train steps 100 to 199 write 100:200",
        )
    return int(first), int(end)
