"""`marin verify`: replay a run and judge it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

import ledger
from marin.cli.execution import execution_of, of_accelerator, of_topology, on_devices, on_processes
from marin.cli.keys import parse_vkey
from marin.cli.options import FILE, FOLDER, argument, flag, option, takes
from marin.cli.output import agree, print_json, say
from marin.cli.tables import print_table
from marin.cli.verifying.places import FRONT, OF_A_SITE, RUNS, RunAddress, folder_of, run_address
from marin.cli.verifying.sources import ca_option, git_option, policy_option
from marin.errors import UsageError
from marin.history.runs import LATEST, History, run_ids
from marin.process.text import several
from marin.process.waiting import waiting
from marin.provenance import plugins
from marin.recipe.schema import Execution
from marin.recipe.units import human_size
from marin.record.attestation import PAGES
from marin.record.events import STEPS
from marin.record.trust.homes import VKEY
from marin.record.verdicts import NAMES, SHOWN
from marin.verify.derivation.claims import count_claims, group_claims
from marin.verify.verdict import Report, Verdict, judge_safely

if TYPE_CHECKING:
    from marin.history.run import Run
    from marin.record.root import Root
    from marin.verify.alone.judgement import Judgement
    from marin.verify.verification import Options, Verification

GIB = 2**30
DOCUMENTS = "marin.documents"
"""Who judges what brings its own evidence."""
SHOWN_PAGES = "pages"
"""The verdict on what a publication shows."""
_BARE = re.compile(r"(\S+?):? sha256:[0-9a-f]{64}")
_WHOLE = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{52}\b")
WITHOUT_EXECUTION = ("ledger", "artifacts")
"""The verdicts for which no code of a run is executed."""


@dataclass(frozen=True)
class VerifyOptions:
    """What `marin verify` takes."""

    run: str = argument("RUN", default="")
    only: str | None = option("NAMES", f"Some of the verdicts, by commas: {','.join((*SHOWN, 'pages'))}.")
    devices: int = on_devices()
    processes: int = on_processes()
    workers: int = option(
        None,
        "How many segments of the training are replayed at a time, each by a process of its own, or by P together.",
        least=1,
        default=1,
        show_default=True,
    )
    address: str | None = option(
        "HOST:PORT",
        "The Ray cluster whose processes these are; without it they are of this machine, and end with the command.",
    )
    accelerator_type: str = of_accelerator()
    topology: str = of_topology()
    sample: int | None = option(
        "N",
        "Replay N segments, N shards of each phase of a collection, N requests of each evaluation, drawn by the log's root.",
        least=1,
    )
    steps: str | None = option("A:B", "Replay the segments that hold train steps A to B-1.")
    since: str | None = option(
        "WHEN",
        "Replay the segments recorded from event WHEN on: an index, a time, or last "
        "(your last verification that passed).",
    )
    follow: bool = flag("Replay segments as a running training records them, until it ends.")
    stop: bool = flag("With --follow: ask the training to stop at the first thing that does not hold.")
    back: bool = flag("With --follow: ask it to go back to the last state that held, and go on from there.")
    fresh: bool = flag("Reuse nothing from your own earlier verifications.")
    screen: bool | None = option(
        None,
        "Look at the recorded states first, without replay; a sample then "
        "begins with suspicious segments. It reads all states.  [default: with --sample, where the root is on this machine]",
        "--screen/--no-screen",
        default=None,
    )
    explain: bool = flag("On failure, find the first operation that differs between two settings.")
    settings: Sequence[str] = option(
        "S",
        "With --explain: a setting to compare, twice; devices=N,isa=NAME,flag=--XLA_FLAG=V,threads=N,python=PATH.",
        "--setting",
        multiple=True,
    )
    experiment: Path | None = option(
        "FILE",
        "Your own experiment file: its step is executed where the run began with what such a step made.",
        type=click.Path(path_type=Path, dir_okay=False, exists=True, resolve_path=True),
    )
    by: str = option(
        "COMMAND",
        "Your own command that makes a run of one's own loop (marin.start_run) again: executed twice, and compared.",
        default="",
    )
    vkey: Sequence[str] = option("KEY", "Trust this verifier key.  [default: yours, `marin trust`]", multiple=True)
    policy: Path | None = policy_option()
    ca: Path | None = ca_option()
    git: tuple[Path, ...] = git_option()
    html: Path | None = option(
        None,
        "Write the report as one self-contained page, and beside it the picture that a link to it shows.",
        type=FILE,
    )
    record_in: str | None = option(
        "R",
        "The root whose log gets the verdicts.  [default: the verified one; the local one if that can only be read]",
    )
    no_record: bool = flag("Leave nothing behind: append to no ledger, take nothing from one, and move no pin.")
    at_commit: str | None = option(
        "REF",
        "Verify with the commit and the lock that the run names, built in a Git worktree after you confirm, if it is in the "
        "history of REF (REMOTE/BRANCH is fetched).",
    )
    yes: bool = flag("With --at-commit: do not ask.")
    allow: Sequence[str] = option(
        "NAME",
        "Open something to the verification of a root that is not yours: network:HOST, read:PATH, or unconfined.",
        multiple=True,
    )
    memory: float | None = option(
        "GIB",
        "Memory that such a verification may take in each process.  [default: this machine's]",
        type=click.FloatRange(min=0.5),
    )
    hours: float = option(
        "H", "Time limit of such a verification.", type=click.FloatRange(min=0.001), default=24.0, show_default=True
    )
    bundle: Path | None = option(
        "DIR",
        "Judge the evaluations that DIR brings, by the model in the Hugging Face folder RUN: no root is needed.",
        type=FOLDER,
    )
    dossier: str | None = option(
        "DIR",
        "Judge every file and field of the dossier in DIR, a folder or an address, in the place of RUN: no root is needed.",
    )
    unlearning: Path | None = option(
        "FILE",
        "Judge whether a certificate of unlearning is what its log says, in the place of RUN: no root is needed.",
        type=FILE,
    )
    as_json: bool = flag("Print one JSON object.", "--json")


@click.command()
@takes(VerifyOptions)
@click.pass_context
def verify(ctx: click.Context, options: VerifyOptions) -> None:
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
    run = options.run
    if options.dossier is not None or options.unlearning is not None:
        if run or None not in (options.dossier, options.unlearning):
            raise UsageError(
                "what is judged without a root names its run",
                where="marin verify",
                expected="--dossier or --unlearning alone",
                found=run or "both",
            )
        keys = [parse_vkey(key) for key in options.vkey]
        check_alone(ctx, "--dossier" if options.dossier is not None else "--unlearning")
        finish_alone(ctx, _judged_alone(options, keys), as_json=options.as_json)
    if not run:
        raise UsageError(
            "nothing to verify",
            where="marin verify",
            expected="RUN",
            found="none",
            cure="name a run, or latest; or a dossier with --dossier, a certificate with --unlearning",
        )
    # From here on RUN is a run of a root: an address has named that root by now.
    place = RunAddress(run) if options.bundle is not None else _run_address(run)
    run = place.run
    if place.place:
        if (judge_site := site_judge(place.place)) is not None:
            check_alone(ctx, "a site")
            keys = [parse_vkey(key) for key in options.vkey]
            finish_alone(ctx, judge_site(ledger.open_storage(place.place), keys, place.page), as_json=options.as_json)
        os.environ["MARIN_ROOT"] = place.place  # the publication there
    if options.html is not None and not options.html.parent.is_dir():
        raise UsageError(
            "a page cannot be written there",
            where="--html",
            expected="a file in a folder",
            found=str(options.html.parent),
            cure="make the folder first, or name another",
        )
    if options.html is not None and not os.access(options.html.parent, os.W_OK):
        raise ledger.Unavailable(
            "a page cannot be written there",
            where="--html",
            expected="a folder that this user may write to",
            found=str(options.html.parent),
            cure="give this user the rights, or name another place",
        )
    wanted, pages, covered = *_names(options.only), _steps(options.steps)
    check_following(ctx)
    with waiting("loading what judges"):
        from marin.data.reach import EVERYTHING
        from marin.process.confinement import Limits, physical_memory
        from marin.record.root import open_root
        from marin.record.trust.evidence import sources
        from marin.record.trust.pins import Pins, default_pins
        from marin.runners.places import place_of
        from marin.runners.reservation import available_gpus
        from marin.verify import sealed
        from marin.verify.amount import amount
        from marin.verify.segments.explanation import Setting  # what follows reads the whole root: not for --help
        from marin.verify.segments.sampling import Scope
        from marin.verify.verification import LogAsRead, Options, Verification, unreadable

    if options.address is not None and options.workers == options.processes == 1:
        raise UsageError(
            "one worker is this process itself",
            where="--address",
            expected="--workers or --processes with it",
            found="--workers 1",
            cure="say how many workers of the cluster replay, for example --workers 8",
        )
    if options.address is None and (options.accelerator_type or options.topology):
        raise UsageError(
            "only a cluster has machines of several kinds",
            where="--accelerator-type" if options.accelerator_type else "--topology",
            expected="--address and --workers with it",
            found="this machine alone",
            cure="name the cluster, or leave it out: what is here is used",
        )
    if options.settings and (len(options.settings) != 2 or not options.explain):
        raise UsageError(
            "two settings are compared by --explain",
            where="--setting",
            expected="--explain and two settings",
            found=f"{len(options.settings)}",
            cure="for example --explain --setting devices=1 --setting devices=8",
        )
    chosen = [Setting.parse(text, options.devices) for text in options.settings]
    trusted, allowed = [parse_vkey(key) for key in options.vkey], sealed.Allowed.parse(options.allow)
    # Whose log it is decides where it is judged: under a key of one's own here, anything else in a process that can harm nothing.
    told = sealed.seal()
    mine = None if told is not None or options.bundle is not None else sealed.opened_own(trusted)
    foreign = mine is None
    if foreign and (options.stop or options.back):
        word = "--back" if options.back else "--stop"
        raise plugins.load_plugin(*FOLLOWER, word).no_key(word, open_root(), "no key of yours")
    if foreign and told is None and not allowed.unconfined:
        refuse_outside(options.address, options.at_commit, options.by)
        limits = Limits(int((options.memory or physical_memory() / GIB) * GIB), int(options.hours * 3600))
        location = open_root().absolute if options.bundle is None else None
        recorded_in = (
            None if options.no_record or options.bundle is not None else own_root(open_root(), False, options.record_in)
        )
        front = ["-q"] if ctx.find_root().params.get("quiet") else ["-v"] * ctx.find_root().params.get("verbose", 0)
        arguments = forwarded(ctx, ("html",))
        brought = () if options.bundle is None else (options.bundle, run)
        named = [
            str(Path(path).resolve())
            for path in (options.policy, options.ca, *options.git, *brought)
            if path is not None
        ]
        named += [str(options.experiment.parent)] if options.experiment is not None else []
        allowed = replace(allowed, named=tuple(named))
        ctx.exit(
            sealed.verify(
                arguments,
                location,
                run=run,
                asked=f"{place.place}/{place.page}#{run}" if place.page else run,
                front=front,
                allowed=allowed,
                own=recorded_in,
                html=options.html,
                limits=limits,
                shared=options.processes > 1 or (options.workers > 1 and available_gpus() > 0),
                executes=options.explain or not set(wanted or NAMES) <= set(WITHOUT_EXECUTION),
            )
        )
    end = partial(finish, ctx, html=options.html, as_json=options.as_json)
    remarks: tuple[str, ...] = ("NOT CONFINED: as asked",) if foreign and told is None else ()
    if options.bundle is not None:
        check_alone(ctx, "--bundle")
        verify_bundle = plugins.load_plugin(DOCUMENTS, "bundle", "--bundle")
        if told is not None:
            remarks = sealed.enter(told)[0].lines()
        mine_to_ask = sources(options.policy).policy
        report = verify_bundle(
            options.bundle, Path(run), trusted, Execution(devices=options.devices), options.sample, mine_to_ask
        )
        end(replace(report, remarks=(*remarks, *report.remarks)), None)
    if told is not None:
        held, own = sealed.enter(told)
        root, remarks = sealed.read_only_root(open_root()), held.lines()
    else:
        root = mine or open_root()
        own = None if options.no_record else own_root(root, mine is not None, options.record_in)
    # Screening reads every recorded state, which from a remote store is more than the sample itself.
    far = "://" in root.location
    looks = (options.sample is not None and not far) if options.screen is None else options.screen
    try:
        terms = Options(
            execution=execution_of(
                devices=options.devices,
                processes=options.processes,
                runner="local" if options.address is None and options.processes == 1 else "ray",
                address=options.address,
                accelerator_type=options.accelerator_type,
                topology=options.topology,
            ),
            trusted=trusted,
            pins=Pins(default_pins()),
            remember=not options.no_record,
            sources=sources(options.policy, options.ca, options.git),
            workers=options.workers,
            scope=Scope(sample=options.sample, steps=covered),
            own=own,
            fresh=options.fresh,
            since=options.since,
            screen=looks,
            reach=allowed.reach() if foreign else EVERYTHING,
            experiment=options.experiment,
            by=options.by,
        )
        if options.follow:
            verification = followed(root, run, terms, wanted or NAMES, stop=options.stop, back=options.back)
        else:
            read = LogAsRead.of(root, terms)
            run = newest_published(root, read.history) if place.page and run == LATEST else run
            verification = Verification(root, run, terms, read=read)
        if far and not options.follow:
            size = amount(
                verification.run, wanted or NAMES, verification.selection, workers=options.workers, screen=terms.screen
            )
            reads = f"reads about {human_size(size)} of the store at {root.location}, what is asked for and no more"
            say(reads, err=True)
    except (ledger.Malformed, ledger.Tampered, ledger.Unverified) as error:
        end(unreadable(root, run, trusted, error, wanted or NAMES), None)
    # What the run brings is executed last: a log or bytes that do not hold are said before its code is built.
    if options.at_commit is not None and verification.environment.reasons(STEPS):
        known = verification.report(WITHOUT_EXECUTION)  # by the verifier that is installed, before the run's own one
        if known.exit_code() == 1:
            end(known, verification.run)
        verify_at_commit = plugins.load_plugin("marin.judges", "commit", "--at-commit")
        rest = forwarded(ctx, ("allow", "memory", "hours", "record_in", "no_record"))
        status = verify_at_commit(
            verification.environment, options.at_commit, root.location, run, rest, agreed=options.yes or agree
        )
        ctx.exit(status)
    on_ray = options.address is not None or options.processes > 1
    with (
        place_of("ray").held(options.address, cpus=options.workers * options.processes) if on_ray else nullcontext()
    ):  # one for data and training
        report = verification.report(wanted)
        shown = judged_pages(verification, place.page) if pages else None
        unseen = ("the page at this address was not looked at: --only pages does",) if place.page and not pages else ()
        report = replace(report, remarks=(*remarks, *unseen, *report.remarks), pages=shown)
        if options.explain:
            report = verification.explain(report, chosen, covered)
    if own is None and not options.no_record:
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
        except ledger.LedgerError as error:
            say(f"the verdicts were not recorded: {error}", err=True)
    end(report, verification.judged_run(report, own), log=own or root)


FOLLOWER = ("marin.judges", "follow")
"""The plugin that follows a run."""
PARTIAL_OPTIONS = ("sample", "steps", "since", "screen", "explain", "settings")
FOLLOWED_WITHOUT = (*PARTIAL_OPTIONS, "by", "bundle", "dossier", "unlearning", "at_commit", "no_record")
"""Options that a follower has no use for: it judges everything, in order, and records it."""


def check_following(ctx: click.Context) -> None:
    """Refuse what does not go with --follow, or not without it.

    Raises:
        UsageError: some option does not.
    """
    named = [name for name, _ in _options_on_line(ctx)]
    lone = [name for name in named if name in ("stop", "back") and "follow" not in named]
    wrong = lone or ([name for name in FOLLOWED_WITHOUT if name in named] if "follow" in named else [])
    if wrong:
        option = _word(ctx, wrong[0])
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
    follower = plugins.load_plugin(*FOLLOWER, "--follow")
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


def _run_address(run: str) -> RunAddress:
    """Of a name or an address; one without a slash at its end may be that of a root, as a browser shows it."""
    place, whole = run_address(run), folder_of(run)
    if isinstance(whole, str) and not place.page and any(map(ledger.open_storage(whole).exists, (VKEY, *OF_A_SITE))):
        return run_address(f"{whole}/")
    return place


def newest_published(root: Root, history: History) -> str:
    """The newest run with a page at this address: of others of its log the files are not there."""
    shown = (run for run in reversed(run_ids(history)) if root.storage.exists(f"{RUNS}/{run}/{FRONT}"))
    return next(shown, LATEST)


def site_judge(place: str) -> Callable[..., Judgement] | None:
    """What judges the pages at ``place``, where these are a site, which has no log beside it."""
    storage = ledger.open_storage(place)
    if storage.exists(VKEY) or not any(map(storage.exists, OF_A_SITE)):
        return None
    found: Callable[..., Judgement] = plugins.load_plugin(DOCUMENTS, "site", "a site")
    return found


def judged_pages(verification: Verification, page: str) -> Verdict | None:
    """The verdict on the pages beside the log that was verified; None where there are none."""
    read, run = verification.read, verification.run.run
    if not any(verification.root.storage.exists(name) for name in (PAGES, f"{RUNS}/{run}/{FRONT}")):
        return None
    judge = plugins.load_plugin("marin.judges", "pages", "the pages of a publication")
    return judge_safely(lambda: judge(verification.root, run, read.reader, read.history, page))


def check_alone(ctx: click.Context, what: str) -> None:
    """Refuse evidence that is asked of a whole log alone.

    Raises:
        UsageError: some was asked for.
    """
    for name, _ in _options_on_line(ctx):
        if name in ("ca", "git", "at_commit"):
            option = _word(ctx, name)
            raise UsageError(
                "that is asked of a whole log",
                where=option,
                expected=f"{what} with --vkey and --policy",
                found=f"{what} with {option}",
                cure="verify the run in its root, or at its address",
            )


def _judged_alone(options: VerifyOptions, keys: Sequence[ledger.VerifierKey]) -> Judgement:
    from marin.record.trust.evidence import sources  # as above: not for --help

    name = "certificate" if options.dossier is None else "dossier"
    judge: Callable[..., Judgement] = plugins.load_plugin(DOCUMENTS, name, f"marin verify, a {name}")
    place = options.unlearning if options.dossier is None else folder_of(options.dossier)
    return judge(place, keys, sources(options.policy).policy)


def finish_alone(ctx: click.Context, found: Judgement, *, as_json: bool) -> NoReturn:
    """Say what was found of something that brings its own evidence, and end with its exit status."""
    if as_json:
        print_json(found.as_json())
    else:
        _print_verdicts(found.run, found.verdicts.items(), details=bool(ctx.find_root().params.get("verbose")))
    ctx.exit(found.exit_code())


def refuse_outside(address: str | None, at_commit: object, by: str = "") -> None:
    """What a confined process cannot do: use other machines, build another commit's environment, or execute a command."""
    for word, given in (("--address", address), ("--at-commit", at_commit), ("--by", by)):
        if given:
            raise UsageError(
                "a root that is not yours is verified without network",
                where=word,
                expected="--allow unconfined with it",
                found=f"{word} alone",
                cure="add --allow unconfined if you trust who published it with your machine",
            )


def own_root(verified: Root, mine: bool, given: str | None) -> Root | None:
    """The root that gets what is found: the one that is named, the log that the verified one is or is a copy of if it is
    ``mine``, or the local one."""
    from marin.record.root import DEFAULT_ROOT, open_root
    from marin.record.trust.homes import home_of

    if given is not None:
        named = open_root(given)
        named.check_writable()  # said before hours of work
        return named
    if mine and "://" not in verified.location:
        home = home_of(verified.verifier, verified.storage, verified.absolute)
        return verified if home == verified.absolute else open_root(home)
    with suppress(ledger.LedgerError):
        here = open_root(DEFAULT_ROOT)
        if mine or here.absolute != verified.absolute:  # somebody else's log gets nothing, whatever key it names
            here.signer()
            return here
    return None


def forwarded(ctx: click.Context, without: Sequence[str]) -> list[str]:
    """The options that were given on this command line, for the same command elsewhere, without those that led
    there."""
    arguments = []
    words = {item.name: (item.opts[-1], item.secondary_opts) for item in ctx.command.params}
    for name, value in _options_on_line(ctx):
        word, opposite = words[name]
        if name in ("run", "at_commit", "yes", *without):
            continue
        if isinstance(value, bool):
            arguments += [word] if value else opposite
        else:
            for item in value if isinstance(value, tuple) else (value,):
                arguments += [word, str(item)]
    return arguments


def _word(ctx: click.Context, name: str) -> str:
    """How the option of this parameter is written."""
    return next(item.opts[-1] for item in ctx.command.params if item.name == name)


def _options_on_line(ctx: click.Context) -> list[tuple[str, Any]]:
    """What stands on this command line, by the names of parameters."""
    from_line = click.core.ParameterSource.COMMANDLINE
    return [(name, value) for name, value in ctx.params.items() if ctx.get_parameter_source(name) is from_line]


def finish(
    ctx: click.Context, report: Report, run: Run | None, *, html: Path | None, as_json: bool, log: Root | None = None
) -> NoReturn:
    """Print the report, write the page, end with its exit status. ``log``: the one that says who executed what of the
    run."""
    if as_json:
        print_json(report.as_json())
    else:
        print_report(report, details=bool(ctx.find_root().params.get("verbose")))
    if html is not None:  # whatever came of it: the page of an earlier verification must not stay in its place
        with waiting("drawing the page of this verification"):
            plugins.load_plugin("marin.pages", "verification", "--html")(html, report, run, log)
    ctx.exit(report.exit_code())


def _print_verdicts(run: str, verdicts: Iterable[tuple[str, Verdict]], *, details: bool) -> None:
    """One row a line of a verdict; without ``details`` those that pass are :func:`brief`."""
    rows = []
    for name, verdict in verdicts:
        lines = verdict.lines if details or verdict.outcome != "PASS" else brief(verdict.lines)
        rows += [[name, verdict.outcome, line] for line in lines[:1] or ("",)]
        rows += [["", "", line] for line in lines[1:]]
    print_table(("verdict", run, ""), rows, empty="")


def brief(lines: Sequence[str]) -> Sequence[str]:
    """What a verdict that passes says, where digests are not asked for: things with nothing but a digest in one line, of
    what else is said twelve digits."""
    bare = [found[1] for line in lines if (found := _BARE.fullmatch(line))]
    rest = [_WHOLE.sub(r"\1", line) for line in lines if not _BARE.fullmatch(line)]
    return [f"{', '.join(bare)}: each has its recorded digest", *rest] if bare else rest


def print_report(report: Report, *, details: bool = True) -> None:
    """Verdicts as a table, then what they are about; without ``details`` claims are counted, but for what contradicts the
    record."""
    for remark in report.remarks:
        say(f"note: {remark}", err=True)
    verdicts = [(name, report.verdict(name)) for name in SHOWN]
    shown = [*verdicts, ("pages", report.pages)] if report.pages is not None else verdicts
    _print_verdicts(report.run, shown, details=details)
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
    short = [] if details else count_claims(report.claims)
    for heading, sentences in group_claims(report.claims):
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


def _names(only: str | None) -> tuple[tuple[str, ...] | None, bool]:
    """The verdicts that were asked for (None: those on a run that are always), and whether the one on its pages was."""
    if only is None:
        return None, True
    chosen = tuple(name.strip() for name in only.split(",") if name.strip())
    unknown = [name for name in chosen if name not in (*SHOWN, SHOWN_PAGES)]
    if unknown or not chosen:
        raise UsageError(
            "unknown verdict",
            where="--only",
            expected=", ".join((*SHOWN, SHOWN_PAGES)),
            found=", ".join(unknown) or "nothing",
            cure="name some of these, separated by commas",
        )
    return tuple(name for name in chosen if name != SHOWN_PAGES), SHOWN_PAGES in chosen


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
