"""Runs of each form under profile exact, kept whole: trained under jaxlib 0.11.2 by earlier commits. They have to verify as long
as there is anything here that verifies."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger import Draft, Log, LogReader, PosixStorage, Signer, VerifierKey, digest_bytes, parse_canonical

KEPT = Path(__file__).with_name("exact.tar.gz")
ROOTS = sorted(Path(__file__).parent.glob("exact*.tar.gz"))
REWARDS = Path(__file__).with_name("rewards.tar.gz")
"""Learned by GRPO; its programs are not published."""
OTHER = "sha256:" + "5" * 64
MARIN = "import sys; from marin.cli.main import main; sys.argv[0] = 'marin'; main()"
each = pytest.mark.parametrize("archive", ROOTS, ids=lambda path: path.name.partition(".")[0])


def unpacked(archive: Path, folder: Path) -> Path:
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder / "exact"


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return unpacked(KEPT, tmp_path)


def verify(root: Path, *options: str) -> dict[str, Any]:
    """As a stranger who has the key, and the text where the recipe names some."""
    own = {
        "MARIN_DATA": str(root.parent),
        "MARIN_PINS": str(root.parent / "pins"),
        "MARIN_KEY": str(root.parent / "own.key"),
    }
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


@pytest.mark.long(seconds=60)
@pytest.mark.parametrize("archive", [*ROOTS, REWARDS], ids=lambda path: path.name.partition(".")[0])
def test_every_verdict_is_pass(archive: Path, tmp_path: Path) -> None:
    report = verify(unpacked(archive, tmp_path))
    assert set(report["verdicts"].values()) == {"PASS"}, report["details"]
    assert not [line for line in report["details"]["training"] if "different program" in line], report["details"]


@pytest.mark.long(seconds=30)
def test_a_run_that_names_other_code_does_not_escape(kept: Path) -> None:
    """Its own programs define what a train step gives: a loss that is another is a FAIL, whatever code is named."""

    def forged(type_: str, body: dict[str, Any]) -> dict[str, Any]:
        if type_ == "step.started/v1" and body["step"] == "train":
            return body | {"code": OTHER}
        if type_ == "train.segment/v1" and body["start"] == 0:
            first, *others = body["losses"]
            return body | {"losses": [(float.fromhex(first) / 2).hex(), *others]}
        return body

    storage = PosixStorage(kept)
    events = [
        event for _, event in LogReader(storage, [VerifierKey.parse((kept / "vkey").read_text().strip())]).events()
    ]
    shutil.rmtree(kept / "log")
    signer = Signer("log.example/forged", Ed25519PrivateKey.from_private_bytes(bytes(32)))
    Log.create(storage, signer)
    with Log.open(storage, signer) as log:
        log.append(
            [Draft(e.type, e.stream, forged(e.type, dict(e.body)), id=e.id, actor=e.actor, time=e.time) for e in events]
        )
    (kept / "vkey").write_text(f"{signer.verifier}\n")
    report = verify(kept, "--only", "training", "--steps", "0:1")
    assert report["verdicts"]["training"] == "FAIL", report["details"]
    found, *others = report["details"]["training"]
    assert "train step 0: the recorded loss is not the one" in found
    assert any("executed by other code" in line and "it excuses nothing" in line for line in others), others


@each
def test_its_programs_are_beside_it(archive: Path, tmp_path: Path) -> None:
    kept = unpacked(archive, tmp_path)
    programs = [file for file in sorted((kept / "programs").glob("*.json")) if len(file.stem) == 64]
    assert len(programs) == 3, "gradient, update and initial"
    for file in programs:
        assert digest_bytes(file.read_bytes()) == f"sha256:{file.stem}"
        assert parse_canonical(file.read_bytes())["operations"]
