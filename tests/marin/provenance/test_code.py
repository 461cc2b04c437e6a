"""Identity of code: the bytes that decide, and where they came from, with Git and without."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ledger import digest_bytes
from marin.errors import MissingEvidence
from marin.provenance.code import code_folder, files_digest, lock_digest, provenance


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "marin" / "steps").mkdir(parents=True)
    (tmp_path / "ledger").mkdir()
    (tmp_path / "marin" / "a.py").write_text("a = 1\n")
    (tmp_path / "marin" / "steps" / "b.py").write_text("b = 1\n")
    (tmp_path / "ledger" / "c.py").write_text("c = 1\n")
    (tmp_path / "requirements.lock").write_text("x==1\n")
    return tmp_path


def git(folder: Path, *arguments: str) -> str:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    done = subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
        env=environment,
    )
    return done.stdout.strip()


@pytest.fixture
def repository(folder: Path) -> Path:
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    return folder


def test_a_digest_depends_on_bytes_and_names_and_on_nothing_else(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    before = files_digest(folder, ["marin"])
    copy = tmp_path_factory.mktemp("elsewhere") / "copy"
    shutil.copytree(folder, copy)
    os.utime(copy / "marin" / "a.py", (1, 1))
    (copy / "marin" / "__pycache__").mkdir()
    (copy / "marin" / "__pycache__" / "a.cpython-312.pyc").write_bytes(b"compiled")
    (copy / "marin" / ".hidden").write_text("an editor's")
    assert files_digest(copy, ["marin"]) == before
    (copy / "marin" / "a.py").write_text("a = 2\n")
    assert files_digest(copy, ["marin"]) != before


def test_renaming_and_swapping_files_changes_the_digest(folder: Path) -> None:
    before = files_digest(folder, ["marin"])
    a, b = folder / "marin" / "a.py", folder / "marin" / "steps" / "b.py"
    one, other = a.read_bytes(), b.read_bytes()
    a.write_bytes(other)
    b.write_bytes(one)
    swapped = files_digest(folder, ["marin"])
    a.rename(folder / "marin" / "z.py")
    assert len({before, swapped, files_digest(folder, ["marin"])}) == 3


def test_listing_a_file_twice_is_listing_it_once(folder: Path) -> None:
    assert files_digest(folder, ["marin", "marin/a.py"]) == files_digest(folder, ["marin"])


def test_code_that_is_not_there_is_no_code(folder: Path) -> None:
    with pytest.raises(MissingEvidence, match=r"missing.py"):
        files_digest(folder, ["marin/missing.py"])


def test_the_lock_is_digested_as_it_is(folder: Path) -> None:
    assert lock_digest(folder) == digest_bytes(b"x==1\n")
    (folder / "requirements.lock").unlink()
    assert lock_digest(folder) == digest_bytes(b"")


def test_a_clean_commit_has_no_difference(repository: Path) -> None:
    found = provenance(repository)
    assert found.commit == git(repository, "rev-parse", "HEAD")
    assert (found.dirty, found.diff, found.describe()["diff"]) == (False, b"", "")


def test_a_change_is_kept_so_that_it_can_be_applied_again(
    repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    clean = provenance(repository)
    (repository / "marin" / "a.py").write_text("a = 2\n")
    (repository / "marin" / "binary").write_bytes(bytes(range(256)))
    git(repository, "add", "-N", "marin/binary")
    dirty = provenance(repository)
    assert dirty.dirty and dirty.commit == clean.commit and dirty.tree != clean.tree
    assert dirty.describe()["diff"] == digest_bytes(dirty.diff)
    again = tmp_path_factory.mktemp("again") / "clone"
    git(repository, "clone", "-q", str(repository), str(again))
    subprocess.run(["git", "apply", "-"], input=dirty.diff, cwd=again, check=True)
    assert (again / "marin" / "a.py").read_text() == "a = 2\n"
    assert (again / "marin" / "binary").read_bytes() == bytes(range(256))


def test_results_and_parameters_are_not_code(repository: Path) -> None:
    (repository / "artifacts").mkdir()
    for name in ("artifacts/corpus.json", "dvc.lock", "params.yaml"):
        (repository / name).write_text("committed")
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "results")
    before = provenance(repository)
    for name in ("artifacts/corpus.json", "dvc.lock", "params.yaml"):
        (repository / name).write_text("changed by a run")
    assert provenance(repository) == before
    assert not before.dirty


def test_a_repository_can_not_make_us_run_its_programs(repository: Path) -> None:
    marker = repository.parent / f"{repository.name}-was-run"
    program = repository / "program.sh"
    program.write_text(f"#!/bin/sh\ntouch '{marker}'\ncat \"$1\" 2>/dev/null\n")
    program.chmod(0o755)
    (repository / ".gitattributes").write_text("*.py diff=evil\n")
    for key in ("diff.evil.textconv", "diff.evil.command", "diff.external", "core.fsmonitor"):
        git(repository, "config", key, str(program))
    (repository / "marin" / "a.py").write_text("a = 3\n")
    assert provenance(repository).dirty
    assert not marker.exists()


def test_without_git_the_code_still_has_its_tree(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(folder.parent))
    found = provenance(folder)
    assert (found.commit, found.dirty) == ("", False)
    monkeypatch.setenv("PATH", "")
    assert provenance(folder) == found
    (folder / "ledger" / "c.py").write_text("c = 2\n")
    assert provenance(folder).tree != found.tree


def test_the_code_folder_holds_what_is_imported() -> None:
    assert (code_folder() / "marin" / "errors.py").is_file()
    assert (code_folder() / "ledger" / "__init__.py").is_file()
