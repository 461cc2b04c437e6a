"""`--at-commit`: the commit that a run names is built in a worktree after the user confirms, by its own recipe, and executed;
nothing else is. Real Git; the commit's environment is a script that stands for an installer."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ledger import Refused
from marin.errors import MissingEvidence, UsageError
from marin.verify import commit as worktree
from marin.verify.environment_diff import EnvironmentDiff

ENVIRONMENT = """#!/usr/bin/env bash
mkdir -p .venv/bin
printf '#!/bin/sh\\necho "$(git -C "$(dirname "$0")" rev-parse HEAD) $*" >> "%s"\\nexit 3\\n' "$PWD/../said" > .venv/bin/marin
chmod +x .venv/bin/marin
"""

REF = "origin/main"


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone whose `origin` has one commit more than it, with an environment."""
    origin, clone = tmp_path / "origin", tmp_path / "clone"
    origin.mkdir()
    git(origin, "init", "-q")
    git(origin, "config", "uploadpack.allowAnySHA1InWant", "true")
    (origin / ".gitignore").write_text(".venv\n")
    git(origin, "add", ".")
    git(origin, "commit", "-qm", "first")
    git(origin, "branch", "-M", "main")
    git(tmp_path, "clone", "-q", str(origin), str(clone))
    (origin / ".ci").mkdir()
    (origin / ".ci" / "environment").write_text(ENVIRONMENT)
    git(origin, "add", ".")
    git(origin, "commit", "-qm", "second")
    monkeypatch.setattr(worktree, "code_folder", lambda: clone)
    monkeypatch.setenv("MARIN_CACHE", str(tmp_path / "cache"))
    return origin


def around(commit: str) -> EnvironmentDiff:
    return EnvironmentDiff((), {"train": "other code"}, commit, dirty=False)


def test_the_commit_is_fetched_built_and_executed(checkout: Path, tmp_path: Path) -> None:
    commit, asked = git(checkout, "rev-parse", "HEAD"), list[str]()

    def yes(question: str) -> bool:
        asked.append(question)
        return True

    for _ in range(2):
        status = worktree.verify_at_commit(around(commit), REF, str(tmp_path / "root"), "3f9c", ["--json"], yes)
        assert status == 3, "the exit status is the commit's own"
    assert commit in asked[0]
    said = (tmp_path / "cache" / "commits" / "said").read_text().splitlines()
    assert said == [f"{commit} --root {tmp_path / 'root'} verify 3f9c --json --no-record"] * 2


def test_what_an_older_verifier_passes_is_partial(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run chooses the commit: one whose verifier is fooled by what was mended since."""
    (checkout / ".ci" / "environment").write_text(ENVIRONMENT.replace("exit 3", "exit 0"))
    git(checkout, "commit", "-qam", "a verifier that believes everything")
    commit = git(checkout, "rev-parse", "HEAD")
    assert worktree.verify_at_commit(around(commit), REF, "root", "3f9c", [], agreed=True) == 4


def test_worktrees_that_others_can_write_are_not_executed(checkout: Path, tmp_path: Path) -> None:
    commit = git(checkout, "rev-parse", "HEAD")
    worktree.verify_at_commit(around(commit), REF, "root", "3f9c", [], agreed=True)
    (tmp_path / "cache" / "commits").chmod(0o777)
    with pytest.raises(Refused, match="others can write a cache"):
        worktree.verify_at_commit(around(commit), REF, "root", "3f9c", [], agreed=True)


def test_nothing_is_built_without_a_yes(checkout: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        worktree.verify_at_commit(
            around(git(checkout, "rev-parse", "HEAD")), REF, "root", "3f9c", [], lambda question: False
        )
    assert not (tmp_path / "cache").exists()


def test_a_changed_worktree_is_refused(checkout: Path, tmp_path: Path) -> None:
    commit = git(checkout, "rev-parse", "HEAD")
    worktree.verify_at_commit(around(commit), REF, "root", "3f9c", [], agreed=True)
    (tmp_path / "cache" / "commits" / commit / ".ci" / "environment").write_text("true")
    with pytest.raises(MissingEvidence):
        worktree.verify_at_commit(around(commit), REF, "root", "3f9c", [], agreed=True)


@pytest.mark.parametrize("commit", ["", "0" * 40])
def test_a_commit_that_nobody_has_is_missing_evidence(checkout: Path, commit: str) -> None:
    with pytest.raises(MissingEvidence):
        worktree.verify_at_commit(around(commit), REF, "root", "3f9c", [], agreed=True)


def test_a_commit_outside_the_named_history_is_never_fetched(checkout: Path, tmp_path: Path) -> None:
    """A server gives out what no branch of it has: a fork's commit, or one that descends from the branch."""
    clone = tmp_path / "clone"
    git(checkout, "checkout", "-q", "--detach")
    (checkout / ".ci" / "environment").write_text("touch ../../../executed")
    git(checkout, "commit", "-qam", "on no branch")
    loose = git(checkout, "rev-parse", "HEAD")
    git(checkout, "branch", "other")
    for ref in ("origin/main", "main", "HEAD"):
        with pytest.raises(MissingEvidence, match="not in the history"):
            worktree.verify_at_commit(around(loose), ref, "root", "3f9c", [], agreed=True)
    for ref in ("origin/nothing", "nothing", "--upload-pack=evil", "origin/-x", "origin/main:refs/heads/x"):
        with pytest.raises(MissingEvidence):
            worktree.verify_at_commit(around(loose), ref, "root", "3f9c", [], agreed=True)
    assert subprocess.run(["git", "cat-file", "-e", loose], cwd=clone, capture_output=True, check=False).returncode
    assert not (tmp_path / "cache").exists()
    assert not (tmp_path / "executed").exists()


def test_the_hooks_of_the_clone_do_not_run(checkout: Path, tmp_path: Path) -> None:
    hook = tmp_path / "clone" / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path / 'executed'}\n")
    hook.chmod(0o755)
    worktree.verify_at_commit(around(git(checkout, "rev-parse", "HEAD")), REF, "root", "3f9c", [], agreed=True)
    assert not (tmp_path / "executed").exists()


def test_the_commands_that_would_fetch_it() -> None:
    commands = around("a" * 40).commands("https://example.org/log", "3f9c")
    assert commands[0] == "git fetch origin"
    assert commands[1] == f"git branch --remotes --contains {'a' * 40}"
    assert commands[-1].endswith("marin --root https://example.org/log verify 3f9c")
    assert around("").commands("x", "y") == ()
