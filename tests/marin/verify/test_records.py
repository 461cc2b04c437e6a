"""Events of a real run that contradict each other are found, whichever is altered; what nothing derives is named; other
code or another lock than the run's excuses a difference that was executed, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import msgspec
import pytest

from ledger import Draft, Event
from marin.execution.plan import Plan
from marin.history.run import Indexed
from marin.history.runs import load, resolve, stream_of
from marin.pipeline.stages import PIPELINE
from marin.record.root import Root
from marin.verify.derivation.attempts import unjudged_events
from marin.verify.derivation.claims import derive, settle_claims
from marin.verify.derivation.record import RunRecord, read_record
from marin.verify.derivation.records import contradictions, unexplained
from marin.verify.environment_diff import EnvironmentDiff, changed_machine, changed_versions, unless_environment_differs
from marin.verify.verdict import Verdict
from tests.marin.history.events import EventList

ENTRY: dict[str, Any] = {
    "track": "exp9",
    "registration": "sha256:" + "a" * 64,
    "origin": "keeper.example/log",
    "keys": [],
    "size": 1,
    "root": "",
    "recipe": {},
    "metric": "evaluate.loss",
    "score": "0x1.0p+1",
    "flops": 1.0,
    "parameters": 1,
    "replayed": [],
}


def altered(event: Event, change: Callable[[dict[str, Any]], object], **fields: Any) -> Event:
    body = json.loads(json.dumps(dict(event.body)))
    change(body)
    return replace(event, body=body, **fields)


def reset(body: dict[str, Any], path: str) -> bool:
    """Change the string at a dotted path to another one of its kind; False where there is none."""
    *parents, last = path.split(".")
    for part in parents:
        body = body.get(part, {})
    if not isinstance(body.get(last), str):
        return False
    body[last] = "sha256:" + "5" * 64 if body[last].startswith("sha256:") else (7.0).hex()
    return True


def record(root: Root, change: Callable[[list[Indexed]], list[Indexed]] = list) -> RunRecord:
    history = EventList(change(list(root.reader().events())))
    return read_record(history, resolve(history, "latest"))


@pytest.fixture
def plan(tiny: ModuleType) -> Plan:
    found = tiny.PLAN
    assert isinstance(found, Plan)
    return found


def test_events_agree_and_each_alteration_is_found(root: Root, plan: Plan) -> None:
    assert contradictions(record(root), plan) == []
    latest = resolve(root.history(), "latest")
    taken = {view.completed_at for view in load(root.history(), latest).steps.values()}
    paths = ("identity", "config_digest", "code", "plan", "recipe_digest", "inputs.words", "outputs.upper.digest")
    looked = 0
    for place, (index, event) in enumerate(root.reader().events()):
        ours = event.stream == stream_of(latest) or index in taken
        for path in (*paths, "metrics.upper.steps", "output.digest"):
            if not ours or not reset(json.loads(json.dumps(dict(event.body))), path):
                continue

            def change(events: list[Indexed], place: int = place, path: str = path) -> list[Indexed]:
                index, event = events[place]
                return [*events[:place], (index, altered(event, lambda body: reset(body, path))), *events[place + 1 :]]

            try:
                found = contradictions(record(root, change), plan)
            except Exception as error:  # a result that was taken over and is not there
                assert "taken over" in str(error), (event.type, path)
                found = [error]
            assert found, (event.type, path)
            looked += 1
    assert looked >= 20


def test_a_second_beginning_is_a_contradiction(root: Root, plan: Plan) -> None:
    def twice(events: list[Indexed]) -> list[Indexed]:
        (started,) = [item for item in events[1:] if item[1].type == "run.started/v1"]
        return [*events, (len(events), started[1])]

    found = contradictions(record(root, twice), plan)
    assert [item.field for item in found] == ["type"]


@pytest.mark.parametrize(
    ("kind", "body", "what"),
    [
        ("benchmark.completed/v1", {"mmlu": 0.91}, "an event of type benchmark.completed/v1"),
        (
            "metrics.recorded/v1",
            {"step": "", "series": [{"key": "mmlu", "steps": [0], "values": ["0x1.0p-1"]}]},
            "mmlu",
        ),
        ("step.failed/v1", {"step": "align", "identity": "sha256:" + "1" * 64, "error": "no"}, "a step align"),
        ("run.completed/v1", {"outputs": {}, "metrics": {}, "mmlu": "0.91"}, "a field mmlu"),
    ],
)
def test_what_nothing_derives_is_named(root: Root, plan: Plan, kind: str, body: dict[str, Any], what: str) -> None:
    run = resolve(root.history(), "latest")
    assert unexplained(record(root), plan) == []
    root.append([Draft(kind, stream_of(run), {"run": run, **body})])
    (found,) = unexplained(record(root), plan)
    assert what in found.what
    claim, *_ = [item for item in derive(record(root), plan) if item.event == found.index and item.basis == "claimed"]
    assert (
        settle_claims([claim], dict.fromkeys(("ledger", "artifacts", "data", "training", "model"), "PASS"))[0].status
        == "claimed"
    )


@pytest.mark.parametrize(
    ("kind", "stream", "body", "what"),
    [
        ("run.labelled/v1", "labels/{run}", {"description": "mmlu 0.91"}, "labels given to this run by"),
        ("speedrun.entered/v1", "speedrun/exp9", ENTRY, "an entry of this run on the track exp9 by"),
    ],
)
def test_labels_and_entries_of_a_run_keep_no_verdict_from_passing_and_are_claimed(
    root: Root, plan: Plan, kind: str, stream: str, body: dict[str, Any], what: str
) -> None:
    run = resolve(root.history(), "latest")
    root.append([Draft(kind, stream.format(run=run), {"run": run, **body})])
    assert unexplained(record(root), plan) == [] == contradictions(record(root), plan)
    (told,) = unjudged_events(record(root))
    assert what in told.what
    (claim,) = [item for item in derive(record(root), plan) if item.event == told.index]
    assert claim.basis == "claimed"
    root.append([Draft(kind, stream_of(run), {"run": run, **body})])
    (found,) = unexplained(record(root), plan)
    assert kind in found.what, "in the run's own stream it is not one"


def test_the_plan_of_dvc_yaml_is_told_by_its_name_whatever_events_call_it(root: Root, plan: Plan) -> None:
    told = record(root)
    body = msgspec.structs.replace(told.run.started.body, pipeline="default")
    named = replace(told, run=replace(told.run, started=replace(told.run.started, body=body)))
    assert [claim.text for claim in derive(named, plan) if "the plan that" in claim.text] == [
        "a run of the plan that is called pipeline"
    ]


def test_steps_that_the_pipeline_does_not_have_are_only_claimed(root: Root) -> None:
    assert any("a step words" in item.what for item in unexplained(record(root), PIPELINE))


@pytest.mark.parametrize("executed", [True, False])
def test_other_code_excuses_what_was_executed_and_nothing_else(executed: bool) -> None:
    commit = "c" * 40
    differs = EnvironmentDiff((), {"train": "step train was executed by other code"}, commit, dirty=False)
    fail = Verdict("FAIL", ("train step 3 differs",), executed=executed)
    verdict = unless_environment_differs(fail, differs, ("train",), "root", "run")
    assert verdict.outcome == ("UNAVAILABLE" if executed else "FAIL")
    assert verdict.lines[-1] == "train step 3 differs"
    assert (f"git branch --remotes --contains {commit}" in verdict.lines) == executed
    assert unless_environment_differs(fail, differs, ("evaluate",), "root", "run") == fail
    passed = Verdict("PASS", executed=executed)
    assert unless_environment_differs(passed, differs, ("train",), "root", "run") == passed


def test_packages_that_an_auditor_has_not_are_one_line() -> None:
    recorded = {"jax": "0.11.2", "ray": "2.60.0", "numpy": "2.4.0", "dvc": None}
    assert changed_versions(recorded, {"numpy": "2.4.1"}) == [
        "versions.numpy: recorded 2.4.0, here 2.4.1",
        "not installed here: jax, ray",
    ]
    assert changed_versions(recorded, {"jax": "0.11.2", "ray": "2.60.0", "numpy": "2.4.0"}) == []
    assert changed_versions("nothing", {"numpy": "2.4.1"}) != []


def test_a_loop_of_anyone_is_told_of_another_number_of_threads() -> None:
    """What decides no bit of a pipeline's steps decides those of torch (docs/census.md)."""
    recorded = {
        "cores": {"machine": 8, "available": 2},
        "processor": {"model": "Xeon"},
        "settings": {"XLA_FLAGS": "-x"},
    }
    alone = {**recorded, "cores": {"machine": 8, "available": 1}, "settings": {"OMP_NUM_THREADS": "1"}}
    cores, threads = changed_machine(recorded, alone)
    assert cores.startswith("cores: recorded 2, here 1; ") and "taskset" in cores
    assert threads == "settings.OMP_NUM_THREADS: recorded null, here 1"
    assert changed_machine(recorded, recorded) == []
    assert len(changed_machine({"cores": "two", "settings": [1]}, recorded)) == 2, "a record may hold anything"
