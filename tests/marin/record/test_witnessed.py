"""A verifier's own witnesses count for what they cosigned: a checkpoint from before the run says nothing of the run."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger import Cosigner, LogCheckpoint, PolicyWitness, WitnessPolicy
from ledger.format.note import Note, parse_note
from marin.history.runs import run_ids
from marin.recipe.schema import Execution
from marin.record.creation import create_root
from marin.record.root import Root, open_root
from marin.record.trust.evidence import NOBODY, Sources
from marin.record.trust.policy import WITNESSED
from marin.verify.verdict import Verdict
from marin.verify.verification import Options, Verification

PROGRAM = """
import marin
with marin.start_run("mine", recipe={"lr": 0.1}) as run:
    for step in range(4):
        run.log(step, loss=1 / (step + 1), batch=f"batch {step}")
    with open("model.txt", "w") as stream:
        stream.write("weights")
    run.save("model", "model.txt")
"""
WITNESS = Cosigner("witness.example/mine", Ed25519PrivateKey.from_private_bytes(b"w" * 32))
POLICY = WitnessPolicy().with_witness(PolicyWitness("mine", WITNESS.verifier, ""), 1)


def cosigned(root: Root, size: int) -> bytes:
    """The log's checkpoint of this size, with the witness's word."""
    reader, signer = root.reader(), root.signer()
    note = parse_note(LogCheckpoint(reader.checkpoint().origin, size, reader.root(size)).sign([signer]).encode())
    return str(Note(note.text, (*note.signatures, WITNESS.line(note.text)))).encode()


def ledger(root: Root, run: str) -> Verdict:
    options = Options(execution=Execution(), remember=False, sources=Sources(policy=POLICY))
    return Verification(root, run, options).report(("ledger",)).verdicts["ledger"]


def test_what_was_cosigned_must_have_the_last_event_of_the_run(
    tmp_path: Path, own_keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MARIN_ROOT", str(tmp_path / "root"))
    create_root(str(tmp_path / "root"), origin="witnessed.invalid/x")
    (tmp_path / "train.py").write_text(PROGRAM)
    runpy.run_path("train.py")
    root = open_root()
    (run,) = run_ids(root.history())
    size = root.reader().checkpoint().size
    assert ledger(root, run).outcome == "FAIL", "nobody cosigned anything"
    for covered in (0, 1, size - 1):
        root.storage.replace(WITNESSED, cosigned(root, covered))
        verdict = ledger(root, run)
        assert verdict.outcome == "PARTIAL", covered
        assert f"the run's last is event {size - 1}" in verdict.lines[0]
    root.storage.replace(WITNESSED, cosigned(root, size))
    assert ledger(root, run).outcome == "PASS"
    options = Options(execution=Execution(), remember=False, sources=NOBODY)
    verification = Verification(root, run, options)
    verification.record(verification.report(("ledger",)))
    assert root.reader().checkpoint().size == size + 1
    assert ledger(root, run).outcome == "PASS", "a verdict on the run is none of its events"
