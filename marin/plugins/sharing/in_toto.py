"""Steps and verdicts as in-toto attestations (in-toto.io/Statement/v1), each in a DSSE envelope signed by the log's
key.

A step becomes SLSA provenance (slsa.dev/provenance/v1): what was made, from which inputs, with which configuration and
code. A recorded verification becomes a test result (in-toto.io/attestation/test-result/v0.1): passed tests are verdicts
that PASS, warned those that could not be given, failed those that FAIL. Both say where in the log the event is that
they were made from: an attestation is a copy for other tools, the log is the evidence.

A file of them is a bundle: one envelope per line (``.intoto.jsonl``). The key id is the text of the verifier key, so
that anyone who knows the log's key knows this one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from in_toto_attestation.v1.resource_descriptor import ResourceDescriptor
from in_toto_attestation.v1.statement import Statement

from ledger import Signer, VerifierKey
from marin.export.envelope import envelope, payload
from marin.history.run import Fact, Run, StepView
from marin.history.runs import History
from marin.record.events import Output, ReplayCompleted
from marin.record.verdicts import NAMES, SHOWN
from marin.verify.agreement import consistent_run

PROVENANCE = "https://slsa.dev/provenance/v1"
TEST_RESULT = "https://in-toto.io/attestation/test-result/v0.1"
BUILD_TYPE = "urn:marin:step:v1"
BUILDER = "urn:marin:executor:v1"


def attestations(history: History, run: str, signer: Signer) -> str:
    """:func:`bundle` of a run whose events agree with one another; raises as :func:`marin.verify.agreement.consistent_run`."""
    return bundle(consistent_run(history, run), signer)


def bundle(run: Run, signer: Signer) -> str:
    """All statements about ``run``, signed, one envelope a line."""
    lines = [
        json.dumps(envelope(statement, signer).to_dict(), sort_keys=True)
        for statement in statements(run, signer.verifier)
    ]
    return "".join(line + "\n" for line in lines)


def statements(run: Run, origin: VerifierKey) -> Iterator[Statement]:
    """Provenance of every step of ``run`` in order, then every verification that its log has."""
    for step in run.steps.values():
        yield provenance(run, step, origin)
    for fact in run.verdicts:
        yield test_result(run, fact, origin)


def payloads(run: Run, origin: VerifierKey) -> list[bytes]:
    """What :func:`bundle` signs, line by line."""
    return [payload(statement) for statement in statements(run, origin)]


def provenance(run: Run, step: StepView, origin: VerifierKey) -> Statement:
    """Where the output of one step comes from."""
    code = run.started.body.code
    dependencies = [
        {"name": f"input {name}", "digest": digest_set(digest)} for name, digest in sorted(step.inputs.items())
    ]
    dependencies += [{"name": "recipe", "digest": digest_set(run.started.body.recipe_digest)}]
    if isinstance(steps := code.get("steps"), dict) and step.step in steps:
        dependencies.append({"name": "code", "digest": digest_set(steps[step.step])})
    if lock := run.started.body.environment.get("lock"):
        dependencies.append({"name": "locked dependencies", "digest": digest_set(lock)})
    if commit := code.get("commit"):
        dependencies.append({"name": "source", "digest": {"gitCommit": str(commit)}})
    return Statement(
        [_subject(step.step, step.output)],
        PROVENANCE,
        {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"run": run.run, "step": step.step, "identity": step.identity},
                "internalParameters": {
                    "environment": _struct_value(run.started.body.environment.get("versions") or {})
                },
                "resolvedDependencies": dependencies,
            },
            "runDetails": {
                "builder": {"id": BUILDER},
                "metadata": {"invocationId": _place(origin, step.completed_at), "finishedOn": step.time},
            },
        },
    )


def test_result(run: Run, fact: Fact[ReplayCompleted], origin: VerifierKey) -> Statement:
    """One recorded verification of ``run``."""
    verdicts = fact.body.verdicts
    passed = [name for name in NAMES if verdicts.get(name) == "PASS"]
    failed = [name for name in SHOWN if verdicts.get(name) == "FAIL"]
    warned = [name for name in NAMES if verdicts.get(name) not in ("PASS", "FAIL")]
    checkpoint = fact.body.log_checkpoint
    return Statement(
        [_subject(name, step.output) for name, step in run.steps.items()],
        TEST_RESULT,
        {
            "result": "FAILED" if failed else "WARNED" if warned or not passed else "PASSED",
            "configuration": [
                {
                    "name": f"run {run.run}",
                    "uri": _place(origin, run.started.index),
                    "digest": digest_set(run.started.body.recipe_digest),
                },
                {
                    "name": f"log checkpoint of size {checkpoint.get('size')}",
                    "digest": {"sha256": str(checkpoint.get("root"))},
                },
                {
                    "name": "environment",
                    "annotations": _struct_value(
                        {"versions": fact.body.environment.get("versions") or {}, "training": fact.body.training}
                    ),
                },
            ],
            "url": _place(origin, fact.index),
            "passedTests": passed,
            "warnedTests": warned,
            "failedTests": failed,
        },
    )


def _subject(name: str, output: Output) -> Any:
    return ResourceDescriptor(
        name=name,
        digest=digest_set(output.digest),
        annotations={"kind": output.kind, "artifact": output.artifact, "size": str(output.size)},
    ).pb


def digest_set(text: str) -> dict[str, str]:
    """A digest as in-toto has it: by its algorithm."""
    kind, _, value = text.partition(":")
    return {kind: value}


def _place(origin: VerifierKey, index: int) -> str:
    """An event of a log as a URI."""
    return f"urn:marin:log:{origin.name}:{index}"


def _struct_value(value: Any) -> Any:
    """JSON-shaped values that a protobuf Struct takes: numbers become doubles there, so long ones are texts."""
    return json.loads(json.dumps(value))
