"""MLPerf's own checkers on results of the benchmark: compliance, seeds, reference points.

The package knows MLCommons' benchmarks alone. So the checkers run in a copy of it with this benchmark registered, as a
reference's pull request does that: its rules files, printed from the table of hyperparameters, its reference points, and its
name in the lists. Nothing else of the package is changed, and the installed one is not touched. Beside them stands what a file
would make them mistake (:mod:`marin.plugins.mlperf.result`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from marin.errors import DataError, MissingEvidence
from marin.plugins.mlperf.benchmark import RULESET, Benchmark, rules_file
from marin.plugins.mlperf.lines import LOCK
from marin.plugins.mlperf.result import ResultLine, bytes_of, read_result, repeated_seeds

REFERENCE_POINTS = Path(__file__).parent
"""The folder of rcps_<benchmark>.json, which experiments/exp006_rcp.py measures."""
SECONDS = 600
DIVISIONS: tuple[Literal["closed", "open"], ...] = ("closed", "open")
COMPLIANCE = r"""
import re, runpy
from mlperf_logging.compliance_checker import mlp_compliance as checker

def rules(name, enqueue=checker.enqueue_config):
    if re.fullmatch(r"training_[0-9.]+/[a-z0-9_]+\.yaml", name) is None:
        raise checker.CCError(f"no rules file of the package: {name}")
    enqueue(name)

checker.enqueue_config = rules
runpy.run_module("mlperf_logging.compliance_checker", run_name="__main__", alter_sys=True)
"""
"""The checker executes the rules file whose name has the log's division and benchmark in it: one of the package, and no other."""
SEEDS = """
import sys
from mlperf_logging.package_checker.seed_checker import SeedChecker
passed = SeedChecker(sys.argv[1]).check_seeds(sys.argv[2:])
print("seeds that differ" if passed else "seed checker FAILED")
sys.exit(not passed)
"""
_NOISE = ("INFO", "** Logging output", "---")


@dataclass(frozen=True)
class Answer:
    """What a checker said of ``file``, or of all results together where that is "". NOT_RUN: it was not asked."""

    checker: str
    file: str
    outcome: Literal["PASS", "FAIL", "NOT_RUN"]
    said: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """As ``marin mlperf check --json`` prints it."""
        return asdict(self)


def register(benchmark: Benchmark, folder: Path, package: Path | None = None) -> None:
    """Copy MLPerf's package into ``folder``, with ``benchmark`` registered. ``package``: where it lies, otherwise the installed
    one.

    Raises:
        MissingEvidence: mlperf-logging is not installed, or is another version than the one that is locked.
    """
    copy = folder / "mlperf_logging"
    shutil.copytree(package or _installed(), copy, ignore=shutil.ignore_patterns("__pycache__"))
    name, runs = benchmark.name, f"'{benchmark.name}': {benchmark.runs},"
    rules = copy / "compliance_checker" / f"training_{RULESET}"
    for division in DIVISIONS:
        (rules / f"{division}_{name}.yaml").write_text(rules_file(benchmark, division), "utf-8")
        _replace(rules / f"{division}_common.yaml", "v['value'] in [", f"v['value'] in ['{name}', ")
    points = f"rcps_{name}.json"
    shutil.copy(REFERENCE_POINTS / points, copy / "rcp_checker" / f"training_{RULESET}" / points)
    for file in (copy / "rcp_checker" / "rcp_checker.py", copy / "benchmark_meta.py"):
        _replace(file, "        'llama31_8b': 10,", f"        {runs} 'llama31_8b': 10,")
    version = RULESET.rpartition(".")[0]
    _replace(copy / "benchmark_meta.py", f"'{version}': [", f"'{version}': ['{name}',")


def check_results(results: Sequence[Path], benchmark: Benchmark) -> list[Answer]:
    """What the checkers say: compliance of each result, seeds of all; reference points where these are as many results as a
    submission has. And whether a line of a result would pass for another with them.

    Raises:
        MissingEvidence: mlperf-logging is not installed.
        UsageError: a result is not a file.
    """
    with tempfile.TemporaryDirectory(prefix="marin-mlperf-") as place:
        folder = Path(place)
        register(benchmark, folder)
        (folder / "results").mkdir()
        names, said, lines = {}, dict[str, list[ResultLine]](), []
        for number, result in enumerate(results):
            copy, data = folder / "results" / f"result_{number}.txt", bytes_of(result)
            copy.write_bytes(data)
            names[str(copy)] = str(result)
            said[f"{number + 1}, {result}"], answer = _judged_lines(data, str(result))
            lines.append(answer)

        def ask(checker: str, file: str, *words: object) -> Answer:
            status, lines = _ask(folder, *words)
            for copy, name in names.items():
                lines = [line.replace(copy, name) for line in lines]
            return Answer(checker, file, "FAIL" if status else "PASS", tuple(lines))

        options = ("--usage", "training", "--ruleset", RULESET, "--werror")
        found = [ask("compliance", name, "-c", COMPLIANCE, *options, copy) for copy, name in names.items()]
        found += lines
        seeds = ask("seeds", "", "-c", SEEDS, RULESET, *names)
        if repeated := repeated_seeds(said):
            seeds = Answer("seeds", "", "FAIL", (*repeated, *(seeds.said if seeds.outcome == "FAIL" else ())))
        found.append(seeds)
        if len(results) != benchmark.runs:
            why = f"{len(results)} of {benchmark.runs} results: reference points are for a whole submission"
            return [*found, Answer("reference points", "", "NOT_RUN", (why,))]
        points = ("--rcp_version", RULESET, "--rcp_pass", "full_rcps")
        found.append(ask("reference points", "", "-m", "mlperf_logging.rcp_checker", folder / "results", *points))
        return found


def _judged_lines(data: bytes, result: str) -> tuple[list[ResultLine], Answer]:
    """The lines of a result, and whether each is what it says."""
    try:
        said = read_result(data, result)
    except DataError as error:
        return [], Answer("lines", result, "FAIL", (str(error),))
    mistaken = tuple(one.mistaken for one in said if one.mistaken)
    return said, Answer("lines", result, "FAIL" if mistaken else "PASS", mistaken or ("each is what it says",))


def _ask(folder: Path, *words: object) -> tuple[int, list[str]]:
    """Exit status and words of a program of the copy in ``folder``."""
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, *map(str, words)]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=os.environ | {"PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 1, [f"no answer within {SECONDS} seconds"]
    lines = [line.strip() for line in done.stdout.decode("utf-8", "replace").splitlines()]
    told = [line for line in lines if line and (not line.startswith(_NOISE) or "RCP test" in line)]
    return done.returncode, told if done.returncode else [line.removeprefix("INFO - ") for line in told[-1:]]


def _installed() -> Path:
    found = find_spec("mlperf_logging")
    if found is None or found.origin is None:
        raise MissingEvidence(
            "MLPerf's checkers are not installed",
            where="marin mlperf check",
            expected="mlperf-logging",
            found="no such package",
            cure=f"pip install --no-deps --require-hashes -r {LOCK}",
        )
    return Path(found.origin).parent


def _replace(file: Path, old: str, new: str) -> None:
    text = file.read_text("utf-8")
    if text.count(old) != 1:  # elsewhere it would say something else
        raise MissingEvidence(
            "the benchmark cannot be registered with MLPerf's checkers",
            where=f"mlperf_logging/{file.parent.name}/{file.name}",
            expected=f"{old!r}, once",
            found=f"{text.count(old)} times: another version of the package",
            cure=f"pip install --no-deps --require-hashes -r {LOCK}",
        )
    file.write_text(text.replace(old, new), "utf-8")
