"""One small pipeline, really executed once for the session: every stage, on eight virtual devices, in a process of its
own.

Tests get copies of its root to damage. Commands, and the jobs that they start, run in forks of a process that has
imported jax (tests/services/warm.py), on as many devices as they ask for; those that train as several processes in a
process of their own.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sessions import made_once, new_cache
from warm import Warm, environment, warm

__all__ = ["Project", "project", "trained", "warm"]

PIPELINE = """
import sys
from pathlib import Path
from marin.process.arithmetic import apply
from marin.execution.executor import run_stage
from marin.recipe.params import load_params
from marin.pipeline.stages import PIPELINE
from marin.recipe.schema import Execution
from marin.record.creation import create_root
from marin.record.root import open_root
recipe, execution = load_params(Path("params.yaml")), Execution(devices=int(sys.argv[1]))
apply(recipe.arithmetic, execution)
create_root()
for step in PIPELINE.steps:
    run_stage(step.name, plan=PIPELINE, recipe=recipe, root=open_root(), project=Path.cwd(), execution=execution)
"""

PARAMS = {
    "seed": 3,
    "order": "swap-or-not",
    "dataset": {"kind": "grammar", "train_bytes": 60_000, "validation_bytes": 10_000, "minimal_pairs": 20},
    "tokenizer": {"vocab_size": 400},
    "model": {
        "hidden_dim": 32,
        "intermediate_dim": 48,
        "num_layers": 2,
        "num_heads": 2,
        "num_kv_heads": 2,
        "seq_len": 32,
    },
    "trainer": {"num_steps": 6, "batch_size": 8, "steps_per_segment": 3},
    "arithmetic": {"microbatch_size": 1},
    "evaluation": {"max_sequences": 8, "minimal_pairs": 20},
}


MARIN = "import sys; from marin.cli.main import main; sys.argv[0] = 'marin'; main()"
APART = frozenset({"--processes", "--runner"})
"""Options with which a command needs a process of its own: it starts others that compute together."""


@dataclass(frozen=True)
class Project:
    """A folder with a root, and the keys that belong to it. ``warm`` is where commands are forked."""

    folder: Path
    home: Path
    warm: Callable[[], Warm]

    @property
    def root(self) -> Path:
        return self.folder / ".marin"

    def environment(self) -> dict[str, str]:
        """No variable of the user that reaches Marin, and none that a test process set for jax."""
        return environment() | {
            "XDG_CONFIG_HOME": str(self.home / "config"),
            "XDG_STATE_HOME": str(self.home / "state"),
            "MARIN_CACHE": str(self.home / "cache"),
        }

    def python(self, program: str, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """A Python program in this folder, in a process of its own."""
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=900,
        )
        assert not check or done.returncode == 0, done.stderr
        return done

    def forked(self, program: str, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """The same, in a fork of a process that has imported jax."""
        environment = self.environment()
        done = self.warm().run(program, arguments, cwd=self.folder, environment=environment, timeout=900)
        assert not check or done.returncode == 0, done.stderr
        return done

    def marin(self, *arguments: str, apart: bool = False) -> subprocess.CompletedProcess[str]:
        """`marin ARGUMENT...` in this folder. ``apart``: in a process of its own, whatever it asks for; so does what computes
        under another contract of arithmetic than the default one."""
        apart = apart or not APART.isdisjoint(arguments) or "XLA_FLAGS" in self.environment()
        run = self.python if apart else self.forked
        return run(MARIN, *arguments, check=False)

    def verify(self, *arguments: str, apart: bool = False) -> tuple[int, dict[str, Any]]:
        """Exit status and report of `marin verify latest`."""
        done = self.marin("-q", "verify", "latest", "--json", *arguments, apart=apart)
        assert done.stdout, done.stderr
        report = json.loads(done.stdout)
        assert isinstance(report, dict)
        return done.returncode, report

    def copy(self, folder: Path) -> Project:
        """The same project, to be damaged; with its keys, and with nothing that it has seen. What was compiled is
        shared: XLA's programs are kept by their content, and each is compiled once for all tests."""
        shutil.copytree(self.folder, folder / "project", symlinks=True)
        shutil.copytree(self.home / "config", folder / "home" / "config")
        (folder / "home" / "cache").symlink_to((self.home / "cache").resolve())
        return Project(folder / "project", folder / "home", self.warm)


def train(warm: Callable[[], Warm], base: Path) -> None:
    """The finished run, by a new process: what forks compute is judged by what that computed."""
    project = Project(base / "project", base / "home", warm)
    project.folder.mkdir()
    new_cache(project.home / "cache")
    (project.folder / "params.yaml").write_text(json.dumps(PARAMS), encoding="utf-8")
    project.python(PIPELINE, "8")


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, warm: Callable[[], Warm]) -> Project:
    """The finished run, of all processes of this session; nobody may change it."""
    base = made_once(tmp_path_factory, "trained", partial(train, warm))
    return Project(base / "project", base / "home", warm)


@pytest.fixture
def project(trained: Project, tmp_path: Path) -> Project:
    """A copy of the finished run, to be damaged."""
    return trained.copy(tmp_path)
