"""Public benchmarks on two states of one run of exp005 and on its exported folder, as one table.

    python -m experiments.benchmarks.table SOURCES --limit 20 [--folder ANOTHER-HF-FOLDER]

SOURCES holds the files that experiments/benchmarks/prepare.py names. `marin eval` records every number; `marin verify RUN --only
evaluation` computes them again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from experiments.benchmarks.prepare import prepare
from experiments.exp005_evaluation import STEPS
from marin.errors import DataError, DataMissing, MissingEvidence, StepFailed


def evaluate(sources: Path, out: Path, *, run: str, folder: Path | None, limit: int, pinned: bool = True) -> list[Any]:
    """What `marin eval` says of each subject, as it prints it; files of results lie below ``out``."""
    tasks = ",".join(prepare(sources, out / "tasks", pinned=pinned))
    if folder is None:
        folder = out / "model"
        _marin("export", run, "--hf", str(folder))
    subjects = {"first": (run, "--step", str(STEPS[0])), "last": (run,), "folder": (str(folder),)}
    asked = ("--tasks", tasks, "--task-path", str(out / "tasks"), "--limit", str(limit), "--json")
    return [
        json.loads(_marin("eval", *subject, *asked, "--output_path", str(out / name)))
        for name, subject in subjects.items()
    ]


def _marin(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", "from marin.cli.main import main; main()", *arguments], stdout=subprocess.PIPE, text=True
    )
    if done.returncode:
        raise StepFailed(
            "a command failed", where=f"marin {' '.join(arguments)}", found=f"exit status {done.returncode}"
        )
    return done.stdout


def table(answers: list[Any]) -> str:
    """A line for each number, a column for each subject; paradigms of BLiMP only as their mean."""
    lines = [f"{'task':16} {'metric':32} {'first':>9} {'last':>9} {'folder':>9}"]
    last = answers[1]["results"]
    for task, metrics in last.items():
        for metric in metrics:
            if "," not in metric or task.startswith("blimp_"):
                continue
            values = [answer["results"][task][metric] for answer in answers]
            shown = " ".join(f"{v:9.4f}" if isinstance(v, float) else f"{v!s:>9}" for v in values)
            lines.append(f"{task:16} {metric:32} {shown}")
    lines.append(
        f"{'':16} {'requests, truncated':32} " + " ".join(f"{a['requests']}/{a['truncated']}" for a in answers)
    )
    return "\n".join(lines) + "\n"


def main() -> None:
    """One table, from the command line."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument(
        "sources", type=Path, help="a folder with the files that experiments/benchmarks/prepare.py names"
    )
    asked.add_argument("--run", default="latest", help="the longer training's run (the report names it)")
    asked.add_argument("--folder", type=Path, help="another Hugging Face folder [default: the run's, exported]")
    asked.add_argument("--limit", type=int, default=20)
    asked.add_argument("--out", type=Path, help="keep tasks, results and samples here")
    given = asked.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="benchmarks-") as base:
            out = given.out or Path(base)
            answers = evaluate(given.sources, out, run=given.run, folder=given.folder, limit=given.limit)
    except (DataError, DataMissing, MissingEvidence, StepFailed) as error:
        sys.exit(f"benchmark_table: {error}")
    sys.stdout.write(table(answers))


if __name__ == "__main__":
    main()
