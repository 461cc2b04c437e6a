"""Attestations: what the in-toto library accepts and securesystemslib verifies; one changed byte is refused."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from google.protobuf.json_format import Parse
from in_toto_attestation.v1.statement import Statement
from in_toto_attestation.v1.statement_pb2 import Statement as Message
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError

from ledger import Draft, create_key
from marin.execution.executor import run_stage
from marin.export.envelope import public_key
from marin.history.runs import load, resolve, stream_of
from marin.plugins.sharing.in_toto import PROVENANCE, TEST_RESULT, bundle
from marin.recipe.schema import Recipe
from marin.record.attestation import PAYLOAD_TYPE
from marin.record.creation import create_root
from marin.record.events import REPLAY_COMPLETED, ReplayCompleted, write
from marin.record.root import Root
from marin.record.verdicts import NAMES


def seen(root: Root) -> dict[str, str | int]:
    """The log as a verification says that it saw it."""
    checkpoint = root.reader().checkpoint()
    return {"origin": checkpoint.origin, "size": checkpoint.size, "root": checkpoint.root.hex()}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny: object) -> Root:
    """A real run of three small steps, and a verification of it."""
    monkeypatch.setenv("MARIN_KEY", str(tmp_path / "key"))
    made = create_root(str(tmp_path / ".marin"), origin="test.example/log")
    for step in tiny.PLAN.steps:  # type: ignore[attr-defined]
        run_stage(step.name, plan=tiny.PLAN, recipe=Recipe(), root=made, project=tmp_path)  # type: ignore[attr-defined]
    run = resolve(made.history(), "latest")
    body = ReplayCompleted(
        run=run,
        verdicts={"ledger": "PASS", "data": "UNAVAILABLE", "training": "FAIL"},
        training={"mode": "full", "segments_total": 3},
        first_divergence=None,
        details={},
        environment={},
        log_checkpoint=seen(made),
    )
    made.append([Draft(REPLAY_COMPLETED, stream_of(run), write(body))])
    return made


def test_every_statement_is_valid_and_signed(root: Root) -> None:
    run = load(root.history(), resolve(root.history(), "latest"))
    kinds = []
    for line in bundle(run, root.signer()).splitlines():
        envelope = Envelope.from_dict(json.loads(line))
        envelope.verify([public_key(root.verifier)], 1)
        assert envelope.payload_type == PAYLOAD_TYPE
        statement = Statement.copy_from_pb(Parse(envelope.payload, Message()))
        statement.validate()
        kinds.append(statement.pb.predicate_type)
        content = json.loads(envelope.payload)
        assert content["_type"] == "https://in-toto.io/Statement/v1"
    assert kinds == [PROVENANCE] * 3 + [TEST_RESULT]
    predicate = content["predicate"]
    assert (predicate["result"], predicate["passedTests"], predicate["warnedTests"], predicate["failedTests"]) == (
        "FAILED",
        ["ledger"],
        ["artifacts", "data", "model"],
        ["training"],
    )
    assert {subject["name"]: subject["digest"]["sha256"] for subject in content["subject"]} == {
        name: step.output.digest.removeprefix("sha256:") for name, step in run.steps.items()
    }


def test_a_changed_byte_or_another_key_is_refused(root: Root, tmp_path: Path) -> None:
    run = load(root.history(), resolve(root.history(), "latest"))
    line = json.loads(bundle(run, root.signer()).splitlines()[0])
    other = create_key(tmp_path / "other", "test.example/log")
    with pytest.raises(VerificationError):
        Envelope.from_dict(json.loads(json.dumps(line))).verify([public_key(other.verifier)], 1)
    payload = bytearray(base64.b64decode(line["payload"]))
    payload[-9] ^= 1
    line["payload"] = base64.b64encode(payload).decode()
    with pytest.raises(VerificationError):
        Envelope.from_dict(line).verify([public_key(root.verifier)], 1)


@pytest.mark.parametrize(
    ("changed", "mode", "result"),
    [
        ({}, "full", "PASSED"),
        ({"training": "PARTIAL"}, "sampled", "WARNED"),
        ({}, "sampled", "WARNED"),  # as an older version recorded a part
        ({"model": "NOT_RUN"}, "full", "WARNED"),
        ({"data": "UNAVAILABLE"}, "full", "WARNED"),
        ({"training": "PARTIAL", "model": "FAIL"}, "full", "FAILED"),
    ],
)
def test_five_times_pass_alone_is_passed(root: Root, changed: dict[str, str], mode: str, result: str) -> None:
    name = resolve(root.history(), "latest")
    body = ReplayCompleted(
        run=name,
        verdicts=dict.fromkeys(NAMES, "PASS") | changed,
        training={"mode": mode},
        first_divergence=None,
        details={},
        environment={},
        log_checkpoint=seen(root),
    )
    root.append([Draft(REPLAY_COMPLETED, stream_of(name), write(body))])
    *_, last = bundle(load(root.history(), name), root.signer()).splitlines()
    assert json.loads(Envelope.from_dict(json.loads(last)).payload)["predicate"]["result"] == result
