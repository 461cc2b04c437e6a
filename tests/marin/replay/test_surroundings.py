"""Other code or another lock than the run's: equal bits still prove it, other bits prove nothing; and events of a real run
that contradict each other are found, whichever is altered."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from ledger import Event
from marin.code import code_folder, lock_digest
from marin.executor import run_stage
from marin.pipeline import PIPELINE
from marin.plan import code_identity
from marin.recipe import Recipe
from marin.replay.records import contradictions
from marin.replay.surroundings import surroundings
from marin.replay.verdict import Verdict
from marin.replay.verify import Verification
from marin.root import Root, create_root
from marin.runs import RunView, fold, load, resolve, stream_of


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny: ModuleType) -> Root:
    """A real run of three small steps."""
    monkeypatch.setenv("MARIN_KEY", str(tmp_path / "key"))
    made = create_root(str(tmp_path / ".marin"), origin="test.example/log")
    for step in tiny.PLAN.steps:
        run_stage(step.name, plan=tiny.PLAN, recipe=Recipe(), root=made, project=tmp_path)
    return made


def told(root: Root, **code: Any) -> RunView:
    """The run, with other code or another lock told in its beginning."""
    run = load(root.history(), resolve(root.history(), "latest"))
    body = run.started.body
    lock = code.pop("lock", lock_digest(code_folder()))
    other = msgspec.structs.replace(body, code={**body.code, "steps": dict(code_identity(PIPELINE, code_folder()).steps), **code},
                                    environment={**body.environment, "lock": lock})
    return replace(run, started=replace(run.started, body=other))


def judged(root: Root, run: RunView, verdict: Verdict) -> Verdict:
    verification = object.__new__(Verification)
    verification.root, verification.run, verification.surroundings = root, run, surroundings(run)
    return verification._judged("training", lambda: verdict)


def test_a_difference_under_other_code_proves_nothing(root: Root) -> None:
    fail, commit = Verdict("FAIL", ("train step 3 differs",)), "c" * 40
    assert judged(root, told(root), fail) == fail
    other = {**code_identity(PIPELINE, code_folder()).steps, "train": "sha256:" + "0" * 64}
    verdict = judged(root, told(root, steps=other, commit=commit), fail)
    assert verdict.outcome == "UNAVAILABLE"
    assert "other code" in verdict.lines[0]
    assert f"git fetch origin {commit}" in verdict.lines
    assert verdict.lines[-1] == "train step 3 differs"
    assert judged(root, told(root, steps=other), Verdict("PASS")) == Verdict("PASS")
    assert judged(root, told(root, lock="sha256:" + "1" * 64), fail).outcome == "UNAVAILABLE"


def test_a_commit_is_a_commit_or_nothing(root: Root) -> None:
    """It becomes part of a command for people to copy."""
    assert surroundings(told(root, commit="a; rm -rf ~")).commit == ""
    assert surroundings(told(root, commit="--upload-pack=x")).commit == ""


def test_events_of_a_run_agree_and_each_alteration_is_found(root: Root, tiny: ModuleType) -> None:
    history = root.history()
    run = resolve(history, "latest")
    events = [(index, event) for index, event in history.events(stream=stream_of(run))]
    assert contradictions(load(history, run), events, tiny.PLAN) == []
    looked = 0
    for at, (index, event) in enumerate(events):
        for path in ("identity", "config_digest", "code", "plan", "recipe_digest", "inputs.words", "outputs.upper.digest",
                     "metrics.upper.steps"):
            body = json.loads(json.dumps(dict(event.body)))
            *parents, last = path.split(".")
            inner = body
            for part in parents:
                inner = inner.get(part, {})
            if not isinstance(inner.get(last), str):
                continue
            inner[last] = "sha256:" + "5" * 64 if inner[last].startswith("sha256:") else (7.0).hex()
            altered = Event(id=event.id, type=event.type, stream=event.stream, seq=event.seq, time=event.time, actor=event.actor,
                            body=body)
            changed = [*events[:at], (index, altered), *events[at + 1 :]]
            assert contradictions(fold(run, changed, history), changed, tiny.PLAN), (event.type, path)
            looked += 1
    assert looked > 12
