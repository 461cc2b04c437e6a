"""docs/lab.md, docs/babylm.md and docs/mlperf.md, followed to the letter: every command that they show, in their order; and every
experiment file from start to end at a hundredth of its size, each of its runs verified.

A command that is not executed here is named below, with the reason: a page cannot gain one unseen.
"""

# Taken by their commands: marin.plugins.collections, marin.plugins.evaluation, marin.plugins.lab, marin.plugins.mlflow,
# marin.plugins.mlperf, marin.plugins.serve.

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
MARIN = Path(sys.executable).with_name("marin")
FILES = sorted((REPOSITORY / "experiments").glob("exp*.py"))
NETWORK, ACCELERATOR, OTHERS = "needs a network", "for an accelerator", "needs somebody else's root, server or key"
LEFT = {
    "marin data fetch babylm": NETWORK,
    "marin data fetch blimp": NETWORK,
    "marin data fetch books": NETWORK,
    "marin train +model=1m +dataset=books": "an hour",
    "python -m experiments.benchmarks": NETWORK,
    "marin eval RUN --tasks blimp": NETWORK,
    "marin train +model=gpt2-small": ACCELERATOR,
    "marin train +model=1m +dataset=babylm_10M": "eight hours, on the challenge's own corpus",
    "marin train ... wandb.mode=online": OTHERS,
    "WANDB_API_KEY=": OTHERS,
    "wandb sync": OTHERS,
    "marin ledger serve": OTHERS,
    "marin ledger key invite": OTHERS,
    "marin ledger key join": OTHERS,
    "marin ledger key enrol": OTHERS,
    "curl": "tests/e2e serves a model and asks it",
    "marin serve": "tests/e2e serves a model and asks it",
    "marin ui": "tests/e2e opens it in a browser",
    "marin export RUN --babylm": "make foreign",
    "marin train --from tuned/ dataset=preferences": "minutes; tests/e2e/training/test_preferences.py trains on its own",
    "mkdir pairs": "for the lines of that training",
    "pip install": "the environment of these tests has no place for it: make foreign",
    "marin export latest --mlperf": "make foreign",
    "marin mlperf check": "make foreign",
    "marin --root result_0.root mlperf judge": "make foreign",
    "marin mlperf package": "make foreign",
    "MARIN_DATA=": NETWORK,
    "mkdir .cache": "a folder",
    "./download_data.sh": "what is replaced",
    "benchmarks/grammar_lm/": "make foreign",
    "docker": "no engine",
    "buildah": "make foreign",
}
"""Beginnings of commands that are not executed."""

pytestmark = [pytest.mark.experiments, pytest.mark.e2e]


class Lab:
    """A root of its own, and a copy of what experiments read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("data", "conf", ".github"):
            (folder / name).symlink_to(REPOSITORY / name)
        shutil.copytree(REPOSITORY / "docs", folder / "docs")  # a page that an issue names is in this folder
        (folder / "experiments").mkdir()
        for file in (REPOSITORY / "experiments").glob("*.py"):
            (folder / "experiments" / file.name).write_bytes(file.read_bytes())
        self.environment = os.environ | {
            "MARIN_ROOT": str(folder / ".marin"),
            "MARIN_KEY": str(folder / "key"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "PATH": f"{MARIN.parent}:{os.environ['PATH']}",
        }

    def call(self, command: str, *fine: int) -> str:
        """What a command prints; its exit status is 0, or one of ``fine``."""
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=14_400,
        )
        assert done.returncode in (0, *fine), f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    def verified(self, file: Path) -> Mapping[str, str]:
        """All runs that are complete, each with PASS, six times, or with its verdicts where one is not. What the file's own
        functions made is made again by them; a run that ends in a state, or a corpus, for others has no model, or no training,
        to judge, and one that was never evaluated no numbers."""
        ended = [run for run in json.loads(self.call("marin ls runs --json")) if run["status"] == "completed"]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return dict(pool.map(lambda run: (run["run"], self._judged(run, file)), ended))

    def _judged(self, run: Mapping[str, Any], file: Path) -> str:
        asked = f"marin verify {run['run']} --experiment experiments/{file.name} --json --no-record"
        verdicts = json.loads(self.call(asked, 1, 3, 4))["verdicts"]
        wanted = dict.fromkeys(("ledger", "artifacts", "data", "training", "model"), "PASS")
        if not {"evaluate", "export"} & set(run["outputs"]):
            wanted["model"] = "NOT_RUN"
        if "train" not in run["outputs"]:
            wanted["training"] = "NOT_RUN"
        if "evaluate" in run["outputs"] or verdicts["evaluation"] != "NOT_RUN":
            wanted["evaluation"] = "PASS"
        said = {name: verdicts[name] for name in wanted}
        return "PASS" if said == wanted else json.dumps(said)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def commands(page: str) -> Iterator[str]:
    """The commands of a page's indented blocks, without what explains them; lines that go on are joined."""
    blocks = re.findall(r"^((?:    .+\n)+)", page, re.M)
    for block in blocks:
        for line in re.sub(r"\\\n\s*", "", block).splitlines():
            line = line.removeprefix("    ").removeprefix("$ ")
            if re.match(r"(marin |python |pip |curl |wandb |docker |buildah |mkdir |benchmarks/|[A-Z_]+=)", line):
                yield re.split(r"  +", line.strip())[0]


def before_the_first_run(file: Path) -> list[str]:
    """What the file says that has to be made for it; then it is registered and run."""
    said = list(commands(ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""))
    return list(takewhile(lambda command: not command.startswith(("marin experiment", "marin run")), said))


def left(command: str) -> bool:
    return any(command.startswith(beginning) for beginning in LEFT)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_experiment_ends_at_its_sanity_size_and_verifies(lab: Lab, file: Path) -> None:
    lab.call("marin -q init")
    for command in before_the_first_run(file):
        lab.call(command)
    lab.call(f"marin experiment register experiments/{file.name}")
    lab.call(f"marin run experiments/{file.name} --sanity-only --json")
    assert lab.call(f"marin experiment check experiments/{file.name}") == ""
    verified = lab.verified(file)
    assert verified and set(verified.values()) == {"PASS"}, verified


@pytest.mark.parametrize("page", ["lab.md", "babylm.md", "mlperf.md"])
def test_a_newcomer_follows_the_page_to_the_letter(lab: Lab, page: str) -> None:
    lab.call("marin -q init")
    asked = list(commands((REPOSITORY / "docs" / page).read_text("utf-8")))
    assert asked
    new = ""
    for command in asked:
        if command == "marin init" or left(command):
            continue
        words = command.replace("exp015_does_a_slower_rate_help", new or "exp015_does_a_slower_rate_help")
        if "--sanity-only" not in words and "marin run experiments/" in words and "--dry-run" not in words:
            words += " --sanity-only"  # the whole of it is the same command, for hours
        if "RUN" in words or "search_..." in words:
            runs = [run for run in json.loads(lab.call("marin ls runs --json")) if run["status"] == "completed"]
            exported = [run for run in runs if "export" in run["outputs"]]  # a page speaks of a run with a model
            words = words.replace("RUN", (exported or runs)[-1]["run"]) if runs else words
        # An incomplete report ends with 3, a check that finds something to write with 1, a broken contract with 2.
        printed = lab.call(words, *_expected(command))
        if command.startswith("marin experiment new"):
            new = Path(printed.strip()).stem
            text = (lab.folder / printed.strip()).read_text("utf-8")
            (lab.folder / printed.strip()).write_text(text.replace("TODO", "What else?"), encoding="utf-8")


def _expected(command: str) -> tuple[int, ...]:
    fine = {"report": (3,), "check": (1,), "table": (2,), "verify": (3, 4)}
    return next((fine[word] for word in shlex.split(command)[1:3] if word in fine), ())
