"""Uncommitted changes: kept where nobody says otherwise, shown before they are published, left out where asked."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ledger import Draft
from marin.cli.store.transfer import changed_files
from marin.provenance.code import NO_DIFF_VARIABLE, provenance
from marin.record.root import open_root

from .conftest import Marin

SECRET = "TOKEN = 'hunter2'"


@pytest.fixture
def changed(tmp_path: Path) -> Path:
    """A repository whose only file has a secret that nobody committed."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "settings.py").write_text("TOKEN = ''\n")
    for arguments in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-qm", "x"],
    ):
        subprocess.run(["git", *arguments], cwd=folder, check=True)
    (folder / "settings.py").write_text(SECRET + "\n")
    return folder


def test_a_difference_is_kept_or_only_said(changed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(NO_DIFF_VARIABLE, raising=False)
    kept = provenance(changed)
    assert SECRET.encode() in kept.diff and kept.describe()["diff"].startswith("sha256:")
    assert changed_files(kept.diff) == ["settings.py"]
    monkeypatch.setenv(NO_DIFF_VARIABLE, "1")
    left_out = provenance(changed)
    assert (left_out.diff, left_out.dirty, left_out.describe()["diff"]) == (b"", True, "")
    assert left_out.tree == kept.tree


def test_a_push_says_what_it_publishes_and_leaves_it_out(
    marin: Marin, root: Path, changed: Path, tmp_path: Path
) -> None:
    opened, diff = open_root(), provenance(changed).diff
    store = opened.store()
    digest, other = store.put_bytes(diff).digest, store.put_bytes(b"artifact").digest
    opened.append([Draft("x/v1", "run/abc", {"code": {"diff": digest}, "output": {"artifact": other}})])
    done = marin("store", "push", tmp_path / "one", "--no-diff")
    assert (done.status, "settings.py" in done.err) == (0, False), done.err
    assert SECRET.encode() not in b"".join(
        path.read_bytes() for path in (tmp_path / "one").rglob("*") if path.is_file()
    )
    done = marin("store", "push", tmp_path / "two", "--dry-run")
    assert "publishes the uncommitted changes of run/abc: settings.py" in done.err
    assert marin("store", "push", tmp_path / "two").status == 0
    assert SECRET.encode() in b"".join(path.read_bytes() for path in (tmp_path / "two").rglob("*") if path.is_file())
