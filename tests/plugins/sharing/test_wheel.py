"""The wheel beside a publication: what pip takes, and nothing that nobody committed."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from marin.plugins.sharing.pages import wheel
from marin.provenance.code import Provenance, code_folder

UV = Path(sys.executable).with_name("uv")


def committed(dirty: bool, commit: str = "c0ffee") -> object:
    return lambda folder: Provenance(commit, "", dirty, b"x" if dirty else b"")


def test_an_installer_takes_it_and_every_file_is_the_installed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheel, "provenance", committed(dirty=False))
    made = wheel.wheel()
    assert made is not None and made == wheel.wheel(), "the same files make the same bytes"
    name, data = made
    archive = ZipFile(io.BytesIO(data))
    (record,) = [path for path in archive.namelist() if path.endswith(".dist-info/RECORD")]
    for path, digest, size in csv.reader(io.StringIO(archive.read(record).decode())):
        if path != record:
            found = archive.read(path)
            assert digest == "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(found).digest()).rstrip(b"=").decode()
            assert int(size) == len(found)
    (tmp_path / name).write_bytes(data)
    command = [str(UV), "pip", "install", "--quiet", "--offline", "--no-deps", "--target", str(tmp_path / "there")]
    subprocess.run([*command, str(tmp_path / name)], check=True)
    for package in wheel.SHIPPED:
        listed = subprocess.run(
            ["git", "ls-files", package], cwd=code_folder(), capture_output=True, text=True, check=True
        )
        for path in listed.stdout.split():
            assert (tmp_path / "there" / path).read_bytes() == (code_folder() / path).read_bytes()
    assert not (tmp_path / "there" / "experiments").exists(), "experiments are their writer's"


def test_changes_that_nobody_committed_stay_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheel, "provenance", committed(dirty=True))
    assert wheel.wheel() is None
