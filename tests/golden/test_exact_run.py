"""A run of the released form, kept whole: under profile exact, trained on two devices under jaxlib 0.11.2 by an earlier commit.
It has to verify as long as there is anything here that verifies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

KEPT = Path(__file__).with_name("exact.tar.gz")
MARIN = "import sys; from marin.cli.main import main; sys.argv[0] = 'marin'; main()"
pytestmark = pytest.mark.long(seconds=60, together="the exact run that is kept")


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    with tarfile.open(KEPT) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "exact"


def verify(root: Path, *options: str) -> dict[str, Any]:
    """As a stranger who has the key."""
    own = {"MARIN_PINS": str(root.parent / "pins"), "MARIN_KEY": str(root.parent / "own.key")}
    command = [
        "--root",
        str(root),
        "-q",
        "verify",
        "latest",
        "--no-record",
        "--json",
        "--vkey",
        (root / "vkey").read_text().strip(),
    ]
    done = subprocess.run(
        [sys.executable, "-c", MARIN, *command, *options],
        cwd=root.parent,
        env=os.environ | own,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1, 3, 4), done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_every_verdict_is_pass(kept: Path) -> None:
    report = verify(kept)
    assert set(report["verdicts"].values()) == {"PASS"}, report["details"]
    assert not [line for line in report["details"]["training"] if "different program" in line], report["details"]


def test_its_programs_are_beside_it(kept: Path) -> None:
    from ledger import digest_bytes, parse_canonical

    programs = [file for file in sorted((kept / "programs").glob("*.json")) if len(file.stem) == 64]
    assert len(programs) == 3, "gradient, update and initial"
    for file in programs:
        assert digest_bytes(file.read_bytes()) == f"sha256:{file.stem}"
        assert parse_canonical(file.read_bytes())["operations"]
