"""A mixture of experts, trained by command line on two devices, killed by a signal after a segment and said again: made once
for all who look at it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sessions import made_once, new_cache
from warm import Warm

from tests.e2e.conftest import MARIN, Project

PARAMS = {
    "seed": 3,
    "dataset": {"kind": "grammar", "train_bytes": 60_000, "validation_bytes": 10_000, "minimal_pairs": 8},
    "tokenizer": {"vocab_size": 262},
    "trainer": {"num_steps": 6, "batch_size": 8, "steps_per_segment": 2},
    "evaluation": {"max_sequences": 8, "minimal_pairs": 8},
}
SPARSE = (
    *("model=moe-nano", "model.hidden_dim=16", "model.intermediate_dim=16", "model.num_layers=1", "optimizer=muonh"),
    *("profile=exact", "arithmetic.microbatch_size=8"),
)
COMMAND = ("-q", "train", "--config-json", "params.json", *SPARSE, "--json")


def train(project: Project) -> None:
    """Killed as soon as it has recorded a segment, and said again."""
    project.folder.mkdir()
    new_cache(project.home / "cache")
    (project.folder / "params.json").write_text(json.dumps(PARAMS), encoding="utf-8")
    assert project.marin("init", apart=True).returncode == 0
    command = [sys.executable, "-c", MARIN, *COMMAND[1:], "--devices", "2"]
    with subprocess.Popen(
        command,
        cwd=project.folder,
        env=project.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stderr is not None
        seen = ""
        for line in running.stderr:
            seen += line
            if "train steps 0 to 1 recorded" in line:
                running.send_signal(signal.SIGKILL)
        assert running.wait() == -signal.SIGKILL, seen
    done = project.marin(*COMMAND, "--devices", "2", apart=True)
    assert done.returncode == 0 and json.loads(done.stdout)["failed"] is None, done.stderr


@pytest.fixture(scope="session")
def mixture(tmp_path_factory: pytest.TempPathFactory, warm: Callable[[], Warm]) -> Project:
    """The run; nobody may change it."""

    def make(base: Path) -> None:
        train(Project(base / "project", base / "home", warm))

    base = made_once(tmp_path_factory, "mixture", make)
    return Project(base / "project", base / "home", warm)


def judged(project: Project, *more: str) -> tuple[int, dict[str, object]]:
    """Exit status and report of a replay on one device."""
    return project.verify("--no-record", "--devices", "1", *more, apart=True)
