"""Git as Marin calls it: a repository names programs wherever Git can run one, and none of them leaves its mark."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ledger import Draft, Log, LogReader, create_key
from marin.provenance.code import provenance
from marin.provenance.git import git
from marin.record.trust.anchors import find_anchors, trailer_of, write_note
from tests.ledger.memory import MemoryStorage


def plain(folder: Path, *arguments: str) -> str:
    """Git as it is, for making repositories."""
    names = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "protocol.file.allow=always"]
    done = subprocess.run(["git", *names, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """What a program of the repository's would leave."""
    return tmp_path / "marker"


@pytest.fixture
def hostile(tmp_path: Path, marker: Path) -> Path:
    """A repository with a signed-looking commit and a changed file, whose configuration names a program everywhere."""
    folder, script = tmp_path / "hostile", tmp_path / "evil"
    script.write_text(f'#!/bin/sh\necho "$0 $*" >> "{marker}"\ncat\n')
    script.chmod(0o755)
    folder.mkdir()
    plain(folder, "init", "-q", "-b", "main")
    (folder / ".gitattributes").write_text("* filter=evil diff=evil merge=evil\n")
    (folder / "code.py").write_text("print(1)\n")
    plain(folder, "add", ".")
    plain(folder, "commit", "-qm", "first")
    signed = plain(folder, "cat-file", "commit", "HEAD").replace(
        "\n\n", "\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n abcd\n -----END PGP SIGNATURE-----\n\n", 1
    )
    made = subprocess.run(
        ["git", "hash-object", "-t", "commit", "-w", "--stdin"],
        cwd=folder,
        input=signed + "\n",
        text=True,
        capture_output=True,
        check=True,
    ).stdout.strip()
    plain(folder, "update-ref", "refs/heads/main", made)
    for name in (
        "core.fsmonitor",
        "core.sshCommand",
        "core.pager",
        "core.editor",
        "core.askPass",
        "core.alternateRefsCommand",
        "gpg.program",
        "gpg.ssh.program",
        "diff.external",
        "credential.helper",
        "filter.evil.clean",
        "filter.evil.smudge",
        "filter.evil.process",
        "diff.evil.command",
        "diff.evil.textconv",
        "merge.evil.driver",
        "trailer.Marin-Log.command",
        "trailer.Marin-Log.cmd",
        "remote.origin.uploadpack",
        "pager.log",
        "interactive.diffFilter",
        "log.showSignature",
        "filter.evil.required",
    ):
        plain(folder, "config", name, "true" if name.endswith(("showSignature", "required")) else str(script))
    plain(folder, "config", "remote.origin.url", f"ext::{script} %S")
    hooks = folder / "hooks"
    hooks.mkdir()
    for hook in ("post-checkout", "pre-auto-gc", "post-index-change", "reference-transaction", "post-commit"):
        (hooks / hook).write_bytes(script.read_bytes())
        (hooks / hook).chmod(0o755)
    plain(folder, "config", "core.hooksPath", str(hooks))
    (folder / "code.py").write_text("print(2)\n")
    marker.unlink(missing_ok=True)
    return folder


def test_the_programs_would_run(hostile: Path, marker: Path) -> None:
    subprocess.run(["git", "log", "-p"], cwd=hostile, capture_output=True, check=False)
    assert marker.exists(), "Git as it is runs them, or the tests below say nothing"


@pytest.mark.parametrize(
    "arguments",
    [
        ("status", "--porcelain"),
        ("diff",),
        ("log", "--all", "-p", "--show-signature"),
        ("log", "--format=%H%x00%(trailers:key=Marin-Log,valueonly)%G?"),
        ("checkout", "--force", "HEAD", "--", "."),
        ("stash", "list"),
        ("fetch", "origin"),
        ("fetch", "--upload-pack=git-upload-pack", "origin"),
        ("ls-files", "-m"),
        ("verify-commit", "HEAD"),
        ("notes", "list"),
        ("gc", "--auto"),
    ],
    ids=" ".join,
)
def test_no_program_of_a_repository_runs(hostile: Path, marker: Path, arguments: tuple[str, ...]) -> None:
    git(hostile, *arguments)
    assert not marker.exists(), marker.read_text()


def test_a_worktree_is_made_without_them(hostile: Path, marker: Path, tmp_path: Path) -> None:
    done = git(hostile, "worktree", "add", "--quiet", "--detach", str(tmp_path / "tree"), "HEAD")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "tree" / "code.py").read_text() == "print(1)\n"
    assert not marker.exists(), marker.read_text()


def test_the_code_of_a_run_is_described_without_them(hostile: Path, marker: Path) -> None:
    found = provenance(hostile)
    assert found.dirty
    assert b"print(2)" in found.diff
    assert not marker.exists(), marker.read_text()


def test_anchors_are_found_without_them(hostile: Path, marker: Path, tmp_path: Path) -> None:
    signer, storage = create_key(tmp_path / "key", "test.example/log"), MemoryStorage()
    Log.create(storage, signer)
    with Log.open(storage, signer) as log:
        log.append([Draft("t/v1", "s", {})])
    reader = LogReader(storage, signer.verifiers)
    tree = plain(hostile, "rev-parse", "HEAD^{tree}")
    commit = plain(
        hostile,
        "-c",
        "core.hooksPath=/dev/null",
        "commit-tree",
        tree,
        "-m",
        f"anchored\n\n{trailer_of(reader.checkpoint())}",
    )
    plain(hostile, "-c", "core.hooksPath=/dev/null", "update-ref", "refs/heads/main", commit)
    plain(hostile, "config", "user.name", "t")
    plain(hostile, "config", "user.email", "t@example.org")
    marker.unlink(missing_ok=True)
    write_note(hostile, "HEAD", reader.note())
    assert {anchor.kind for anchor in find_anchors(hostile, "test.example/log")} == {"trailer", "note"}
    assert not marker.exists(), marker.read_text()


def test_a_bare_repository_inside_a_folder_is_not_entered(tmp_path: Path, marker: Path) -> None:
    bare = tmp_path / "data"
    bare.mkdir()
    plain(bare, "init", "-q", "--bare")
    assert git(bare, "rev-parse", "--git-dir").returncode != 0
    assert git(bare, "--git-dir=.", "rev-parse", "--git-dir").returncode == 0, "a path that was given is entered"


def test_the_environment_of_the_caller_decides_nothing(
    hostile: Path, marker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = str(tmp_path / "evil")
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", script)
    monkeypatch.setenv("GIT_SSH_COMMAND", script)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    config = tmp_path / "gitconfig"
    config.write_text(f"[core]\n\tfsmonitor = {script}\n[diff]\n\texternal = {script}\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    assert git(hostile, "diff").returncode == 0
    assert not marker.exists(), marker.read_text()


def test_a_replaced_commit_is_not_believed(hostile: Path, marker: Path) -> None:
    tree = plain(hostile, "rev-parse", "HEAD^{tree}")
    other = plain(hostile, "commit-tree", tree, "-m", "another")
    plain(hostile, "-c", "core.hooksPath=/dev/null", "replace", "HEAD", other)
    assert b"first" in git(hostile, "log", "-1", "--format=%s", "main").stdout
