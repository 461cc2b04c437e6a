"""`marin stage` takes a lease on what it executes, as graphs do: of two machines on one root one executes a step, the other
takes over its result.

Another machine is a process with a local folder of its own, so no lock excludes it, that names itself otherwise, so nobody
here can see whether it lives.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Self

import pytest

from ledger import Conflict, Draft, Receipt
from marin.errors import Interrupted, LeaseLost, Paused, StepFailed
from marin.execution import executor
from marin.execution.executor import plan_step, run_stage
from marin.execution.leases import lease
from marin.execution.leases.granted import Grant
from marin.execution.leases.held import HeldLeases
from marin.execution.leases.lease import Claimant, Leases, utc_now
from marin.execution.leases.step import StepLease
from marin.execution.step import Task
from marin.graph.execution import stage
from marin.recipe.schema import Execution, Recipe
from marin.record import events
from marin.record.root import Root, open_root
from marin.runners.jobs import Job
from marin.work.placed import decode
from tests.marin.execution.stopped import stop

TINY = Path(__file__).parents[1] / "tiny.py"

MACHINE = """
import logging, os, sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
name, project, tiny, term, step = sys.argv[1:]
sys.path.insert(0, tiny)
import tiny as plan
from marin.execution import workspace
from marin.execution.executor import run_stage
from marin.execution.leases import lease
from marin.recipe.schema import Recipe
from marin.record import events
from marin.record.root import open_root

workspace.PATIENCE_SECONDS = 0.2
real = lease.birth
lease.birth = lambda pid: f"{name}/{real(pid)}" if name != "here" else real(pid)
lease.Claimant.of_process = classmethod(lambda cls: cls(f"{name}-{os.getpid()}", timedelta(seconds=float(term))))

def upper(task):
    print("inside", flush=True)
    for line in sys.stdin:  # until it is told to go on
        if line == "measure\\n":
            body = events.MetricsRecorded(run=task.run, step="upper", series=[])
            print("recorded", task.journal.record(events.METRICS_RECORDED, body), flush=True)
        break

plan.before_upper.append(upper)
folder = Path(project)
root = replace(open_root(str(folder / ".marin")), local=folder / name)
outcome = run_stage(step, plan=plan.PLAN, recipe=Recipe(), root=root, project=None)
print(step, outcome.action, flush=True)
"""


@contextmanager
def machine(name: str, project: Path, step: str = "upper", term: float = 120) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", MACHINE, name, str(project), str(TINY.parent), str(term), step],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str], what: str) -> str:
    """The next line of its log that has ``what``."""
    assert process.stderr is not None
    return next(line for line in process.stderr if what in line)


def ended(process: subprocess.Popen[str], told: str = "") -> tuple[str, str]:
    out, err = process.communicate(told, timeout=600)
    assert process.returncode == 0, err
    return out, err


@pytest.fixture
def root(tiny: ModuleType, project: Path) -> Root:
    tiny.run("words", project)
    return open_root(str(project / ".marin"))


def recorded(root: Root) -> Counter[str]:
    return Counter(event.type for _, event in root.reader().events())


def leases_of(root: Root) -> Leases:
    leases = Leases()
    leases.catch_up(root)
    return leases


def claimed(root: Root) -> dict[str, str]:
    return leases_of(root).steps


def over(root: Root) -> list[str]:
    """The executors whose claims were taken over."""
    found = [event.body["over"] for _, event in root.reader().events() if event.type == events.LEASE_TAKEN]
    return [executor for executors in found for executor in executors]


def identity(tiny: ModuleType, root: Root, project: Path, step: str) -> str:
    return plan_step(step, plan=tiny.PLAN, recipe=Recipe(), root=root, project=project)[0]


def test_of_two_machines_that_want_one_step_one_executes_it(root: Root, project: Path) -> None:
    with machine("one", project) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "inside\n"
        with machine("two", project) as second:
            assert f"executor one-{first.pid}" in said(second, "upper is being executed by")
            assert ended(first, "go on\n")[0] == "upper executed\n"
            assert ended(second)[0] == "upper present\n"
    assert recorded(root)[events.STEP_STARTED] == 2, "words, and upper once"
    assert claimed(root) == {}


@pytest.mark.parametrize("machines", [2, pytest.param(6, marks=pytest.mark.long(seconds=15))])
def test_machines_that_begin_at_once_begin_one_run_and_do_nothing_twice(
    tiny: ModuleType, project: Path, machines: int
) -> None:
    """The run itself does not exist when they begin: of those that would begin one, the log takes one."""
    root = open_root(str(project / ".marin"))
    with ExitStack() as stack:
        names = [f"machine{number}" for number in range(machines)]
        all_of_them = [stack.enter_context(machine(name, project, "words")) for name in names]
        outcomes = [ended(process)[0].split()[1] for process in all_of_them]
    assert sorted(outcomes) == sorted(["executed", *["present"] * (machines - 1)])
    counts = recorded(root)
    assert (counts[events.RUN_STARTED], counts[events.STEP_STARTED], counts[events.STEP_COMPLETED]) == (1, 1, 1)
    assert claimed(root) == {}


@pytest.mark.parametrize("moment", ["before it asks who has the lease", "before it takes the lease"])
def test_who_is_overtaken_takes_over_the_result(
    tiny: ModuleType, project: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """It has seen that there is no result; then another machine makes it. Neither its run nor its step begins."""
    owner, name = (StepLease, "is_free") if "asks" in moment else (HeldLeases, "take")
    real = getattr(owner, name)

    def overtaken(self: object, *given: object) -> bool:
        monkeypatch.setattr(owner, name, real)
        with machine("faster", project, "words") as faster:
            assert ended(faster)[0] == "words executed\n"
        return bool(real(self, *given))

    monkeypatch.setattr(owner, name, overtaken)
    assert tiny.run("words", project).action == "present"
    assert tiny.executed == []
    counts = recorded(open_root(str(project / ".marin")))
    assert (counts[events.RUN_STARTED], counts[events.STEP_STARTED], counts[events.LEASE_TAKEN]) == (1, 1, 1)


def test_leases_on_other_steps_keep_nobody_from_beginning(
    tiny: ModuleType, root: Root, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time that it would take its lease, somebody else takes one on another step: the batch is made anew, and nothing else
    is."""
    busy, reasons = Claimant("busy"), []
    real, reason = HeldLeases.take, executor.reason
    others = iter(range(5))

    def take(self: HeldLeases, *given: object) -> bool:
        if (number := next(others, None)) is not None:
            root.append([busy.take(leases_of(root), {f"sha256:{number:064x}": "other"}, (), utc_now())])
        return real(self, *given)  # type: ignore[arg-type]

    def told(*given: object, **named: object) -> str:
        reasons.append(given)
        return reason(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(HeldLeases, "take", take)
    monkeypatch.setattr(executor, "reason", told)
    assert tiny.run("upper", project).action == "executed"
    assert next(others, None) is None
    assert len(reasons) == 1
    assert list(leases_of(root).steps.values()) == ["busy"] * 5


def test_a_conflict_that_is_no_matter_of_sequence_is_said(
    tiny: ModuleType, root: Root, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = Root.append

    def refused(self: Root, drafts: Sequence[Draft]) -> list[Receipt]:
        if any(draft.type == events.LEASE_TAKEN for draft in drafts):
            raise Conflict("other bytes are there already")
        return append(self, drafts)

    monkeypatch.setattr(Root, "append", refused)
    with pytest.raises(Conflict, match="other bytes"):
        tiny.run("upper", project)


def test_what_a_graph_executes_a_stage_waits_for(tiny: ModuleType, root: Root, project: Path) -> None:
    """The claim is of an executor of this machine that lives: of the process of this test."""
    graph, key = Claimant("graph"), identity(tiny, root, project, "upper")
    root.append([graph.take(leases_of(root), {key: "upper"}, (), utc_now())])
    with machine("here", project) as stage:
        assert "executor graph" in said(stage, "upper is being executed by")
        root.append([graph.release(leases_of(root), [key])])
        assert ended(stage, "go on\n")[0] == "inside\nupper executed\n"


def test_what_a_dead_process_claimed_is_free_at_once(tiny: ModuleType, root: Root, project: Path) -> None:
    with machine("here", project) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "inside\n"
        first.kill()
        first.wait()
    assert len(claimed(root)) == 1
    assert tiny.run("upper", project).action == "executed"
    assert claimed(root) == {}
    assert over(root) == [f"here-{first.pid}"]


def test_the_claim_of_another_machine_holds_until_its_term_has_passed(
    tiny: ModuleType, root: Root, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = identity(tiny, root, project, "upper")
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(lease, "birth", lambda pid: "another machine/1")
        claim = Claimant("asleep", timedelta(seconds=1.5)).take(leases_of(root), {key: "upper"}, (), utc_now())
    root.append([claim])
    assert tiny.run("upper", project).action == "executed"
    assert over(root) == ["asleep"]
    begun = max(event.time for _, event in root.reader().events() if event.type == events.STEP_STARTED)
    assert begun > claim.body["until"], "not before its term was over"


def test_a_claim_is_renewed_as_long_as_the_step_is_executed(
    tiny: ModuleType, root: Root, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step goes on until its term has passed three times."""
    monkeypatch.setattr(Claimant, "of_process", classmethod(lambda cls: cls("mine", timedelta(seconds=0.3))))

    def renewed_twice(task: Task) -> None:
        begun = utc_now()
        while recorded(root)[events.LEASE_RENEWED] < 2 or utc_now() - begun < timedelta(seconds=0.9):
            assert utc_now() - begun < timedelta(seconds=30), "nobody renews it"

    tiny.before_upper.append(renewed_twice)
    assert tiny.run("upper", project).action == "executed"
    assert claimed(root) == {}
    assert recorded(root)[events.STEP_COMPLETED] == 2


def test_what_was_made_under_a_lost_claim_is_not_recorded(tiny: ModuleType, root: Root, project: Path) -> None:
    """It slept through its term, and another machine executed the step meanwhile: whose result it takes."""
    with machine("sleeper", project, term=0.2) as sleeper:
        assert sleeper.stdout is not None
        assert sleeper.stdout.readline() == "inside\n"
        stop(root, sleeper.pid)
        assert tiny.run("upper", project).action == "executed"
        sleeper.send_signal(signal.SIGCONT)
        out, err = ended(sleeper, "go on\n")
    assert out == "upper present\n"
    assert "the lease was lost to another executor" in err
    assert recorded(root)[events.STEP_COMPLETED] == 2
    assert claimed(root) == {}


def test_a_stopped_process_keeps_its_folder_from_nobody_who_has_its_lease(
    tiny: ModuleType, root: Root, project: Path
) -> None:
    """Both are processes of one machine, with the same folders. The first one is stopped, and wakes up while the second is at
    work: it takes nothing away, records nothing, and finds the other's result."""
    with machine("here", project, term=0.2) as sleeper:
        assert sleeper.stdout is not None and sleeper.stdin is not None
        assert sleeper.stdout.readline() == "inside\n"
        stop(root, sleeper.pid)
        with machine("here", project) as other:
            assert other.stdout is not None
            assert "another process keeps upper-" in said(other, "held by process")
            assert other.stdout.readline() == "inside\n"
            folders = sorted(path for path in (project / "here" / "work").glob("upper-*") if path.is_dir())
            assert len(folders) == 2
            sleeper.send_signal(signal.SIGCONT)
            sleeper.stdin.write("go on\n")
            sleeper.stdin.flush()
            assert f"upper is being executed by executor here-{other.pid}" in said(sleeper, "waiting for its end")
            assert [path.is_dir() for path in folders] == [True, True]
            assert ended(other, "go on\n")[0] == "upper executed\n"
        assert ended(sleeper)[0] == "upper present\n"
    assert recorded(root)[events.STEP_COMPLETED] == 2
    assert claimed(root) == {}
    assert not any(path.is_dir() for path in (project / "here" / "work").glob("upper-*")), "both have cleared their own"


def test_who_slept_between_the_look_at_the_lease_and_the_append_records_nothing(
    tiny: ModuleType, root: Root, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease is taken over, and the step begun, in between: the length of the run's stream refuses the fact."""
    key, another, real = identity(tiny, root, project, "upper"), Claimant("another"), Root.append

    def append(self: Root, drafts: Sequence[Draft]) -> list[Receipt]:
        if [one.type for one in drafts] == [events.METRICS_RECORDED]:
            monkeypatch.setattr(Root, "append", real)
            begun = next(one for _, one in root.reader().events() if one.type == events.STEP_STARTED)
            body = {**begun.body, "step": "upper", "attempt": 2}
            root.append([another.take(leases_of(root), {key: "upper"}, [f"here-{os.getpid()}"], utc_now())])
            root.append([Draft(events.STEP_STARTED, begun.stream, body)])
            root.append([another.release(leases_of(root), [key])])
        return real(self, drafts)

    def measure(task: Task) -> None:
        if task.attempt == 1:
            monkeypatch.setattr(Root, "append", append)
        task.journal.record(events.METRICS_RECORDED, events.MetricsRecorded(run=task.run, step="upper", series=[]))

    tiny.before_upper.append(measure)
    monkeypatch.setattr(Claimant, "of_process", classmethod(lambda cls: cls(f"here-{os.getpid()}")))
    assert tiny.run("upper", project).action == "executed", "again, by its second attempt"
    assert recorded(root)[events.METRICS_RECORDED] == 1


@pytest.mark.long
def test_under_a_lost_lease_nothing_is_recorded_in_the_run(tiny: ModuleType, root: Root, project: Path) -> None:
    """The other machine is at work on the step: facts of two attempts do not mix."""
    with machine("sleeper", project, term=0.2) as sleeper:
        assert sleeper.stdout is not None
        assert sleeper.stdout.readline() == "inside\n"
        stop(root, sleeper.pid)
        with machine("another", project) as another:
            assert another.stdout is not None
            assert another.stdout.readline() == "inside\n"
            sleeper.send_signal(signal.SIGCONT)
            assert sleeper.stdin is not None
            sleeper.stdin.write("measure\n")
            sleeper.stdin.flush()
            assert "upper is being executed by executor another" in said(sleeper, "waiting for its end")
            assert ended(another, "measure\n")[0].splitlines()[-1] == "upper executed"
        assert ended(sleeper)[0] == "upper present\n"
    assert recorded(root)[events.METRICS_RECORDED] == 1


@pytest.mark.parametrize("released", [False, True])
@pytest.mark.parametrize("moment", ["before it begins", "while it is executed"])
def test_what_a_granted_lease_made_is_not_recorded_when_it_was_lost(
    tiny: ModuleType, root: Root, project: Path, moment: str, released: bool
) -> None:
    """The executor of the graph lost the lease before its process began, or while it was at work; anyone who took it over may
    have released it since."""
    key, another = identity(tiny, root, project, "upper"), Claimant("another")
    root.append([Claimant("graph").take(leases_of(root), {key: "upper"}, (), utc_now())])

    def lost(task: Task | None = None) -> None:
        root.append([another.take(leases_of(root), {key: "upper"}, ["graph"], utc_now())])
        if released:
            root.append([another.release(leases_of(root), [key])])

    if moment == "before it begins":
        lost()
    else:
        tiny.before_upper.append(lost)
    how = {"plan": tiny.PLAN, "recipe": Recipe(), "root": root, "project": project}
    with pytest.raises(LeaseLost, match="another executor has taken it"):
        run_stage("upper", grant=Grant("graph", key), **how)
    assert recorded(root)[events.STEP_COMPLETED] == 1
    assert recorded(root)[events.STEP_STARTED] == (1 if moment == "before it begins" else 2)


def test_a_signal_right_after_the_beginning_is_recorded_and_leaves_no_lease(
    tiny: ModuleType, root: Root, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = HeldLeases.take

    def take(self: HeldLeases, *given: object) -> bool:
        taken = real(self, *given)  # type: ignore[arg-type]
        os.kill(os.getpid(), signal.SIGTERM)
        return taken

    monkeypatch.setattr(HeldLeases, "take", take)
    with pytest.raises(Interrupted, match="step upper"):
        tiny.run("upper", project)
    assert tiny.executed == ["words"]
    assert recorded(root)[events.STEP_FAILED] == 1
    assert claimed(root) == {}


def test_a_machine_that_starts_no_thread_fails_the_step(
    tiny: ModuleType, root: Root, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def none_left(self: threading.Thread) -> None:
        if self.name.startswith("leases of"):
            raise RuntimeError("can't start new thread")
        start(self)

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", none_left)
        with pytest.raises(StepFailed, match="can't start new thread"):
            tiny.run("upper", project)
    assert claimed(root) == {}
    assert tiny.run("upper", project).action == "executed"


def test_an_attempt_that_another_machine_made_meanwhile_is_counted_and_told(
    tiny: ModuleType, root: Root, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = HeldLeases.take

    def overtaken(self: HeldLeases, *given: object) -> bool:
        monkeypatch.setattr(HeldLeases, "take", real)
        with machine("here", project) as dying:
            assert dying.stdout is not None
            assert dying.stdout.readline() == "inside\n"
            dying.kill()
        return real(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(HeldLeases, "take", overtaken)
    assert tiny.run("upper", project).action == "executed"
    begun = [event.body for _, event in root.reader().events() if event.type == events.STEP_STARTED]
    assert [body["attempt"] for body in begun if body["step"] == "upper"] == [1, 2]
    assert recorded(root)[events.STEP_PREEMPTED] == 1


@pytest.mark.parametrize("until", ["tomorrow", "2026-13-41T00:00:00Z", ""])
def test_an_end_that_is_no_time_keeps_nobody_waiting(tiny: ModuleType, root: Root, project: Path, until: str) -> None:
    key = identity(tiny, root, project, "upper")
    bad = Claimant("bad").take(leases_of(root), {key: "upper"}, (), utc_now())
    root.append([replace(bad, body={**bad.body, "until": until, "host": "elsewhere"})])
    assert tiny.run("upper", project).action == "executed"
    assert over(root) == ["bad"]


def test_of_another_machine_counts_how_long_it_was_watched() -> None:
    """Clocks of two machines differ by minutes: a lease that seems to have ended may be renewed next, and one that seems to
    last for ten years is given up when no sign comes for a term."""
    now = utc_now()
    for ahead, alive in ((0, True), (-280, True), (280, True), (10 * 365 * 86400, True), (-2000, False)):
        leases, key = Leases(), "sha256:" + "1" * 64
        taken = Claimant("elsewhere").take(leases, {key: "a"}, (), now + timedelta(seconds=ahead))
        leases.see(taken.type, 0, {**taken.body, "host": "elsewhere"}, now + timedelta(seconds=min(ahead, 280)))
        holder = leases.holder(key)
        assert holder is not None
        behind = Leases()  # the log's time is that of a machine whose clock is two minutes ahead
        behind.see(taken.type, 0, {**taken.body, "host": "elsewhere"}, now + timedelta(seconds=119))
        lagging = behind.holder(key)
        assert lagging is not None
        assert lagging.alive(now, watched=119) is alive, ahead
        assert holder.alive(now, watched=0) is alive, ahead
        assert holder.alive(now, watched=119) is alive, ahead
        assert not holder.alive(now, watched=121), ahead


def test_only_who_gave_a_sign_lately_is_looked_at(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost is that of the executors at work, however many leases there have been."""
    keys = [f"sha256:{number:064x}" for number in range(600)]
    leases, batch = leases_of(root), list[Draft]()
    for number, key in enumerate(keys):
        batch.append(Claimant(f"executor{number}").take(leases, {key: "a"}, (), utc_now()))
        leases.see(batch[-1].type, leases.length, batch[-1].body, utc_now())
    root.append(batch)
    assert leases_of(root).steps == {key: f"executor{number}" for number, key in enumerate(keys)}
    now = utc_now()
    monkeypatch.setattr(lease, "RECENT", timedelta())
    monkeypatch.setattr(lease, "utc_now", lambda: now)
    root.append([Claimant("executor7").renew(leases, utc_now())])
    late = leases_of(root)
    assert (late.steps, late.length) == ({keys[7]: "executor7"}, leases.length + 1)


@pytest.mark.parametrize("end", [StepFailed("wrong"), Paused("paused"), KeyboardInterrupt("SIGTERM")])
def test_a_step_that_did_not_come_to_its_output_is_free(
    tiny: ModuleType, root: Root, project: Path, end: BaseException
) -> None:
    def stops(task: Task) -> None:
        raise end

    tiny.before_upper.append(stops)
    with pytest.raises((StepFailed, Paused, Interrupted)):
        tiny.run("upper", project)
    assert claimed(root) == {}
    tiny.before_upper.clear()
    assert tiny.run("upper", project).action == "executed"


def test_what_this_process_left_claimed_is_its_own(tiny: ModuleType, root: Root, project: Path) -> None:
    """Its failure could not be recorded: the next call in the process does not wait for it."""
    key = identity(tiny, root, project, "upper")
    root.append([Claimant.of_process().take(leases_of(root), {key: "upper"}, (), utc_now())])
    assert tiny.run("upper", project).action == "executed"
    assert claimed(root) == {}
    assert Claimant.of_process() == Claimant.of_process()


def test_what_is_recorded_already_is_claimed_by_nobody(tiny: ModuleType, root: Root, project: Path) -> None:
    taken = recorded(root)[events.LEASE_TAKEN]
    assert tiny.run("words", project).action == "present"
    assert recorded(root)[events.LEASE_TAKEN] == taken == 1


def test_a_stage_for_ray_has_its_lease_before_anything_is_reserved(
    tiny: ModuleType, root: Root, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits for a lease must not hold what its holder needs to go on. The process of the step executes it under the lease
    of who sent it."""
    key, submitted = identity(tiny, root, project, "upper"), list[dict[str, str]]()
    how = {"plan": tiny.PLAN, "recipe": Recipe(), "root": root, "project": project}

    class Jobs(nullcontext[None]):
        """A cluster that executes at once what it is given."""

        def __enter__(self) -> Self:  # type: ignore[override]
            return self

        def submit(self, job: Job) -> Future[bytes]:
            submitted.append(leases_of(root).steps)
            done = Future[bytes]()
            try:
                run_stage("upper", grant=decode(job.payload, stage.StageTask).grant, **how)
            except StepFailed as error:
                done.set_exception(error)
            else:
                done.set_result(b"")
            return done

    monkeypatch.setattr(stage, "open_jobs", lambda *_, **__: Jobs())
    graph = Claimant("graph")
    root.append([graph.take(leases_of(root), {key: "upper"}, (), utc_now())])
    waits = StepLease.wait

    def wait(self: StepLease) -> None:
        assert submitted == [], "nothing is reserved meanwhile"
        root.append([graph.release(leases_of(root), [key])])
        waits(self)

    def fails(task: Task) -> None:
        raise StepFailed("wrong")

    monkeypatch.setattr(StepLease, "wait", wait)
    tiny.before_upper.append(fails)
    ask = partial(stage.stage_on_ray, "upper", execution=Execution(runner="ray"), force=False, **how)
    with pytest.raises(StepFailed, match="wrong"):
        ask()
    assert submitted == [{key: Claimant.of_process().executor}]
    assert claimed(root) == {}, "it is given back"
    tiny.before_upper.clear()
    assert ask()
    assert (len(submitted), claimed(root), recorded(root)[events.STEP_COMPLETED]) == (2, {}, 2)
    assert not ask(), "it has its output"


def test_what_is_taken_while_the_keeper_looks_is_not_taken_for_lost(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that renews has read the log; then a second lease is taken, and the first one released and taken again."""
    first, second = (f"sha256:{number:064x}" for number in (1, 2))
    real, looked, go_on = Leases.catch_up, threading.Event(), threading.Event()

    def catch_up(self: Leases, root: Root) -> set[str]:
        named = real(self, root)
        if threading.current_thread().name.startswith("leases of"):
            looked.set()
            assert go_on.wait(600)
        return named

    monkeypatch.setattr(Leases, "catch_up", catch_up)
    held = HeldLeases(root, Claimant("mine", timedelta(seconds=0.3)))
    held.catch_up()
    assert held.take({first: "first"})
    assert looked.wait(600)
    assert held.take({second: "second"})
    assert held.end([first]) is not None
    assert held.take({first: "first"})
    go_on.set()
    deadline = utc_now() + timedelta(seconds=600)
    while not recorded(root)[events.LEASE_RENEWED]:
        assert utc_now() < deadline, "nobody renews them"
    held.stop()
    assert held.is_held(first) and held.is_held(second)
    held.catch_up()
    assert held.end([first, second]) is not None
    assert claimed(root) == {}
