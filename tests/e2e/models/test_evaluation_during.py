"""Evaluation while a run trains: measured from recorded states, each once; the training's bits do not know of it; a number
that an operator invents is found and located."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import PARAMS, Project

SETS = {
    "held": {"kind": "corpus", "documents": 4},
    "own": {"kind": "files", "globs": ["texts/*.txt"]},
    "dev": {"kind": "folder", "path": "texts"},
}
EVENTS = """
import json
from marin.record.root import open_root
for index, event in open_root().history().events(type="evaluation.measured/v1"):
    print(json.dumps([event.stream, event.body]))
"""
STATES = """
import json
from marin.history.runs import load, resolve
from marin.record.root import open_root
history = open_root().history()
run = load(history, resolve(history, "latest"))
print(json.dumps([[fact.body.step, fact.body.state] for fact in run.checkpoints]))
print(json.dumps([fact.body.fingerprints for fact in run.segments]))
print(run.steps["train"].identity, run.steps["evaluate"].identity)
"""
FORGE = """
import sys
from ledger import Draft
from marin.history.runs import evaluation_stream, resolve
from marin.record.root import open_root
root = open_root()
run = resolve(root.history(), "latest")
(_, event), *_ = reversed(list(root.history().events(type="evaluation.measured/v1")))
body = dict(event.body)
change = sys.argv[1]
measured = {name: dict(one) for name, one in body["sets"].items()}
if change == "number":
    measured["own"]["numbers"] = {**measured["own"]["numbers"], "bits_per_byte": (1.0).hex()}
elif change == "bytes":
    measured["own"]["bytes"] += 1
elif change == "text":
    measured["own"] = measured["held"]
elif change == "state":
    body["step"] = 3
elif change == "scores":
    blob = bytearray(root.store().read(measured["own"]["scores"]))
    blob[9] ^= 1
    measured["own"]["scores"] = root.store().put_bytes(bytes(blob)).digest
root.append([Draft(event.type, evaluation_stream(run), {**body, "sets": measured})])
"""


def evaluating(project: Project, **sections: Any) -> None:
    """The project's parameters, with an evaluation during training."""
    asked = {**PARAMS["evaluation"], "every": 3, "sets": SETS}  # type: ignore[dict-item]
    parameters = {**PARAMS, "evaluation": asked, **sections}
    (project.folder / "params.yaml").write_text(json.dumps(parameters), encoding="utf-8")


def measured(project: Project) -> list[dict[str, Any]]:
    return [json.loads(line)[1] for line in project.forked(EVENTS).stdout.splitlines()]


@pytest.fixture(scope="module")
def during(trained: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The session's run once more, from an empty root: paused after its first segment, and measured on three sets."""
    project = trained.copy(tmp_path_factory.mktemp("during"))
    shutil.rmtree(project.root)
    texts = project.folder / "texts"
    (texts / "sub").mkdir(parents=True)
    (texts / "one.txt").write_text(
        "The dog runs.\n\nA café is here, <|endoftext|> and " + "so on " * 30, encoding="utf-8"
    )
    (texts / "sub" / "x.jsonl").write_text('{"text": "two cats"}\n', encoding="utf-8")
    evaluating(project)
    assert project.marin("init").returncode == 0
    staged(project, "corpus", "tokenizer", "tokens")
    staged(project, "train", more=("--pause-at", "3"))
    (texts / "one.txt").write_text((texts / "one.txt").read_text() + " edited", encoding="utf-8")
    staged(project, "train", "evaluate", "export")
    return project


def staged(project: Project, *names: str, more: tuple[str, ...] = ()) -> None:
    for name in names:
        done = project.marin("-q", "stage", name, *more)
        assert done.returncode == 0, done.stderr


def test_every_due_state_is_measured_once_and_training_has_the_same_bits(trained: Project, during: Project) -> None:
    assert during.forked(STATES).stdout == trained.forked(STATES).stdout
    found = measured(during)
    assert [body["step"] for body in found] == [3, 6]
    first, last = (body["sets"] for body in found)
    assert set(first) == set(last) == {"held", "own", "dev/one", "dev/sub"}
    assert {name: one["data"] for name, one in first.items()} == {name: one["data"] for name, one in last.items()}, (
        "a file that was edited meanwhile does not change what the curve is over"
    )
    assert float.fromhex(last["held"]["numbers"]["loss"]) < float.fromhex(first["held"]["numbers"]["loss"])
    again = during.marin("-q", "train", "--config-json", "params.yaml", "--json")
    assert again.returncode == 0 and len(measured(during)) == 2, again.stderr


def test_it_verifies(during: Project) -> None:
    status, report = during.verify("--only", "ledger,evaluation", "--no-record")
    assert (status, report["verdicts"]["evaluation"]) == (0, "PASS"), report
    assert report["evaluation"]["requests_answered"] == report["evaluation"]["requests_total"] > 8
    status, report = during.verify("--only", "evaluation", "--sample", "2", "--no-record")
    assert (status, report["verdicts"]["evaluation"], report["evaluation"]["requests_answered"]) == (4, "PARTIAL", 4), (
        report
    )


@pytest.mark.table
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("number", "before train step 6, set own: bits_per_byte"),
        ("bytes", "before train step 6, set own: documents, bytes and tokens"),
        ("text", "set own: its text before train step 3 was"),
        ("state", "expected one that is recorded before train step 3"),
        ("scores", "before train step 6, set own: document 0, token 2"),
    ],
)
def test_every_forgery_is_located(during: Project, tmp_path: Path, change: str, said: str) -> None:
    forged = during.copy(tmp_path)
    forged.forked(FORGE, change)
    status, report = forged.verify("--only", "evaluation", "--no-record")
    assert (status, report["verdicts"]["evaluation"]) == (1, "FAIL"), report
    assert said in report["evaluation"]["first_difference"], report["evaluation"]


def test_mistakes_are_said_before_anything_is_trained(trained: Project, tmp_path: Path) -> None:
    project = trained.copy(tmp_path)
    for asked, said in (
        ({"every": 4}, "a multiple of trainer.steps_per_segment (3)"),
        ({"sets": SETS}, "evaluation.every"),
        ({"every": 3, "sets": {"own": {"kind": "files", "globs": ["nothing/*.txt"]}}}, "no file matches"),
        ({"every": 3, "sets": {"own": {"kind": "folder", "path": "nothing"}}}, "no such folder"),
    ):
        evaluating(project, seed=9, evaluation={**PARAMS["evaluation"], **asked})  # type: ignore[dict-item]
        done = project.marin("-q", "train", "--config-json", "params.yaml")
        assert done.returncode != 0 and said in done.stderr and "Traceback" not in done.stderr, done.stderr
