"""A submission's whole folder, in the structure of MLCommons' submission rules (training): systems, benchmarks, results.

    ORG/systems/SYSTEM.json
    ORG/benchmarks/grammar_lm/implementations/marin/      the benchmark's folder, its rules file, the contract as a table
    ORG/benchmarks/grammar_lm/SYSTEM/                     README, setup.sh, init_datasets.sh, run_and_time.sh, SYSTEM_marin.json
    ORG/results/SYSTEM/grammar_lm/result_0.txt, ...

Each result is a run of the benchmark in a root of its own; all have the same hyperparameters, code, lock and processor, and no
two the same seed. The README says how anyone replays each of them, under which key.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from marin.errors import UsageError
from marin.execution.phases import chain
from marin.history.run import Run
from marin.history.runs import load, resolve
from marin.plugins.mlperf import system
from marin.plugins.mlperf.benchmark import Benchmark, Submission, rules_file
from marin.plugins.mlperf.hyperparameters import Value, as_readme, values_of
from marin.plugins.mlperf.lines import check_agreed, lines, write_log
from marin.plugins.mlperf.seeding import Seeding, seeding
from marin.record.root import Root

IMPLEMENTATION = "marin"
SCRIPTS = ("setup.sh", "init_datasets.sh", "run_and_time.sh")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")
"""What Git, the checkers and a file system take as a folder."""


@dataclass(frozen=True)
class Entry:
    """One result: the root that has it, its last phase, and where its numbers were drawn."""

    root: Root
    run: Run
    seeds: Seeding


def entry(root: Root, run: str = "latest") -> Entry:
    """The result that ``root`` has."""
    history = root.history()
    view = load(history, resolve(history, run))
    check_agreed(history, view)
    return Entry(root, view, seeding(history, view))


def write_package(
    entries: Sequence[Entry],
    dest: Path,
    benchmark: Benchmark,
    submission: Submission,
    name: str,
    stated: Mapping[str, str],
    folder: Path,
) -> Path:
    """Write the submission into ``dest``, which must not exist; the organization's folder in it.

    Args:
        name: of the system. ``stated``: what is said of it beside the record. ``folder``: the benchmark's own.

    Raises:
        UsageError: the results are not those of one submission, a name or field does not fit, or ``dest`` exists.
    """
    if dest.exists():
        raise UsageError(
            "the folder is there already",
            where=str(dest),
            expected="a new one",
            found="one",
            cure="name another folder, or remove it",
        )
    org = submission.org or (entries[0].root.verifier.name if entries else "")
    for what, word in (("org", org), ("--name", name)):
        if not _NAME.match(word):
            raise UsageError(
                "not a name of a folder",
                where=what,
                expected="up to 64 letters, digits, - and _",
                found=repr(word[:80]),
                cure='as in --submission \'{"org": "a-lab"}\' and --name two-cores',
            )
    if missing := [file for file in (*SCRIPTS, "README.md") if not (folder / file).is_file()]:
        raise UsageError(
            "not a benchmark's folder",
            where=str(folder),
            expected=", ".join(missing),
            found="none",
            cure="name it with --benchmark-folder; in the repository it is benchmarks/grammar_lm",
        )
    _one_submission(entries, benchmark)
    known = system.recorded_fields(entries[0].run, submission, name, org)
    description = system.system_fields(known, stated, where=f"system {name}")
    dest.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".mlperf-", dir=dest.parent) as place:
        base = Path(place) / org
        _write_json(base / "systems" / f"{name}.json", description)
        _implementation(
            base / "benchmarks" / benchmark.name / "implementations" / IMPLEMENTATION, entries, benchmark, folder
        )
        own = base / "benchmarks" / benchmark.name / name
        _write_json(own / f"{name}_{IMPLEMENTATION}.json", _how(entries[0], benchmark))
        _write_text(own / "README.md", _readme(entries, benchmark, name))
        for script in SCRIPTS:
            shutil.copy(folder / script, own / script)
        results = base / "results" / name / benchmark.name
        results.mkdir(parents=True)
        for number, one in enumerate(entries):
            said = lines(one.root.history(), one.run, benchmark, submission, one.seeds, origin=one.root.verifier.name)
            write_log(said, results / f"result_{number}.txt")
        base.parent.rename(dest)
        Path(place).mkdir()  # for anyone who removes it
    return dest / org


def _one_submission(entries: Sequence[Entry], benchmark: Benchmark) -> None:
    """Raises UsageError unless these are the results of one submission."""

    def refuse(what: str, where: str, expected: object, found: object, cure: str) -> UsageError:
        return UsageError(what, where=where, expected=str(expected), found=str(found), cure=cure)

    if len(entries) != benchmark.runs:
        raise refuse(
            "a submission has so many results",
            benchmark.name,
            benchmark.runs,
            len(entries),
            "train as many, each in a root of its own",
        )
    seeds, values = dict[int, str](), _same_values(entries[0], benchmark)
    for one in entries:
        if (other := seeds.get(one.seeds.seed)) is not None:
            raise refuse(
                "two results with one seed",
                f"run {one.run.run}",
                "seeds that differ",
                f"{one.seeds.seed}, as run {other}",
                "a replay is no second result: train another",
            )
        seeds[one.seeds.seed] = one.run.run
        found = _same_values(one, benchmark)
        for name, value in values.items():
            if found[name] != value:
                raise refuse(
                    "results of different settings",
                    f"run {one.run.run}: {name}",
                    value,
                    found[name],
                    "a submission is of one setting",
                )


def _same_values(one: Entry, benchmark: Benchmark) -> dict[str, Value]:
    """What all results of a submission have in common: hyperparameters but for how long it took, code, machine."""
    started, training = one.run.started.body, one.run.training[-1].body
    processor = started.environment.get("processor")
    return {
        **{name: value for name, value in values_of(benchmark.table, one.run.recipe).items() if name != "max_steps"},
        "commit": str(started.code.get("commit", "")),
        "tree": str(started.code.get("tree", "")),
        "lock": str(started.environment.get("lock", "")),
        "processor": str(processor.get("model") if isinstance(processor, dict) else ""),
        "devices": training.devices,
        "device": str(training.device.get("kind", "")),
    }


def _implementation(dest: Path, entries: Sequence[Entry], benchmark: Benchmark, folder: Path) -> None:
    shutil.copytree(folder, dest, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    _write_text(dest / f"closed_{benchmark.name}.yaml", rules_file(benchmark))
    _write_text(dest / "hyperparameters.md", as_readme(benchmark.table, entries[0].run.recipe))


def _how(one: Entry, benchmark: Benchmark) -> dict[str, object]:
    """What was executed, for a machine."""
    return {
        "implementation": IMPLEMENTATION,
        "benchmark": benchmark.name,
        "hyperparameters": values_of(benchmark.table, one.run.recipe),
        "code": {key: one.run.started.body.code.get(key, "") for key in ("commit", "tree", "dirty")},
        "lock": one.run.started.body.environment.get("lock", ""),
    }


def _readme(entries: Sequence[Entry], benchmark: Benchmark, name: str) -> str:
    code = entries[0].run.started.body.code
    rows = []
    for number, one in enumerate(entries):
        runs = ", ".join(run.run for run in chain(one.root.history(), one.run))
        checkpoint = one.root.reader().checkpoint()
        rows.append(
            f"| result_{number}.txt | {one.seeds.seed} | {runs} | `{one.root.verifier}` | {checkpoint.size} | "
            f"`{checkpoint.root.hex()}` |"
        )
    table = "\n".join(rows)
    return f"""# {benchmark.name} on {name}

`setup.sh` makes the environment, `init_datasets.sh FOLDER` the text, `run_and_time.sh RESULT.txt` one result; they belong into
`benchmarks/{benchmark.name}/` of the repository, commit `{code.get("commit", "")}`, tree `{code.get("tree", "")}`.
The contract and the sections that a reference has are in `implementations/{IMPLEMENTATION}/`.

Each result is a run whose record is signed. With the root that the submitter publishes, anyone executes all of its train
steps again and compares every bit:

    marin --root ROOT verify RUN --vkey KEY

| result | seed | runs, the last one is RUN | KEY | log size | log root |
| --- | --- | --- | --- | --- | --- |
{table}
"""


def _write_json(path: Path, value: object) -> None:
    _write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def _write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
