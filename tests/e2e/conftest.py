"""One small pipeline, really executed once for the session: every stage, on eight virtual devices, in a process of its
own.

Tests get copies of its root to damage. Verifications run as `marin verify` in processes of their own, on one device.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

PIPELINE = """
import sys
from pathlib import Path
from marin.process.arithmetic import apply
from marin.execution.executor import run_stage
from marin.recipe.params import load_params
from marin.pipeline.stages import PIPELINE
from marin.recipe.schema import Execution
from marin.record.root import create_root, open_root
recipe, execution = load_params(Path("params.yaml")), Execution(devices=int(sys.argv[1]))
apply(recipe.arithmetic, execution)
create_root()
for step in PIPELINE.steps:
    run_stage(step.name, plan=PIPELINE, recipe=recipe, root=open_root(), project=Path.cwd(), execution=execution)
"""

PARAMS = {
    "seed": 3,
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


@dataclass(frozen=True)
class Project:
    """A folder with a root, and the keys that belong to it."""

    folder: Path
    home: Path

    @property
    def root(self) -> Path:
        return self.folder / ".marin"

    def environment(self) -> dict[str, str]:
        """No variable of the user that reaches Marin, and none that a test process set for jax."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("MARIN", "XLA", "JAX", "XDG")) and name != "NPROC"
        }
        return kept | {
            "XDG_CONFIG_HOME": str(self.home / "config"),
            "XDG_STATE_HOME": str(self.home / "state"),
            "MARIN_CACHE": str(self.home / "cache"),
            "PYTHONPATH": str(REPOSITORY),
        }

    def python(self, program: str, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """A Python program in this folder."""
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

    def marin(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`marin ARGUMENT...` in this folder."""
        return self.python(
            "import sys; from marin.cli.main import main; sys.argv[0] = 'marin'; main()", *arguments, check=False
        )

    def verify(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        """Exit status and report of `marin verify latest`."""
        done = self.marin("-q", "verify", "latest", "--json", *arguments)
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
        return Project(folder / "project", folder / "home")


VERIFIED = """
import io, json, os, sys
from contextlib import redirect_stdout
from marin.cli.main import main
answers = []
for folder, environment, arguments in json.loads(sys.argv[1]):
    os.chdir(folder)
    os.environ.update(environment)
    sys.argv = ["marin", "-q", "verify", "latest", "--json", *arguments]
    with redirect_stdout(io.StringIO()) as out:
        try:
            main()
            status = 0
        except SystemExit as end:
            status = end.code or 0
    answers.append([status, out.getvalue()])
sys.stdout.write(json.dumps(answers))
"""


def verified(*calls: tuple[Project, Sequence[str]]) -> list[tuple[int, dict[str, Any]]]:
    """What :meth:`Project.verify` says to each of these calls, one after the other in one process: jax is imported
    once."""
    asked = [
        (
            str(project.folder),
            {name: value for name, value in project.environment().items() if name.startswith(("MARIN", "XDG"))},
            list(arguments),
        )
        for project, arguments in calls
    ]
    done = calls[0][0].python(VERIFIED, json.dumps(asked))
    answers: list[list[Any]] = json.loads(done.stdout)
    assert all(told for _, told in answers), done.stderr
    return [(status, json.loads(told)) for status, told in answers]


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A finished run; nobody may change it."""
    base = tmp_path_factory.mktemp("trained")
    project = Project(base / "project", base / "home")
    project.folder.mkdir()
    project.home.mkdir()
    (project.folder / "params.yaml").write_text(json.dumps(PARAMS), encoding="utf-8")
    project.python(PIPELINE, "8")
    return project


@pytest.fixture
def project(trained: Project, tmp_path: Path) -> Project:
    """A copy of the finished run, to be damaged."""
    return trained.copy(tmp_path)
