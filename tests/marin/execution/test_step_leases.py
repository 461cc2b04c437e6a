"""`marin stage` claims what it executes as graphs do: of two machines on one root one executes a step, the other takes over
its result.

Another machine is a process with a local folder of its own, so no lock excludes it, that names itself otherwise, so nobody
here can see whether it lives.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from types import ModuleType

import pytest

from ledger import Draft
from marin.errors import Interrupted, Paused, StepFailed
from marin.execution.executor import planned
from marin.execution.leases import lease
from marin.execution.leases.lease import Claimant, Claims, utc_now
from marin.execution.leases.step import StepClaim
from marin.execution.step import Task
from marin.recipe.schema import Recipe
from marin.record import events
from marin.record.root import Root, open_root

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
from marin.execution.executor import run_stage
from marin.execution.leases import lease
from marin.recipe.schema import Recipe
from marin.record.root import open_root

real = lease.birth
lease.birth = lambda pid: f"{name}/{real(pid)}" if name != "here" else real(pid)
lease.Claimant.of_process = classmethod(lambda cls: cls(f"{name}-{os.getpid()}", timedelta(seconds=float(term))))

def upper(task):
    print("inside", flush=True)
    for line in sys.stdin:  # until it is told to go on
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
    out, err = process.communicate(told, timeout=60)
    assert process.returncode == 0, err
    return out, err


@pytest.fixture
def root(tiny: ModuleType, project: Path) -> Root:
    tiny.run("words", project)
    return open_root(str(project / ".marin"))


def recorded(root: Root) -> Counter[str]:
    return Counter(event.type for _, event in root.reader().events())


def claims_of(root: Root) -> Claims:
    claims = Claims()
    claims.catch_up(root)
    return claims


def claimed(root: Root) -> dict[str, str]:
    return claims_of(root).steps


def over(root: Root) -> list[str]:
    """The executors whose claims were taken over."""
    found = [event.body["over"] for _, event in root.reader().events() if event.type == events.LEASE_TAKEN]
    return [executor for executors in found for executor in executors]


def identity(tiny: ModuleType, root: Root, project: Path, step: str) -> str:
    return planned(step, plan=tiny.PLAN, recipe=Recipe(), root=root, project=project)[0]


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


def test_who_is_overtaken_before_its_claim_takes_over_the_result(
    tiny: ModuleType, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log refuses its first batch, so neither its run nor its step begins."""
    taking = StepClaim.taking

    def overtaken(claim: StepClaim) -> list[Draft]:
        mine = taking(claim)
        with machine("faster", project, "words") as faster:
            assert ended(faster)[0] == "words executed\n"
        return mine

    monkeypatch.setattr(StepClaim, "taking", overtaken)
    assert tiny.run("words", project).action == "present"
    assert tiny.executed == []
    counts = recorded(open_root(str(project / ".marin")))
    assert (counts[events.RUN_STARTED], counts[events.STEP_STARTED], counts[events.LEASE_TAKEN]) == (1, 1, 1)


def test_what_a_graph_executes_a_stage_waits_for(tiny: ModuleType, root: Root, project: Path) -> None:
    """The claim is of an executor of this machine that lives: of the process of this test."""
    graph, key = Claimant("graph"), identity(tiny, root, project, "upper")
    root.append([graph.take(claims_of(root), {key: "upper"}, (), utc_now())])
    with machine("here", project) as stage:
        assert "executor graph" in said(stage, "upper is being executed by")
        root.append([graph.release(claims_of(root), [key])])
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
        claim = Claimant("asleep", timedelta(seconds=1.5)).take(claims_of(root), {key: "upper"}, (), utc_now())
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
        sleeper.send_signal(signal.SIGSTOP)
        assert tiny.run("upper", project).action == "executed"
        sleeper.send_signal(signal.SIGCONT)
        out, err = ended(sleeper, "go on\n")
    assert out == "upper present\n"
    assert "the claim was lost to another executor; what was made is not recorded" in err
    assert recorded(root)[events.STEP_COMPLETED] == 2
    assert claimed(root) == {}


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
    root.append([Claimant.of_process().take(claims_of(root), {key: "upper"}, (), utc_now())])
    assert tiny.run("upper", project).action == "executed"
    assert claimed(root) == {}
    assert Claimant.of_process() == Claimant.of_process()


def test_what_is_recorded_already_is_claimed_by_nobody(tiny: ModuleType, root: Root, project: Path) -> None:
    taken = recorded(root)[events.LEASE_TAKEN]
    assert tiny.run("words", project).action == "present"
    assert recorded(root)[events.LEASE_TAKEN] == taken == 1
