"""`pip install .`, or uv's, without the Makefile: a wheel in a clean environment, as an auditor installs it."""

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
MOST_MIB = {"uv": 210, "pip": 250}
"""Of what it installs, which pip compiles too."""
UNREACHABLE = ("NewConnectionError", "Failed to establish a new connection", "error sending request", "dns error")
"""What pip and uv say where there is no package index."""
LOOP = """
import marin
with marin.start_run("mine") as run:
    for step in range(3):
        run.log(step, loss=1 / (step + 1))
print(marin.open().run().metrics["loop.loss_last"])
"""


@dataclass(frozen=True)
class Installed:
    """An environment with nothing but the wheel and what it needs, a folder to work in, and what installed it."""

    environment: Path
    folder: Path
    by: str

    def run(self, program: str, *arguments: str, status: int = 0) -> str:
        variables = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "MARIN_CACHE": str(self.folder / "cache")}
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


@pytest.fixture(
    scope="module", params=["uv", pytest.param("pip", marks=pytest.mark.long(together="pip installs", seconds=25))]
)
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Installed:
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
    constraints = base / "constraints.txt"
    lines = (PROJECT / "requirements.lock").read_text("utf-8").splitlines()
    constraints.write_text("\n".join(line.rstrip(" \\") for line in lines if "==" in line and not line.startswith(" ")))
    python = str(base / "environment" / "bin" / "python")
    if request.param == "uv":
        subprocess.run([str(UV), "venv", "--quiet", "--python", sys.executable, str(base / "environment")], check=True)
        install = [str(UV), "pip", "install", "--python", python]
    else:
        subprocess.run([sys.executable, "-m", "venv", str(base / "environment")], check=True)
        install = [python, "-m", "pip", "--disable-pip-version-check", "install"]
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [*install, "--quiet", "--constraint", str(constraints), str(wheel)],
        env=plain,
        capture_output=True,
        text=True,
        check=False,
    )
    if any(said in done.stderr for said in UNREACHABLE):
        pytest.skip("the package index cannot be reached from here")
    assert done.returncode == 0, done.stderr
    folder = base / "work"
    folder.mkdir()
    return Installed(base / "environment", folder, request.param)


def test_an_auditor_installs_the_ledger_and_what_judges_it_alone(installed: Installed) -> None:
    (packages,) = installed.environment.glob("lib/python3*/site-packages")
    installed_by_us = (
        file for file in packages.rglob("*") if not file.relative_to(packages).parts[0].startswith("pip")
    )
    disk = sum(file.lstat().st_blocks * 512 for file in installed_by_us)  # as `du -sm` counts
    assert disk < MOST_MIB[installed.by] << 20
    installed.run("marin", "init", "--quiet")
    (installed.folder / "loop.py").write_text(LOOP)
    assert float(installed.run("python", "loop.py").splitlines()[0]) == 1 / 3
    told = json.loads(installed.run("marin", "-q", "verify", "latest", "--only", "ledger,artifacts", "--json"))
    assert (told["verdicts"]["ledger"], told["verdicts"]["artifacts"]) == ("PASS", "PASS")
    assert "mine" in installed.run("marin", "ls") and "loop.loss_last" in installed.run("marin", "show", "latest")
    installed.run("marin", "trust", "ls")


def test_an_auditor_judges_dossiers_and_reads_states(installed: Installed) -> None:
    """What judges them imports nothing of an extra."""
    installed.run(
        "python", "-c", "import marin.plugins.sharing.dossier.judge, marin.tensors.checkpoints, marin.record.outputs"
    )
    said = installed.run("marin", "verify", "--dossier", "nothing", status=2)
    assert "not a dossier" in said


def test_the_doctor_says_that_nothing_is_replayed_by_an_auditor(installed: Installed) -> None:
    said = installed.run("marin", "doctor", status=3)
    assert "jax, levanter not installed" in said and "pip install '.[train]'" in said
    assert "gives other bits" not in said and "(portable-cpu): yes" not in said


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("train model=nano", "train"),
        ("ui", "mlflow"),
        ("lineage latest --html page.html", "mlflow,train"),
        ("site pages", "mlflow,train"),
    ],
)
def test_what_is_an_extra_says_which_and_names_no_index(installed: Installed, command: str, extra: str) -> None:
    """The project is on no index: a name there is of anyone who registers it."""
    said = installed.run("marin", *command.split(), status=3)
    assert f"in the project's folder: pip install '.[{extra}]'" in said and "Traceback" not in said
    lines = [line for line in said.splitlines() if not line.startswith("loading ")]  # said on a busy machine
    assert "marin-repro" not in said and len(lines) == 1


def test_records_are_compared_by_an_auditor_and_a_table_says_what_it_needs(installed: Installed) -> None:
    done = installed.run("marin", "diff", "latest", "latest")
    assert "recipe" in done and "tensor" in done
    ask = "import marin\ntry: marin.open().runs()\nexcept Exception as error: print(error.exit_code, error)"
    told = installed.run("python", "-c", ask)
    assert told.startswith("3 ") and "pandas" in told and "pip install '.[mlflow]'" in told


def test_each_module_of_an_extra_is_found_in_it() -> None:
    extras = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert {*extras} == {"train", "data", "ray", "mlflow", "export", "all", "eval"}
    found = {
        name: extra_of(name)
        for name in ("jax", "hydra", "levanter", "tensorstore", "ray", "mlflow", "model_signing", "lm_eval", "click")
    }
    assert found == {
        "jax": "train",
        "hydra": "train",
        "levanter": "train",
        "tensorstore": None,
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
