"""`python -m bench.census.naming TRAINING CHANGE`: the first operation of torch with equal operands and unequal results.

Executes a training of torch as it is and under a change, both beside a log of all their operations
(bench/census/tracing.py). Where the two execute other operations (a batch that is cut), it says where these part.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from itertools import zip_longest
from pathlib import Path

from bench.census.cell import PROJECT, TRAININGS, variables
from bench.census.changes import AS_IS, CHANGES, Change
from bench.census.environments import interpreter
from bench.census.table import TRAININGS as TABLE
from bench.census.table import Training


def operations(training: Training, change: Change) -> list[list[str]]:
    """Name, operands and results of every operation."""
    with tempfile.TemporaryDirectory(prefix="census-naming-") as base:
        folder = Path(base, "work")
        folder.mkdir()
        setting = {"folder": str(folder), "corpus": str(PROJECT / "LICENSE"), **change.setting}
        command = [
            *change.prefix,
            str(interpreter(training.environment)),
            str(PROJECT / "bench" / "census" / "tracing.py"),
        ]
        subprocess.run(
            [*command, str(folder / "operations"), str(TRAININGS / training.file), *training.arguments],
            cwd=folder,
            env=variables(training, change, setting, base),
            check=True,
        )
        return [line.split("\t") for line in (folder / "operations").read_text().splitlines()]


def main() -> None:
    """Both, beside each other."""
    parser = argparse.ArgumentParser(prog="python -m bench.census.naming", description=__doc__)
    parser.add_argument("training", choices=[training.name for training in TABLE if training.environment == "torch"])
    parser.add_argument("change", choices=[change.name for change in CHANGES])
    options = parser.parse_args()
    training = next(each for each in TABLE if each.name == options.training)
    change = next(each for each in CHANGES if each.name == options.change)
    seen: dict[str, int] = {}
    for place, (one, two) in enumerate(zip_longest(operations(training, AS_IS), operations(training, change))):
        if one is None or two is None or one[0] != two[0]:
            say(f"operation {place}: {one} against {two}")
            break
        if one[1] == two[1] and one[2] != two[2]:
            seen[one[0]] = seen.get(one[0], 0) + 1
            if seen[one[0]] == 1:
                say(f"operation {place}: {one[0]} of {one[1]} gives {one[2]} and {two[2]}")
    say(f"operations with equal operands and unequal results: {seen or 'none'}")


def say(text: str) -> None:
    """A line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
