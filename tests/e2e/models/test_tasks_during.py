"""Tasks of the harness while a run trains: asked of each due state once, of the same documents, and missed where they were
left out; a task that somebody asked a state by hand is not the one that is due."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lm_eval", reason="the extra `evaluation` (make evaluation)")

from tests.e2e.conftest import PARAMS, Project
from tests.e2e.models.test_evaluation import PAIR
from tests.e2e.models.test_evaluation_during import STATES, staged

pytestmark = pytest.mark.evaluation

ROWS = [{"good": f"the dog {word}s", "bad": f"the dog {word}"} for word in ("run", "sit", "wait")]
EVENTS = """
import json
from marin.record.root import open_root
for _, event in open_root().history().events(type="evaluation.recorded/v1"):
    print(json.dumps(event.body))
"""
KILLED = """
import os, sys
from marin.plugins.evaluation.heldout.companion import Measuring
evaluate, step = Measuring._evaluate, int(sys.argv.pop(1))
Measuring._evaluate = lambda self, subject, scorer: (
    os._exit(9) if subject.step == step else evaluate(self, subject, scorer)
)
from marin.cli.main import main
main()
"""
"""A command that is killed when it would ask the tasks of the state before a train step."""
LEFT_OUT = KILLED.replace("os._exit(9)", "None")
"""The same, which leaves them out instead."""


def recorded(project: Project) -> list[dict[str, Any]]:
    return [json.loads(line) for line in project.forked(EVENTS).stdout.splitlines()]


@dataclass(frozen=True)
class Trained:
    """A finished training, and its copy from before the tasks were asked of its last state."""

    whole: Project
    before_the_last: Project


@pytest.fixture(scope="module")
def during(trained: Project, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """The session's run once more, killed before the tasks of its first state and before those of its last: after the first
    time another task is asked of the first state by hand, after the second the task file and its data are edited."""
    project = trained.copy(tmp_path_factory.mktemp("during"))
    shutil.rmtree(project.root)
    tasks = project.folder / "tasks"
    tasks.mkdir()
    (tasks / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    for name, tag in (("pairs", "none"), ("other", "none"), ("tagged", "few")):
        (tasks / f"{name}.yaml").write_text(PAIR.replace("task: pairs", f"task: {name}\ntag: {tag}"), encoding="utf-8")
    asked = {
        **PARAMS["evaluation"],  # type: ignore[dict-item]
        "every": 3,
        "sets": {"held": {"kind": "corpus", "documents": 2}},
        "tasks": {"names": ["pairs", "few"], "path": "tasks", "limit": 2},
    }
    (project.folder / "params.yaml").write_text(json.dumps({**PARAMS, "evaluation": asked}), encoding="utf-8")
    assert project.marin("init").returncode == 0
    staged(project, "corpus", "tokenizer", "tokens")
    killed(project, 3)
    for changed in (("--tasks", "other", "--limit", "2"), ("--tasks", "pairs,few", "--limit", "1")):
        done = project.marin("-q", "eval", "latest", "--step", "3", *changed)
        assert done.returncode == 0, done.stderr
    killed(project, 6)
    (tasks / "pairs.jsonl").write_text(json.dumps(ROWS[2]) + "\n" + json.dumps(ROWS[1]) + "\n", encoding="utf-8")
    (tasks / "pairs.yaml").write_text(PAIR.replace('doc_to_text: ""', 'doc_to_text: "Now"'), encoding="utf-8")
    (tasks / "other.yaml").write_text(PAIR.replace("task: pairs", "task: other\ntag: few"), encoding="utf-8")
    early = project.copy(tmp_path_factory.mktemp("early"))
    staged(project, "train", "evaluate", "export")
    return Trained(project, early)


def killed(project: Project, step: int) -> None:
    done = project.forked(KILLED, str(step), "-q", "stage", "train", check=False)
    assert done.returncode == 9, done.stderr


def test_every_due_state_is_asked_once_of_the_same_documents(trained: Project, during: Trained) -> None:
    project = during.whole
    assert project.forked(STATES).stdout == trained.forked(STATES).stdout, "the training's bits do not know of it"
    found = recorded(project)
    assert [(body["step"], list(body["tasks"]), body["settings"]["limit"]) for body in found] == [
        (3, ["other"], 2),
        (3, ["pairs", "tagged"], 1),
        (3, ["pairs", "tagged"], 2),
        (6, ["pairs", "tagged"], 2),
    ]
    first, last = found[2:]
    assert last["tasks"] == first["tasks"], "a task that was edited meanwhile does not change what the curve is over"
    again = project.marin("-q", "train", "--config-json", "params.yaml", "--json")
    assert again.returncode == 0 and len(recorded(project)) == 4, again.stderr


def test_it_verifies(during: Trained) -> None:
    status, report = during.whole.verify("--only", "ledger,evaluation", "--no-record")
    assert (status, report["verdicts"]["evaluation"]) == (0, "PASS"), report


def test_what_was_left_out_is_missed(during: Trained, tmp_path: Path) -> None:
    project = during.before_the_last.copy(tmp_path)
    for step in ("train", "evaluate", "export"):
        project.forked(LEFT_OUT, "6", "-q", "stage", step)
    assert [body["step"] for body in recorded(project)] == [3, 3, 3]
    status, report = project.verify("--only", "evaluation", "--no-record")
    assert (status, report["verdicts"]["evaluation"]) == (3, "UNAVAILABLE"), report
    said = " ".join(report["details"]["evaluation"])
    assert "the tasks pairs, few of the state before train step 6" in said, said
