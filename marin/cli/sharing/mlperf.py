"""`marin mlperf`: what a submission to MLPerf training needs beside its log: the contract, and the proof of its seeds."""

from __future__ import annotations

from pathlib import Path

import click

from marin.cli.choice import OneOf
from marin.cli.output import print_bytes, print_fields, print_json
from marin.record.root import open_root


@click.group()
def mlperf() -> None:
    """Print a benchmark's contract on hyperparameters, and prove where a run's random numbers came from.

    The log itself is `marin export --mlperf FILE`; `marin mlperf package` writes the whole folder of a submission.
    """


@mlperf.command()
@click.argument("overrides", nargs=-1, metavar="[GROUP=NAME | KEY=VALUE]...")
@click.option(
    "--config-json", metavar="JSON|FILE", help="Values as a JSON object: over the defaults, under the command line."
)
@click.option(
    "--as",
    "form",
    type=OneOf(["readme", "rules", "log"]),
    default="readme",
    show_default=True,
    help="A README's section, the checker's rules file, or the log's names and values.",
)
@click.option("--unchecked", is_flag=True, help="Print values that the contract does not allow, too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a row.")
def table(overrides: tuple[str, ...], config_json: str | None, form: str, unchecked: bool, as_json: bool) -> None:
    """Print the hyperparameters of the benchmark grammar_lm, and check the recipe that the arguments name.

    Defaults are those of conf/benchmark/grammar_lm.yaml; --config-json goes over them, the command line over both, as
    for marin train +benchmark=grammar_lm.

    Exit status: 0 the contract holds, 2 a value is not allowed: the message has parameter, constraint and value.

    \b
    Examples:
      marin mlperf table
      marin mlperf table trainer.batch_size=16 --json
      marin mlperf table --as rules > closed_grammar_lm.yaml
    """
    from marin.export.mlperf.benchmark import GRAMMAR_LM, check_closed, rules_file
    from marin.export.mlperf.hyperparameters import as_readme, as_rows, values_of
    from marin.recipe.composition import compose, installed_conf

    # The reference is Marin's own, also in a project that has groups of its own.
    defaults = [f"+benchmark={GRAMMAR_LM.name}", *overrides]
    recipe = compose(defaults, config_json=config_json, conf=installed_conf()).recipe
    if not unchecked:
        check_closed(GRAMMAR_LM, recipe, where=GRAMMAR_LM.name)
    if as_json:
        for row in as_rows(GRAMMAR_LM.table, recipe):
            print_json(row)
    elif form == "readme":
        print_bytes([as_readme(GRAMMAR_LM.table, recipe).encode()])
    elif form == "rules":
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

    from marin.export.mlperf.seeding import seeding
    from marin.history.runs import load, resolve

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

    from marin.export.mlperf.benchmark import Submission
    from marin.export.mlperf.package import entry
    from marin.export.mlperf.system import form, recorded

    root = open_root()
    one = entry(root, run)
    print_bytes(
        [(json.dumps(form(recorded(one.run, Submission(), name, root.verifier.name)), indent=2) + "\n").encode()]
    )


@mlperf.command()
@click.argument("dest", type=click.Path(file_okay=False, path_type=Path))
@click.argument("roots", nargs=-1, required=True, metavar="ROOT...")
@click.option("--name", required=True, metavar="NAME", help="What the system is called: letters, digits, - and _.")
@click.option(
    "--system",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE.json",
    help="What is said of the system beside the record (`marin mlperf system` prints the form).",
)
@click.option(
    "--submission",
    metavar="JSON|FILE",
    help="org, platform, division (open or closed), status (onprem, cloud, research), poc_name, poc_email.",
)
@click.option(
    "--benchmark-folder",
    "folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default="benchmarks/grammar_lm",
    show_default=True,
    metavar="DIR",
    help="The benchmark's own folder, with its scripts and its README.",
)
def package(
    dest: Path, roots: tuple[str, ...], name: str, file: Path | None, submission: str | None, folder: Path
) -> None:
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
    from marin.export.mlperf.benchmark import GRAMMAR_LM, submission_of
    from marin.export.mlperf.package import entry, write_package
    from marin.export.mlperf.system import stated_in

    given, stated = submission_of(submission), stated_in(file)
    entries = [entry(open_root(location)) for location in roots]
    say(str(write_package(entries, dest, GRAMMAR_LM, given, name, stated, folder)))
