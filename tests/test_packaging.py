"""`pip install .` without the Makefile: a wheel in a clean environment, as an auditor installs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from marin.provenance.extras import extra_of, not_installed

PROJECT = Path(__file__).resolve().parent.parent
UV = Path(sys.executable).with_name("uv")
MOST_MIB = 200
LOOP = """
import marin
with marin.start_run("mine") as run:
    for step in range(3):
        run.log(step, loss=1 / (step + 1))
print(marin.open().run().metrics["loop.loss_last"])
"""


@dataclass(frozen=True)
class Installed:
    """An environment with nothing but the wheel and what it needs, and a folder to work in."""

    environment: Path
    folder: Path

    def run(self, program: str, *arguments: str, status: int = 0) -> str:
        variables = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "MARIN_CACHE": str(self.folder / "cache"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        done = subprocess.run(
            [str(self.environment / "bin" / program), *arguments],
            cwd=self.folder,
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, (arguments, done.stdout, done.stderr)
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    base = tmp_path_factory.mktemp("packaging")
    source = base / "source"
    source.mkdir()
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=PROJECT,
        capture_output=True,
        check=True,
    ).stdout
    for name in filter(None, listed.decode().split("\0")):
        file = PROJECT / name
        if (
            name.split("/")[0] in ("marin", "ledger", "experiments", "conf", "pyproject.toml", "README.md", "LICENSE")
            and file.is_file()
        ):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes(file.read_bytes())
    build = [
        str(UV),
        "build",
        "--quiet",
        "--wheel",
        "--no-build-isolation",
        "--out-dir",
        str(base / "dist"),
        str(source),
    ]
    subprocess.run([*build, "--python", sys.executable], check=True)
    (wheel,) = (base / "dist").glob("*.whl")
    subprocess.run([str(UV), "venv", "--quiet", "--python", sys.executable, str(base / "environment")], check=True)
    constraints = base / "constraints.txt"
    lines = (PROJECT / "requirements.lock").read_text("utf-8").splitlines()
    constraints.write_text("\n".join(line.rstrip(" \\") for line in lines if "==" in line and not line.startswith(" ")))
    target = ["--python", str(base / "environment" / "bin" / "python"), "--constraint", str(constraints)]
    install = [str(UV), "pip", "install", "--quiet", "--link-mode", "copy", *target, str(wheel)]
    done = subprocess.run(
        install, env={**os.environ, "UV_SYSTEM_CERTS": "true"}, capture_output=True, text=True, check=False
    )
    if "error sending request" in done.stderr:
        pytest.skip("the package index cannot be reached from here")
    assert done.returncode == 0, done.stderr
    folder = base / "work"
    folder.mkdir()
    return Installed(base / "environment", folder)


def test_an_auditor_installs_the_ledger_and_what_judges_it_alone(installed: Installed) -> None:
    size = sum(file.lstat().st_size for file in installed.environment.rglob("*") if file.is_file())
    assert size < MOST_MIB << 20
    installed.run("marin", "init", "--quiet")
    (installed.folder / "loop.py").write_text(LOOP)
    assert float(installed.run("python", "loop.py").splitlines()[0]) == 1 / 3
    told = json.loads(installed.run("marin", "-q", "verify", "latest", "--only", "ledger,artifacts", "--json"))
    assert (told["verdicts"]["ledger"], told["verdicts"]["artifacts"]) == ("PASS", "PASS")
    assert "mine" in installed.run("marin", "ls")


@pytest.mark.parametrize(("command", "extra"), [("train model=nano", "train"), ("ui", "mlflow")])
def test_what_is_an_extra_says_which(installed: Installed, command: str, extra: str) -> None:
    said = installed.run("marin", *command.split(), status=3)
    assert f"pip install 'marin-repro[{extra}]'" in said and "Traceback" not in said


def test_each_module_of_an_extra_is_found_in_it() -> None:
    extras = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert {*extras} == {"train", "data", "ray", "mlflow", "export", "all", "eval"}
    found = {
        name: extra_of(name)
        for name in ("jax", "hydra", "levanter", "ray", "mlflow", "model_signing", "lm_eval", "click")
    }
    assert found == {
        "jax": "train",
        "hydra": "train",
        "levanter": "train",
        "ray": "ray",
        "mlflow": "mlflow",
        "model_signing": "export",
        "lm_eval": "eval",
        "click": None,
    }
    assert not_installed(ModuleNotFoundError("no", name="no_such_module_of_anybody")) is None


def test_each_folder_of_groups_is_in_the_wheel() -> None:
    told = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]["data-files"]
    folders = {file.parent.relative_to(PROJECT).as_posix() for file in (PROJECT / "conf").rglob("*.yaml")}
    assert told == {f"share/marin/{folder}": [f"{folder}/*.yaml"] for folder in folders}
