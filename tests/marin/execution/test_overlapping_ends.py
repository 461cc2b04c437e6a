"""Runs whose last two steps end at the same moment in two processes: of two executors of this machine, and of jobs on a
Ray. Neither saw the other's result when it began; every run is completed, and once."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from marin.history.runs import load_all
from marin.record.root import open_root
from marin.runners.engines import open_jobs
from marin.runners.jobs import Job, RunnerName

MODULE = '''
import json, os, pathlib
from marin.execution.executor import run_stage
from marin.execution.plan import Plan
from marin.execution.step import StepDefinition, StepResult
from marin.recipe.schema import from_mapping
from marin.record.root import open_root

def words(task):
    (task.out / "words.txt").write_text("a few words", encoding="utf-8")
    return StepResult(kind="words")

def end(first):
    def run(task):
        """Ends when both have begun: a pipe opens for anyone who writes when somebody reads."""
        for place, mode in (("there", "wb"), ("back", "rb")) if first else (("there", "rb"), ("back", "wb")):
            open(pathlib.Path(os.environ["MEETING"]) / f"{task.recipe.seed}-{place}", mode).close()
        (task.out / "seed.txt").write_text(str(task.recipe.seed), encoding="utf-8")
        return StepResult(kind="seed", metrics={"seed": float(task.recipe.seed)})
    return run

def step(name, inputs, run):
    return StepDefinition(name, inputs, lambda recipe: {"seed": str(recipe.seed)}, ("marin/errors.py",), run)

PLAN = Plan("forked", (step("words", (), words), step("left", ("words",), end(True)), step("right", ("words",), end(False))))

def stages(payload):
    told = json.loads(payload)
    root, runs = open_root(told["root"]), []
    for seed in range(told["count"]):
        recipe = from_mapping({"seed": seed}, where="test")
        runs += [run_stage(name, plan=PLAN, recipe=recipe, root=root, project=None).run for name in told["names"]]
    return json.dumps(runs).encode()
'''


@pytest.mark.parametrize(
    ("runner", "count"),
    [
        ("local", 5),
        pytest.param("local", 50, marks=pytest.mark.faults),
        pytest.param("ray", 50, marks=pytest.mark.faults),
    ],
)
def test_runs_that_two_executors_share_are_all_completed(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runner: RunnerName, count: int
) -> None:
    (tmp_path / "forked_ends.py").write_text(MODULE, encoding="utf-8")
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    for seed in range(count):
        for place in ("there", "back"):
            os.mkfifo(meeting / f"{seed}-{place}")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).resolve().parents[3]}:{tmp_path}")
    monkeypatch.setenv("MEETING", str(meeting))
    import forked_ends  # type: ignore[import-not-found]

    root = str(project / ".marin")

    def told(*names: str) -> bytes:
        return json.dumps({"root": root, "count": count, "names": names}).encode()

    began = json.loads(forked_ends.stages(told("words")))
    with open_jobs(runner, cpus=2, root=root) as jobs:
        ends = [jobs.submit(Job(name, forked_ends.stages, told(name))) for name in ("left", "right")]
        assert [json.loads(end.result()) for end in ends] == [began, began]
    found = list(load_all(open_root(root).history()))
    assert [run.run for run in found] == began
    assert {run.status for run in found} == {"completed"}
    assert all(run.completed and set(run.completed.body.outputs) == {"words", "left", "right"} for run in found)
    types = Counter(event.type for _, event in open_root(root).reader().events())
    assert types["run.completed/v1"] == count, "each of them once"
    assert types["step.completed/v1"] == 3 * count, "and nothing twice"
