"""A run always ends: last steps that overlap, runs that several processes began, and runs that were left open."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from ledger import Draft, Refused
from marin.execution import executor
from marin.execution.executor import StageOutcome, run_stage
from marin.execution.leases.granted import Grant
from marin.execution.leases.lease import Claimant, Leases, utc_now
from marin.execution.plan import Plan
from marin.execution.step import StepDefinition, StepResult, Task
from marin.history.run import Run
from marin.history.runs import History, load_all
from marin.recipe.schema import from_mapping
from marin.record import events
from marin.record.root import Root, open_root

Stage = Callable[..., StageOutcome]


def views(project: Path) -> list[Run]:
    return list(load_all(open_root(str(project / ".marin")).history()))


def log(project: Path) -> list[str]:
    return [event.type.removesuffix("/v1") for _, event in open_root(str(project / ".marin")).reader().events()]


@pytest.fixture
def meeting(tiny: ModuleType, project: Path) -> tuple[Stage, threading.Barrier]:
    """Stages of a plan whose two last steps wait for each other inside: neither ends before both have begun."""
    barrier = threading.Barrier(2)

    def meet(task: Task) -> StepResult:
        barrier.wait(timeout=600)
        (task.out / "seed.txt").write_text(str(task.recipe.seed), encoding="utf-8")
        return StepResult(kind="seed", metrics={"seed": float(task.recipe.seed or 0)})

    def step(name: str, inputs: tuple[str, ...], run: Callable[[Task], StepResult]) -> StepDefinition:
        return StepDefinition(name, inputs, lambda recipe: {"seed": str(recipe.seed)}, tiny.CODE, run)

    plan = Plan(
        "forked", (step("words", (), tiny.words), step("left", ("words",), meet), step("right", ("words",), meet))
    )

    def stage(name: str, seed: int, **how: object) -> StageOutcome:
        recipe = from_mapping({"seed": seed}, where="test")
        root = open_root(str(project / ".marin"))
        return run_stage(name, plan=plan, recipe=recipe, root=root, project=None, **how)  # type: ignore[arg-type]

    return stage, barrier


def test_a_step_that_is_not_what_was_planned_is_not_begun(tiny: ModuleType, project: Path) -> None:
    """Anyone who planned and claimed it said which identity it has; the code was edited meanwhile."""
    root = open_root(str(project / ".marin"))
    plan = Plan("alone", (StepDefinition("words", (), lambda recipe: {}, tiny.CODE, tiny.words),))
    recipe = from_mapping({"seed": 1}, where="test")
    before = log(project)
    with pytest.raises(Refused, match="not what was planned"):
        run_stage("words", plan=plan, recipe=recipe, root=root, project=None, identity="sha256:" + "0" * 64)
    assert log(project) == before
    made = run_stage("words", plan=plan, recipe=recipe, root=root, project=None).result
    again = run_stage("words", plan=plan, recipe=recipe, root=root, project=None, identity=made.identity)
    assert again.result.completed_at == made.completed_at


@pytest.mark.parametrize("count", [5, pytest.param(50, marks=pytest.mark.faults)])
def test_runs_whose_last_steps_overlap_are_all_completed(
    meeting: tuple[Stage, threading.Barrier], project: Path, count: int
) -> None:
    stage, _ = meeting
    with ThreadPoolExecutor(2) as pool:
        for seed in range(count):
            stage("words", seed)
            ends = [pool.submit(stage, name, seed) for name in ("left", "right")]
            assert {end.result().run for end in ends} == {views(project)[-1].run}
    found = views(project)
    assert [view.status for view in found] == ["completed"] * count
    assert log(project).count("run.completed") == count, "each of them once"
    for seed, view in enumerate(found):
        assert view.completed is not None
        assert set(view.completed.body.outputs) == {"words", "left", "right"}
        assert view.completed.body.metrics["right.seed"] == float(seed).hex()


@pytest.mark.parametrize("grant", [Grant("graph", "sha256:" + "0" * 64), None])
def test_of_two_that_begin_a_run_at_once_all_is_completed(
    meeting: tuple[Stage, threading.Barrier], project: Path, monkeypatch: pytest.MonkeyPatch, grant: Grant | None
) -> None:
    """Each looks for an open run before the other has begun one. Those that take their leases begin one run: the log refuses
    the second, and its stage looks again. Those to which others granted a lease begin two, and both end."""
    stage, _ = meeting
    stage("words", 1, force=True)
    if grant is not None:
        graph, root = Claimant(grant.executor), open_root(str(project / ".marin"))
        leases = Leases()
        leases.catch_up(root)
        root.append([graph.take(leases, {grant.step: "both"}, (), utc_now())])
    passed = threading.Event()
    together = threading.Barrier(2, passed.set)
    real, found = Root.append, executor._Stage._run

    def append(self: Root, drafts: list[Draft]) -> object:
        if drafts[0].type == events.RUN_STARTED and not passed.is_set():
            together.wait(timeout=600)
        return real(self, drafts)

    def run(self: executor._Stage, history: History, *, completed: bool) -> Run | None:
        return found(self, history, completed=completed) if passed.is_set() else None

    with monkeypatch.context() as apart, ThreadPoolExecutor(2) as pool:
        apart.setattr(Root, "append", append)
        apart.setattr(executor._Stage, "_run", run)
        ends = [pool.submit(stage, name, 1, grant=grant) for name in ("left", "right")]
        assert len({end.result().run for end in ends}) == (1 if grant is None else 2)
    stage("left", 1)
    assert {view.status for view in views(project)} == {"completed"}


def test_a_run_that_an_older_version_left_open_is_completed_by_the_next_command(
    tiny: ModuleType, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as old:
        old.setattr(executor, "rest", lambda *_, **__: ([], ["later"]))
        old.setattr(executor, "complete_open_runs", lambda *_, **__: [])
        for name in ("words", "upper", "count"):
            tiny.run(name, project)
        assert [view.status for view in views(project)] == ["open"]
    newer = Plan("tiny", tuple(replace(step, starts=("marin/errors.py",)) for step in tiny.PLAN.steps))
    monkeypatch.setattr(tiny, "PLAN", newer)
    tiny.run("words", project)
    first, second = views(project)
    assert first.status == "completed" and first.completed is not None
    assert set(first.completed.body.outputs) == {"words", "upper", "count"}
    assert second.status == "open", "of the newer code only one step was executed"


def test_a_run_that_lacks_an_output_or_mixes_two_makings_stays_open(tiny: ModuleType, project: Path) -> None:
    tiny.run("words", project)
    tiny.run("upper", project)
    tiny.run("words", project, seed=2)
    assert [view.status for view in views(project)] == ["open", "open"]
