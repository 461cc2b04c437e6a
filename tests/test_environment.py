""".ci/environment in a folder of its own: which Python it takes, what it says when none fits, when it does nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent
TOOLS = ("awk", "bash", "cat", "dirname", "env", "mktemp", "rm", "sha256sum", "uname")
PYTHON = f'#!/bin/sh\nexec "{sys.executable}" "$@"\n'
OTHER_PYTHON = '#!/bin/sh\n[ "$1" = --version ] && echo "Python 3.10.2" && exit 0\nexit 1\n'

# An installer that keeps a diary instead of installing.
UV = """#!/bin/sh
case "$1 $2" in
  "python find") exit 1 ;;
  "venv "*) mkdir -p .venv/bin && ln -s "{python}" .venv/bin/python ;;
esac
echo "$@" >> diary
"""


class Folder:
    """A project folder whose PATH holds the named programs only."""

    def __init__(self, base: Path) -> None:
        self.path = base / "a project"
        self.programs = base / "bin"
        self.programs.mkdir(parents=True)
        (self.path / ".ci").mkdir(parents=True)
        shutil.copy(PROJECT / ".ci" / "environment", self.path / ".ci")
        (self.path / "pyproject.toml").write_text("[project]\n")
        (self.path / "requirements.lock").write_text(
            "pip==1 \\\n    --hash=sha256:00\nsetuptools==2 \\\n    --hash=sha256:11\n"
        )
        for tool in TOOLS:
            (self.programs / tool).symlink_to(shutil.which(tool) or tool)
        for tool in ("mkdir", "ln"):
            (self.programs / tool).symlink_to(shutil.which(tool) or tool)

    def program(self, name: str, text: str) -> None:
        (self.programs / name).write_text(text)
        (self.programs / name).chmod(0o755)

    def make(self) -> subprocess.CompletedProcess[str]:
        variables = {"PATH": str(self.programs), "TMPDIR": os.environ.get("TMPDIR", "/tmp")}
        return subprocess.run(
            [str(self.path / ".ci" / "environment")], env=variables, capture_output=True, text=True, check=False
        )

    @property
    def diary(self) -> list[str]:
        file = self.path / "diary"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_without_any_python_it_says_what_to_do(folder: Folder) -> None:
    done = folder.make()
    assert done.returncode == 3
    assert "expected: Python 3.12 to 3.14" in done.stderr
    assert "found:    none on PATH" in done.stderr
    assert "uv python install 3.12" in done.stderr
    assert not (folder.path / ".venv").exists()


def test_a_python_that_is_too_old_is_named(folder: Folder) -> None:
    folder.program("python3", OTHER_PYTHON)
    done = folder.make()
    assert done.returncode == 3
    assert "python3 is Python 3.10.2" in done.stderr


def test_the_first_that_fits_is_taken_and_a_second_call_does_nothing(folder: Folder) -> None:
    folder.program("python3.12", OTHER_PYTHON)
    folder.program("python3", PYTHON)
    folder.program("uv", UV.format(python=sys.executable))
    done = folder.make()
    assert done.returncode == 0, done.stderr
    made, builder, locked, project = folder.diary
    assert made.startswith("venv ") and sys.executable in made
    assert "--require-hashes" in builder and "--require-hashes" in locked
    assert locked.endswith("-r requirements.lock")
    assert "--no-build-isolation --offline --editable ." in project
    assert folder.make().returncode == 0
    assert len(folder.diary) == 4


def test_dvcs_index_of_pickles_lies_in_the_checkout(folder: Folder) -> None:
    """Its default place is one that every user of the machine can write."""
    folder.program("python3", PYTHON)
    folder.program(
        "uv", UV.format(python=sys.executable) + f"[ -e .venv/bin/dvc ] || cp '{folder.programs}/dvc' .venv/bin/\n"
    )
    folder.program("dvc", '#!/bin/sh\necho "dvc $@" >> diary\n')
    (folder.programs / "cp").symlink_to(shutil.which("cp") or "cp")
    (folder.path / ".dvc").mkdir()
    for name in ("a project", "moved"):
        folder.path = folder.path.rename(folder.path.with_name(name))
        assert folder.make().returncode == 0
        assert folder.diary[-1] == f"dvc config --quiet --local core.site_cache_dir {folder.path}/.dvc/tmp/site"


def test_a_changed_lock_and_a_moved_folder_install_again(folder: Folder) -> None:
    folder.program("python3", PYTHON)
    folder.program("uv", UV.format(python=sys.executable))
    assert folder.make().returncode == 0
    with (folder.path / "requirements.lock").open("a") as lock:
        lock.write("wheel==3 --hash=sha256:22\n")
    assert folder.make().returncode == 0
    assert sum("-r requirements.lock" in line for line in folder.diary) == 2
    folder.path = folder.path.rename(folder.path.with_name("moved"))
    assert folder.make().returncode == 0
    assert sum("-r requirements.lock" in line for line in folder.diary) == 3


def test_an_interrupted_install_is_repeated(folder: Folder) -> None:
    folder.program("python3", PYTHON)
    folder.program("uv", UV.format(python=sys.executable) + '[ "$1" = pip ] && [ ! -e again ] && exit 130\nexit 0\n')
    # uv failed and there is no pip in this environment either: nothing is stamped as done
    (folder.path / ".venv").mkdir()
    (folder.path / ".venv" / "bin").mkdir()
    folder.program(
        "../a project/.venv/bin/python", f'#!/bin/sh\n[ "$1" = -m ] && exit 1\nexec "{sys.executable}" "$@"\n'
    )
    assert folder.make().returncode != 0
    assert list((folder.path / ".venv").glob(".installed-*")) == []
    (folder.path / "again").touch()
    assert folder.make().returncode == 0
    assert len(list((folder.path / ".venv").glob(".installed-*"))) == 1


def test_an_environment_of_another_python_is_refused_and_left_alone(folder: Folder) -> None:
    folder.program("python3", PYTHON)
    (folder.path / ".venv" / "bin").mkdir(parents=True)
    folder.program("../a project/.venv/bin/python", OTHER_PYTHON)
    done = folder.make()
    assert done.returncode == 3
    assert "Python 3.10.2" in done.stderr and "rm -r .venv" in done.stderr
    assert (folder.path / ".venv" / "bin" / "python").exists()


def test_another_platform_is_refused_by_name(folder: Folder) -> None:
    (folder.programs / "uname").unlink()
    folder.program("uname", '#!/bin/sh\n[ "$1" = -s ] && echo Darwin || echo arm64\n')
    done = folder.make()
    assert done.returncode == 3
    assert "this is Darwin arm64" in done.stderr
