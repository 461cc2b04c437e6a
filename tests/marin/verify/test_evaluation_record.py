"""What was evaluated of a run is judged by the verdict `evaluation`, or told as claimed by everybody: nothing falls between."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from ledger import Draft
from marin.execution.plan import Plan
from marin.history.runs import evaluation_stream, load, resolve, stream_of
from marin.kinds.families.measured import EVALUATION_RECORDED, EvaluatedTask, EvaluationRecorded
from marin.record.events import Continues, write
from marin.record.root import Root
from marin.record.verdicts import NAMES, overall, verdict_line
from marin.verify.derivation.claims import derive, settle_claims
from marin.verify.derivation.records import contradictions, unexplained
from tests.marin.verify.test_records import record

DIGEST = f"sha256:{'3' * 64}"


def body_of(run: str, **changed: Any) -> dict[str, Any]:
    task = EvaluatedTask(config=DIGEST, data={"test": DIGEST}, prompts=DIGEST, documents=1)
    body = EvaluationRecorded(
        run=run,
        step=3,
        state=DIGEST,
        tokenizer=DIGEST,
        identity=DIGEST,
        harness="0.4.13",
        code=DIGEST,
        lock=DIGEST,
        settings={},
        tasks={"pairs": task},
        results={"pairs": {"acc,none": (0.75).hex(), "sample_len": (4.0).hex()}},
        samples=DIGEST,
        requests=2,
        truncated=0,
    )
    return write(body) | changed


@pytest.fixture
def plan(tiny: ModuleType) -> Plan:
    found = tiny.PLAN
    assert isinstance(found, Plan)
    return found


def test_an_evaluation_stands_beside_the_run_and_is_one_claim(root: Root, plan: Plan) -> None:
    run = resolve(root.history(), "latest")
    before = load(root.history(), run).last_index
    (receipt,) = root.append([Draft(EVALUATION_RECORDED, evaluation_stream(run), body_of(run))])
    told = record(root)
    assert [fact.index for fact in told.evaluations] == [receipt.index] and not told.outside
    assert contradictions(told, plan) == [] and unexplained(told, plan) == []
    assert load(root.history(), run).last_index == before, "the run was told nothing of"
    claims = [claim for claim in derive(told, plan) if claim.verdict == "evaluation"]
    assert [(claim.event, "acc=0.75" in claim.text) for claim in claims] == [(receipt.index, True)]
    for outcome, status in (
        ("PASS", "established"),
        ("FAIL", "contradicted"),
        ("NOT_RUN", "open"),
        ("PARTIAL", "open"),
    ):
        assert settle_claims(claims, {"evaluation": outcome})[0].status == status


def test_one_of_a_run_that_a_phase_continues_is_told_and_not_established(root: Root, plan: Plan) -> None:
    run = resolve(root.history(), "latest")
    root.append([Draft(EVALUATION_RECORDED, evaluation_stream(run), body_of(run))])
    later = Continues(run="later", step=2, state=DIGEST, checkpoint=DIGEST)
    told = [claim for claim in derive(record(root), plan, until=later) if "acc=0.75" in claim.text]
    asked = dict.fromkeys(
        ("ledger", "artifacts", "data", "training"), "PASS"
    )  # what a run before a phase is judged for
    assert [claim.status for claim in settle_claims(told, asked)] == ["open"]


@pytest.mark.parametrize("stream", [stream_of, lambda run: "evaluation/another", lambda run: f"evaluation/{run}/more"])
def test_one_that_stands_elsewhere_is_only_claimed(root: Root, plan: Plan, stream: Any) -> None:
    run = resolve(root.history(), "latest")
    root.append([Draft(EVALUATION_RECORDED, stream(run), body_of(run))])
    told = record(root)
    assert told.evaluations == ()
    assert any(EVALUATION_RECORDED in item.what for item in unexplained(told, plan))


@pytest.mark.parametrize(
    "changed", [{"verified": True}, {"tasks": {"pairs": body_of("")["tasks"]["pairs"] | {"note": "a"}}}]
)
def test_one_that_says_more_than_its_type_is_only_claimed(root: Root, plan: Plan, changed: dict[str, Any]) -> None:
    run = resolve(root.history(), "latest")
    root.append([Draft(EVALUATION_RECORDED, evaluation_stream(run), body_of(run, **changed))])
    told = record(root)
    assert told.evaluations == ()
    assert any(EVALUATION_RECORDED in item.what for item in unexplained(told, plan))


def test_a_false_evaluation_fails_the_whole_and_a_true_one_replaces_nothing() -> None:
    five = dict.fromkeys(NAMES, "PASS")
    assert (
        overall(five) == overall(five | {"evaluation": "PASS"}) == overall(five | {"evaluation": "NOT_RUN"}) == "PASS"
    )
    assert overall(five | {"evaluation": "FAIL"}) == "FAIL"
    assert verdict_line(five | {"evaluation": "FAIL"}) == "FAIL evaluation"
    assert (
        overall({"evaluation": "PASS"}) == "NOT_RUN"
        and overall(five | {"data": "NOT_RUN", "evaluation": "PASS"}) == "PARTIAL"
    )
