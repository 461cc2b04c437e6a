"""`marin mlperf`: what a submission to MLPerf training needs beside its log: the contract, the proof of its seeds, MLPerf's own
checkers, and a judgement where they cannot give one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from marin.cli.choice import OneOf
from marin.cli.options import FOLDER, FOLDER_THERE, THERE, argument, flag, option, takes
from marin.cli.output import print_bytes, print_json
from marin.cli.tables import print_fields
from marin.record.root import open_root

SHOWN = 6
"""Lines of a checker's words that a table has, after the first."""


@click.group()
def mlperf() -> None:
    """Print a benchmark's contract, prove where a run's random numbers came from, and check its results.

    The log itself is `marin export --mlperf FILE`; `marin mlperf package` writes the whole folder of a submission.
    """


@dataclass(frozen=True)
class TableOptions:
    """What `marin mlperf table` takes."""

    overrides: tuple[str, ...] = argument("[GROUP=NAME | KEY=VALUE]...", nargs=-1)
    config_json: str | None = option("JSON|FILE", "Values as a JSON object: over the defaults, under the command line.")
    form: str = option(
        None,
        "A README's section, the checker's rules file, or the log's names and values.",
        "--as",
        type=OneOf(["readme", "rules", "log"]),
        default="readme",
        show_default=True,
    )
    page: Path | None = option(
        "FILE",
        "Write the README's section into FILE, between the lines <!-- table --> and <!-- /table -->; print nothing.",
        "--into",
        type=THERE,
    )
    unchecked: bool = flag("Print values that the contract does not allow, too.")
    as_json: bool = flag("Print one JSON object a row.", "--json")


@mlperf.command()
@takes(TableOptions)
def table(options: TableOptions) -> None:
    """Print the hyperparameters of the benchmark grammar_lm, and check the recipe that the arguments name.

    Defaults are those of conf/benchmark/grammar_lm.yaml; --config-json goes over them, the command line over both, as
    for marin train +benchmark=grammar_lm.

    Exit status: 0 the contract holds, 2 a value is not allowed: the message has parameter, constraint and value.

    \b
    Examples:
      marin mlperf table
      marin mlperf table trainer.batch_size=16 --json
      marin mlperf table --as rules > closed_grammar_lm.yaml
      marin mlperf table --into benchmarks/grammar_lm/README.md
    """
    from marin.errors import UsageError
    from marin.plugins.mlperf.benchmark import GRAMMAR_LM, check_closed, rules_file
    from marin.plugins.mlperf.hyperparameters import as_readme, as_rows, into_page, values_of
    from marin.process.files import write_whole
    from marin.recipe.composition import compose, installed_conf

    # The reference is Marin's own, also in a project that has groups of its own.
    defaults = [f"+benchmark={GRAMMAR_LM.name}", *options.overrides]
    recipe = compose(defaults, config_json=options.config_json, conf=installed_conf()).recipe
    if not options.unchecked:
        check_closed(GRAMMAR_LM, recipe, where=GRAMMAR_LM.name)
    if options.page is not None:
        if options.as_json or options.form != "readme":
            raise UsageError(
                "a page gets the section of a README",
                where="--into",
                expected="it alone",
                found="--json" if options.as_json else f"--as {options.form}",
                cure="leave it out",
            )
        text = into_page(options.page.read_text("utf-8"), as_readme(GRAMMAR_LM.table, recipe), where=str(options.page))
        write_whole(options.page, text.encode())
    elif options.as_json:
        for row in as_rows(GRAMMAR_LM.table, recipe):
            print_json(row)
    elif options.form == "readme":
        print_bytes([as_readme(GRAMMAR_LM.table, recipe).encode()])
    elif options.form == "rules":
        print_bytes([rules_file(GRAMMAR_LM).encode()])
    else:
        for name, value in values_of(GRAMMAR_LM.table, recipe).items():
            print_json({"key": name, "value": value})


@mlperf.command()
@click.argument("run", default="latest")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def seeds(run: str, as_json: bool) -> None:
    """Say where every random number of RUN came from, and fail if the record has another seed than the one.

    Held against each other: the recipe of each phase, what each attempt of the training started from, every field called
    seed in the configuration of any step, and the event that drew the seed. A verification (marin verify) executes all
    train steps from that seed alone; whether one passed is said.

    Exit status: 0 one seed and no other, 1 the record has another.

    \b
    Examples:
      marin mlperf seeds
      marin mlperf seeds latest --json
    """
    from dataclasses import asdict

    from marin.history.runs import load, resolve
    from marin.plugins.mlperf.seeding import seeding

    history = open_root().history()
    found = seeding(history, load(history, resolve(history, run)))
    if as_json:
        print_json(
            {
                "seed": found.seed,
                "source": found.source,
                "event": found.drawn_at,
                "generator": found.generator,
                "derived": found.derived,
                "attempts": found.attempts,
                "places": [asdict(place) for place in found.places],
                "data": [asdict(place) for place in found.data],
                "replayed": found.replayed,
            }
        )
        return
    drawn = f"drawn from the system, event {found.drawn_at}" if found.drawn_at is not None else "given in the recipe"
    print_fields(
        [
            ("seed", f"{found.seed} ({drawn})"),
            ("generator", found.generator),
            ("derived", ", ".join(found.derived)),
            ("recorded", f"in {found.attempts} attempts and {len(found.places)} configurations, and no other"),
            ("data", ", ".join(f"{place.path}={place.seed}" for place in found.data) or "no seed of its own"),
            ("replayed", "yes: a verification executed all train steps from it" if found.replayed else "not yet"),
        ]
    )


@mlperf.command()
@click.argument("run", default="latest")
@click.option("--name", default="system", show_default=True, metavar="NAME", help="What the system is called.")
def system(run: str, name: str) -> None:
    """Print what is left to say of the machine that trained RUN: the form of a submission's system description.

    What the run recorded is not asked for. Fill in every field (N/A: there is none of it) and give the file to
    `marin mlperf package --system`.

    \b
    Examples:
      marin mlperf system > system.json
    """
    import json

    from marin.plugins.mlperf.benchmark import Submission
    from marin.plugins.mlperf.package import entry
    from marin.plugins.mlperf.system import form, recorded_fields

    root = open_root()
    one = entry(root, run)
    print_bytes(
        [(json.dumps(form(recorded_fields(one.run, Submission(), name, root.verifier.name)), indent=2) + "\n").encode()]
    )


@dataclass(frozen=True)
class PackageOptions:
    """What `marin mlperf package` takes."""

    dest: Path = argument(type=FOLDER)
    roots: tuple[str, ...] = argument("ROOT...", nargs=-1, required=True)
    name: str = option("NAME", "What the system is called: letters, digits, - and _.", required=True)
    file: Path | None = option(
        "FILE.json",
        "What is said of the system beside the record (`marin mlperf system` prints the form).",
        "--system",
        type=THERE,
    )
    submission: str | None = option(
        "JSON|FILE", "org, platform, division (open or closed), status (onprem, cloud, research), poc_name, poc_email."
    )
    folder: Path = option(
        "DIR",
        "The benchmark's own folder, with its scripts and its README.",
        "--benchmark-folder",
        type=FOLDER_THERE,
        default="benchmarks/grammar_lm",
        show_default=True,
    )


@mlperf.command()
@takes(PackageOptions)
def package(options: PackageOptions) -> None:
    """Write a submission into the new folder DEST: systems, benchmarks, results.

    It is laid out as MLCommons' rules want it. Each ROOT has one result, its latest run; `run_and_time.sh RESULT.txt`
    leaves it in RESULT.root. All are of the same hyperparameters, code, lock and processor, and no two have one seed.
    Prints the folder of the organization.

    \b
    Examples:
      marin mlperf package submission/ results/*.root --name two-cores --system system.json \\
          --submission '{"org": "a-lab", "division": "closed"}'
    """
    from marin.cli.output import say
    from marin.plugins.mlperf.benchmark import GRAMMAR_LM, submission_of
    from marin.plugins.mlperf.package import entry, write_package
    from marin.plugins.mlperf.system import stated_in

    given, stated = submission_of(options.submission), stated_in(options.file)
    entries = [entry(open_root(location)) for location in options.roots]
    say(str(write_package(entries, options.dest, GRAMMAR_LM, given, options.name, stated, options.folder)))


@mlperf.command()
@click.argument(
    "results",
    nargs=-1,
    required=True,
    metavar="RESULT...",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object an answer.")
@click.pass_context
def check(ctx: click.Context, results: tuple[Path, ...], as_json: bool) -> None:
    """Let MLPerf's own checkers judge the logs RESULT: compliance of each, seeds of all.

    Reference points are asked for where these are as many results as a submission has (four). The checkers are those of the
    installed mlperf-logging (docker/requirements-mlperf.lock). They know MLCommons' benchmarks alone, so they run in a copy of
    the package with grammar_lm registered: its rules files, its reference points, and its name in the lists. Beside them it
    says whether a line would pass for another with them, and whether two results have one seed.

    Exit status: 0 every checker that was asked passes, 1 one fails, 2 wrong usage, 3 mlperf-logging is not installed.

    \b
    Examples:
      marin mlperf check result_0.txt
      marin mlperf check results/result_*.txt --json
    """
    from marin.cli.tables import print_table
    from marin.plugins.mlperf.benchmark import GRAMMAR_LM
    from marin.plugins.mlperf.checkers import check_results

    found = check_results(results, GRAMMAR_LM)
    if as_json:
        for answer in found:
            print_json(answer.as_json())
    else:
        rows = []
        for answer in found:
            first, *others = answer.said or ("",)
            rows.append([answer.checker, answer.file, answer.outcome, first])
            rows += [["", "", "", line] for line in others[:SHOWN]]
            if len(others) > SHOWN:
                rows.append(["", "", "", f"and {len(others) - SHOWN} lines more: --json has all"])
        print_table(("checker", "result", "answer", ""), rows, empty="")
    ctx.exit(any(answer.outcome == "FAIL" for answer in found))


@dataclass(frozen=True)
class JudgeOptions:
    """What `marin mlperf judge` takes."""

    result: Path = argument(type=THERE)
    run: str = argument(default="latest")
    vkey: tuple[str, ...] = option("KEY", "Trust this verifier key.  [default: yours, `marin trust`]", multiple=True)
    no_record: bool = flag("Record no verdicts.")
    as_json: bool = flag("Print one JSON object.", "--json")


@mlperf.command()
@takes(JudgeOptions)
@click.pass_context
def judge(ctx: click.Context, options: JudgeOptions) -> None:
    """Judge whether the log RESULT is what RUN recorded, and whether a replay gives the same bits.

    For a result that is faster than its reference points, which MLPerf's RCP checker refuses whatever the reason. The log is
    exported anew and compared line by line, times too; what differs is said. What the submitters say of themselves is taken from
    RESULT. Then marin verify replays every phase of the run.

    Exit status: 0 all passes, 1 the log or a replay fails, 2 wrong usage, 3 something is unavailable, unsupported or was
    not run, and nothing failed, 4 something is partial, and nothing worse.

    \b
    Examples:
      marin mlperf judge result_0.txt
      marin --root result_0.root mlperf judge result_0.txt
      marin --root https://example.org/log mlperf judge result_0.txt 3f9c --vkey 'example.org/log+530d903a+AekyeRrm5...'
    """
    from marin.cli.keys import parse_vkey
    from marin.cli.verifying.verify import finish_alone
    from marin.plugins.mlperf.benchmark import GRAMMAR_LM
    from marin.plugins.mlperf.judgement import judge_result

    keys = [parse_vkey(key) for key in options.vkey]
    found = judge_result(options.result, open_root(), options.run, GRAMMAR_LM, keys, record=not options.no_record)
    finish_alone(ctx, found, as_json=options.as_json)
