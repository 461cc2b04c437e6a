"""`marin experiment`: begin an experiment, preregister it, and say what its runs bear out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ledger import digest_bytes
from marin.cli.looking.experiments import print_experiments
from marin.cli.options import FILE, FOLDER, argument, flag, option, takes
from marin.cli.output import print_json, say
from marin.cli.tables import print_fields, print_table
from marin.errors import UsageError
from marin.history.runs import History, facts
from marin.kinds.families.experiment import ExperimentReported
from marin.process.files import write_whole
from marin.process.text import several
from marin.record import events
from marin.record.root import Root, open_root

if TYPE_CHECKING:
    from marin.plugins.lab.analysis import Findings
    from marin.plugins.lab.conventions.conventions import Lack
    from marin.preregistration.registration import Registration

NAME = "experiment"


@click.group()
def experiment() -> None:
    """Begin and preregister experiments, and hold their runs against what was registered."""


@experiment.command()
@click.argument("issue", metavar="ISSUE-URL")
@click.argument("title")
@click.option(
    "--folder",
    default="experiments",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    help="Where the file is made.  [default: experiments]",
)
def new(issue: str, title: str, folder: Path) -> None:
    """Make an experiment file for the question of an issue: numbered, runnable, with a place for each field.

    What it holds is a small experiment that works; each TODO is what `marin experiment check` asks for. Prints the
    file's path.

    \b
    Examples:
      marin experiment new https://github.com/OWNER/NAME/issues/12 "Does a slower rate help?"
    """
    from marin.plugins.lab.conventions.conventions import new as make

    say(str(make(folder, issue, title)))


@experiment.command()
@click.argument("files", metavar="[FILE]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--static", is_flag=True, help="Do not ask the ledger: whether the file is registered, and was run.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def check(files: tuple[Path, ...], static: bool, as_json: bool) -> None:
    """Say what experiment files lack: a field, a registration, a run from start to end, or values of their own.

    A file states question, hypothesis, regime, metrics, definition of done and issue in its docstring, and its
    registration; its graph measures every registered arm with every seed. It takes no arguments: it says the same when it is
    loaded twice, in processes with other arguments, environment, working folder and input. The ledger has the registration,
    and a result of every step, of the whole or at its sanity size (`marin run FILE --sanity-only`), as the code is now.
    Without FILE: all of experiments/.

    Exit status: 0 nothing is lacking, 1 something is.

    \b
    Examples:
      marin experiment check experiments/exp001_grammar_scaling.py
      marin experiment check --static
    """
    from marin.plugins.lab.conventions.conventions import NO_ARGUMENTS, check_elsewhere
    from marin.plugins.lab.conventions.conventions import check as examine

    chosen = files or tuple(sorted(Path("experiments").glob("exp*.py")))
    if not chosen:
        raise UsageError(
            "no experiment files",
            where="experiments",
            expected="files named exp*.py",
            found="none",
            cure="name a FILE, or go to the project's folder",
        )
    root = None if static else open_root()
    lacks = {}
    for file in chosen:
        elsewhere = check_elsewhere(file)  # first: it could end this process too, and nothing would be said
        found = examine(file)
        if not any(one.cure == NO_ARGUMENTS for one in found):
            found += elsewhere
        lacks[str(file)] = found + ([] if root is None else [*_not_registered(root, file), *_not_run(root, file)])
    if as_json:
        print_json(
            {
                name: [{"line": one.line, "what": one.what, "cure": one.cure} for one in found]
                for name, found in lacks.items()
            }
        )
    else:
        for name, found in lacks.items():
            for one in found:
                say(f"{name}:{one.line}: {one.what}; {one.cure}")
        say(f"{several(len(chosen), 'files')}, {sum(map(bool, lacks.values()))} of them lack something", err=True)
    if any(lacks.values()):
        raise click.exceptions.Exit(1)


def _not_registered(root: Root, file: Path) -> list[Lack]:
    """Whether the ledger has the registration that the file states."""
    from marin.graph.files import load_experiment
    from marin.plugins.lab.conventions.conventions import Lack
    from marin.preregistration.arms import registrations
    from marin.preregistration.registration import Registration

    stated = getattr(load_experiment(file), NAME, None)
    if not isinstance(stated, Registration):
        return []
    known = [fact.body.registration for fact in registrations(root.history(), stated.name)]
    if known and known[-1] == digest_bytes(stated.document()):
        return []
    what = "the ledger has another registration than it states" if known else "it is not registered in the ledger"
    return [Lack(0, what, f"marin experiment register {file}")]


def _not_run(root: Root, file: Path) -> list[Lack]:
    """Whether the ledger has a result of every step of the file, or of its sanity size."""
    from marin.graph.experiment.sanity import sanity
    from marin.graph.files import load_graph
    from marin.graph.planning import Planner
    from marin.graph.why import explain
    from marin.history.measured import measurements
    from marin.plugins.lab.conventions.conventions import Lack
    from marin.recipe.composition import PRICES, conf_folder
    from marin.recipe.cost import load_prices

    graph, prices = load_graph(file), load_prices(conf_folder() / PRICES)
    measured = measurements(root.history())
    for each in (sanity(graph), graph):
        answers = explain(Planner(each, root), prices, measured, device="here", force=False)
        if all(answer.action == "hit" for answer in answers):
            return []
    return [Lack(0, "as it is now it was not run from start to end", f"marin run {file} --sanity-only")]


@experiment.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Print what would be registered, and append nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def register(file: Path, dry_run: bool, as_json: bool) -> None:
    """Append hypothesis, primary metric, arms, seeds, test, stopping rule and cost cap of FILE, before any run.

    FILE is an experiment file with `experiment = Registration(...)` at its top level. Runs of its arms and seeds cite
    the registration from then on, however they are started. A file with steps that lacks what `marin experiment check`
    sees in it, or any file with a TODO left, is refused: the log keeps what is appended. A changed registration is
    appended beside the old one; the same again is not appended twice.

    \b
    Examples:
      marin experiment register experiments/exp001_grammar_scaling.py
      marin experiment register experiments/exp001_grammar_scaling.py --dry-run
    """
    from marin.plugins.lab.conventions.conventions import check_registration
    from marin.preregistration.arms import registrations
    from marin.preregistration.registration import checked, registered

    root = open_root()
    history = root.history()
    registration = checked(_stated(file), where=f"{file}: {NAME}")
    if lacks := check_registration(file):
        raise UsageError(
            "the file is not ready to be registered",
            where=f"{file}:{lacks[0].line}",
            expected="what marin experiment check asks for: the log keeps a registration forever",
            found="; ".join(one.what for one in lacks)[:500],
            cure=f"{lacks[0].cure}, then marin experiment check {file} --static",
        )
    body = registered(registration, file=file.name, file_digest=digest_bytes(file.read_bytes()))
    known = list(registrations(history, registration.name))
    said = registration.warnings() + _known_results(history, registration) + _cost(history, registration)
    if known and known[-1].body.registration == body.registration:
        index, action = known[-1].index, "present"
    elif dry_run:
        index, action = None, "dry run"
    else:
        root.store().put_bytes(registration.document())
        (receipt,) = root.append([events.draft(body, f"experiment/{registration.name}")])
        index, action = receipt.index, "registered" if not known else "registered again"
    if as_json:
        print_json({"action": action, "event": index, "warnings": said, **events.write(body)})
        return
    for line in said:
        say(f"note: {line}", err=True)
    print_fields(
        [
            ("experiment", registration.name),
            ("hypothesis", registration.hypothesis),
            ("primary", f"{registration.primary.name}, {registration.primary.direction} is better"),
            (
                "arms",
                ", ".join(f"{arm}{' (baseline)' if arm == registration.baseline else ''}" for arm in registration.arms),
            ),
            ("seeds", ", ".join(map(str, registration.seeds))),
            ("test", f"{registration.test}, {registration.alternative}, alpha {registration.alpha:g}"),
            ("stopping", registration.stopping_rule),
            ("registration", body.registration),
            ("event", {"present": f"{index} has it already", "dry run": "none: a dry run"}.get(action, str(index))),
        ]
    )


@dataclass(frozen=True)
class ReportOptions:
    """What `marin experiment report` takes."""

    name: str = argument()
    target: Path | None = option(None, "Write the self-contained page to this file as well.", "--html", type=FILE)
    folder: Path | None = option(
        None, "Write report.md, its plot and its table into this folder, for the issue.", "--markdown", type=FOLDER
    )
    site: str = option("URL", "With --markdown: where `marin site` is published, for links.", default="")
    mlflow: str = option("URL", "With --markdown: where MLflow shows this root.", default="")
    wandb: str = option("URL", "With --markdown: the project of W&B, wandb.ai/ENTITY/PROJECT.", default="")
    no_record: bool = flag("Do not put the report into the store and the ledger.")
    as_json: bool = flag("Print one JSON object.", "--json")


@experiment.command()
@takes(ReportOptions)
def report(options: ReportOptions) -> None:
    """Analyse the runs of the experiment NAME, and say whether what they show is confirmatory.

    Confirmatory means that the registration precedes every result, and that arms and seeds are those registered; what
    deviates is listed. All arms are shown, whatever came out. The report (text, page, table, plot) becomes an
    artifact of the store; while arms or seeds are missing it is the running summary. NAME is a registered experiment, a
    beginning of its name, or its file.

    Exit status: 0 when every arm has every seed, 3 when the experiment is incomplete.

    \b
    Examples:
      marin experiment report exp001
      marin experiment report exp001 --html report.html
      marin experiment report exp001 --markdown so-far/
      marin experiment report exp001 --json
    """
    from marin.history.projection.identity import Ids
    from marin.plugins.lab import report as reports
    from marin.plugins.lab.analysis import examine
    from marin.preregistration.registration import find

    root = open_root()
    history = root.history()
    findings = examine(root, find(history, Path(options.name).stem if options.name.endswith(".py") else options.name))
    made = dict(reports.files(findings)) if options.target or options.folder or not options.no_record else {}
    artifact = None if options.no_record else _record(root, history, findings, made)
    if options.target is not None:
        write_whole(options.target, made["report.html"])
    if options.folder is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
        for kept in ("plot.svg", "table.csv"):
            write_whole(options.folder / kept, made[kept])
        places = reports.Places(
            _address(options.site), _address(options.mlflow), _address(options.wandb), Ids(root.verifier.name)
        )
        write_whole(options.folder / "report.md", reports.markdown(findings, places).encode())
    if options.as_json:
        print_json(reports.as_json(findings) | {"artifact": artifact})
    else:
        _print_findings(findings, artifact)
    if findings.verdict == "incomplete":
        raise click.exceptions.Exit(3)


def _address(given: str) -> str:
    """An address that a link may have: http or https, nothing that would end the link."""
    address = given if "://" in given or not given else f"https://{given}"
    if address and not re.fullmatch(r"https?://[^\s()<>\[\]]+", address):
        raise UsageError(
            "not an address",
            where=given[:100],
            expected="http://HOST or https://HOST",
            found=repr(given[:100]),
            cure="give it without spaces and brackets",
        )
    return address


@experiment.command("ls")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array.")
def list_experiments(as_json: bool) -> None:
    """List what is registered, with the newest report on it.

    \b
    Examples:
      marin experiment ls
      marin ls experiments --json
    """
    print_experiments(open_root(), as_json=as_json)


def _stated(file: Path) -> Registration:
    """The registration that the file states; it is the user's own code, named on the command line."""
    from marin.graph.files import load_experiment
    from marin.preregistration.registration import Registration

    stated = getattr(load_experiment(file), NAME, None)
    if not isinstance(stated, Registration):
        raise UsageError(
            "the file states no registration",
            where=str(file),
            expected=f"{NAME} = Registration(...) at its top level",
            found="nothing of that name" if stated is None else type(stated).__name__,
            cure="see docs/statistics.md for what one holds",
        )
    return stated


def _known_results(history: History, registration: Registration) -> list[str]:
    """Runs of these arms and seeds that are there already: their results cannot confirm anything."""
    from marin.preregistration.arms import registers, runs_with_recipes
    from marin.preregistration.registration import registered

    body = registered(registration, file="", file_digest="")
    known = sum(registers(body, recipe, started.body.pipeline) for started, recipe in runs_with_recipes(history))
    return (
        [f"{known} runs of these arms and seeds are in the ledger already: what they show is exploratory"]
        if known
        else []
    )


def _cost(history: History, registration: Registration) -> list[str]:
    """What it is estimated to cost, and whether the cap allows it."""
    from marin.history.measured import measurements
    from marin.pipeline.stages import PIPELINE
    from marin.recipe.composition import PRICES, conf_folder
    from marin.recipe.cost import estimate, load_prices, totals, work_of
    from marin.recipe.units import human_time

    measured, cap = measurements(history), registration.cost_cap
    prices = load_prices(conf_folder() / PRICES)
    one = totals(
        estimate(step.name, work_of(step.name, recipe), prices, cap.device, measured)
        for recipe in registration.arms.values()
        for step in PIPELINE.steps
    )
    count = len(registration.seeds)
    seconds, price = (one.seconds or 0.0) * count, (one.price or 0.0) * count
    said = [f"about {human_time(seconds)} on {cap.device}, {one.flops * count:.2g} FLOPs, {price:.2f} {one.currency}"]
    over = [
        name
        for name, limit, value in (
            ("seconds", cap.seconds, seconds),
            ("flops", cap.flops, one.flops * count),
            ("price", cap.price, price),
        )
        if limit is not None and value > limit
    ]
    return said + [f"the estimate is above the cost cap in {', '.join(over)}"] * bool(over)


def _record(root: Root, history: History, findings: Findings, made: dict[str, bytes]) -> str:
    """Put the report into the store, and its name into the ledger unless the newest report of the experiment is the
    same."""
    import tempfile

    body = findings.registration.body
    with tempfile.TemporaryDirectory(prefix="marin-report-") as folder:
        for name, data in made.items():
            (Path(folder) / name).write_bytes(data)
        artifact = root.store().put_tree(Path(folder)).digest
    newest = None
    for fact in facts(history, ExperimentReported, stream=f"experiment/{body.experiment}"):
        newest = fact.body.artifact
    if newest != artifact:
        reported = ExperimentReported(
            experiment=body.experiment,
            registration=body.registration,
            verdict=findings.verdict,
            supported=findings.supported,
            deviations=[line[:500] for line in findings.deviations[:50]],
            artifact=artifact,
            runs=[result.run for result in findings.results[:1000]],
        )
        root.append([events.draft(reported, f"experiment/{body.experiment}")])
    return artifact


def _print_findings(findings: Findings, artifact: str | None) -> None:
    from marin.plugins.lab import report as reports

    print_fields(reports.heading(findings))
    say()
    print_table(reports.ARMS, reports.arm_rows(findings), empty="no arms")
    say()
    print_table(
        reports.COMPARISONS,
        reports.comparison_rows([*findings.primary, *findings.secondary]),
        empty="nothing to compare yet",
    )
    for title, lines in (("deviations", findings.deviations), ("notes", findings.notes)):
        say()
        say(f"{title}: {'none' if not lines else ''}".rstrip())
        for line in lines:
            say(f"  {line}")
    if artifact is not None:
        say()
        say(f"report  {artifact}")
