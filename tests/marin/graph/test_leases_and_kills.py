"""Executors that die, sleep, or work side by side: every step is recorded once, and nothing that was recorded is done
again.

Those that come one after the other are forks of a process that has imported them.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from warm import Warm, warmed

from ledger import OutOfSequence, check
from marin.execution.leases.held import HeldLeases
from marin.execution.leases.lease import Claimant, Leases, birth
from marin.graph.execution.loop import Options, execute_graph
from marin.graph.files import load_graph
from marin.kinds.families.graph import GRAPH_COMPLETED
from marin.record import events
from marin.record.root import Root
from tests.marin.execution.stopped import stop
from tests.marin.graph.conftest import Write

STEP = "sha256:" + "5" * 64
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)

GRAPH = """
    def number(context):
        tally(context.address)
        return context.config["n"] + sum(given.value for given in context.inputs.values())

    first = Step("first", number, {"n": 1}, {}, HERE)
    middle = [Step(f"middle/{n}", number, {"n": n}, {"first": first}, HERE) for n in range(6)]
    other = Step("other", number, {"n": 50}, {"first": first})
    steps = [Step("last", number, {"n": 100}, {step.name.replace("/", "-"): step for step in [*middle, other]}, HERE)]
"""
STEPS = 9


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    modules = ("marin.graph.execution.loop", "marin.graph.files", "marin.record.root")
    with warmed(os.environ, modules) as warm:
        yield warm


def leases_of(root: Root) -> Leases:
    """What is claimed now."""
    leases = Leases()
    leases.catch_up(root)
    return leases


PROGRAM = """
import os, signal, sys
from datetime import timedelta
from pathlib import Path
from marin.graph.execution.loop import execute_graph
from marin.graph.files import load_graph
from marin.execution.leases.lease import Claimant
from marin.record.root import Root, open_root

appends, kill_at, after = 0, int(sys.argv[3]), sys.argv[4] == "after"
append = Root.append

def counted(self, drafts):
    global appends
    appends += 1
    if appends == kill_at and not after:
        os.kill(os.getpid(), signal.SIGKILL)
    receipts = append(self, drafts)
    if appends == kill_at and after:
        os.kill(os.getpid(), signal.SIGKILL)
    return receipts

Root.append = counted
file = Path(sys.argv[2])
term = timedelta(seconds=float(sys.argv[5])) if len(sys.argv) > 5 else timedelta(seconds=120)
outcome = execute_graph(load_graph(file), open_root(sys.argv[1]), file=file, claimant=Claimant(os.urandom(4).hex(), term))
print(appends, len(outcome.failures))
"""


def program(root: Root, file: Path, kill_at: int = 0, when: str = "before", *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, root.location, str(file), str(kill_at), when, *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def executor_to_stop(root: Root, file: Path) -> Iterator[subprocess.Popen[str]]:
    """One with short leases, which ends with the block, stopped or not."""
    with program(root, file, 0, "before", "0.2") as process:
        try:
            yield process
        finally:
            process.kill()


def completed(root: Root) -> Counter[str]:
    return Counter(
        str(event.body["address"]) for _, event in root.reader().events() if event.type == events.STEP_COMPLETED
    )


@pytest.mark.long
def test_killed_before_and_after_every_commit_and_called_again(
    write: Write, root: Root, tally: Callable[[], list[str]], warm: Warm
) -> None:
    """One root through all of it: a kill at the first commit, at the second, ... each followed by the next attempt.
    What one attempt recorded the next one does not repeat, so each comes further; the last one comes to the end."""
    file = write(GRAPH)
    seen: Counter[str] = Counter()
    for attempt in range(40):
        done = set(completed(root))
        before = Counter(tally())
        kill = (str(1 + attempt % 3), ("before", "after")[attempt // 3 % 2])
        given = (root.location, str(file), *kill)
        process = warm.run(PROGRAM, given, cwd=Path.cwd(), environment=os.environ, timeout=600)
        executed = Counter(tally()) - before
        assert not done & set(executed), "a recorded step was executed again"
        seen += executed
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, process.stderr
    else:
        pytest.fail("it never came to its end")
    assert process.stdout.split()[1] == "0"
    assert completed(root) == dict.fromkeys(completed(root), 1)
    assert len(completed(root)) == STEPS
    assert attempt > 4, "it was really killed"
    assert leases_of(root).steps == {}


ANYWHERE = """
import os, signal, sys
from pathlib import Path
from marin.graph.execution import loop
from marin.graph.files import load_graph
from marin.record.root import Root, open_root

left = int(sys.argv[3])

def counted(owner, name):
    call = getattr(owner, name)
    def around(*given, **named):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        made = call(*given, **named)
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return made
    setattr(owner, name, around)

for name in ("fsync", "fdatasync", "pwrite", "rename", "replace", "link", "unlink", "mkdir"):
    counted(os, name)
for name in ("_lease", "_call", "_submit", "_release", "_record", "end"):
    counted(loop.GraphExecution, name)
counted(loop, "wait")
file = Path(sys.argv[2])
outcome = loop.execute_graph(load_graph(file), open_root(sys.argv[1]), file=file)
print(left, len(outcome.failures))
"""

WITH_CHILDREN = """
    import signal

    def here(context):
        tally(context.address)
        (context.out / "file").write_text(context.address)
        return context.config["n"]

    def child(context):
        (TALLY.parent / f"pid-{os.getpid()}").touch()
        tally(context.address)
        (context.out / "file").write_text(context.address)
        for order in sorted(TALLY.parent.glob("kill-*")):
            try:
                order.unlink()  # of children that run at once, one takes it
            except FileNotFoundError:
                continue
            if not os.fork():  # the process that it is told to kill, with a grandchild around
                os.execlp("sh", "sh", "-c", "exec sleep 60 >/dev/null 2>&1")  # what the test reads ends without it
            os.kill(os.getppid() if "parent" in order.name else os.getpid(), signal.SIGKILL)
            signal.pause()
        return context.config["n"] + sum(given.value for given in context.inputs.values())

    first = [Step(f"first/{n}", here, {"n": n}, {}, HERE) for n in range(3)]
    children = [Step(f"child/{n}", child, {"n": 10 + n}, {"first": first[n]}) for n in range(3)]
    steps = [Step("last", here, {"n": 100}, {f"child-{n}": step for n, step in enumerate(children)}, HERE)]
"""


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.faults) for seed in range(2, 12))])
def test_killed_anywhere_and_called_again(
    write: Write, root: Root, tally: Callable[[], list[str]], warm: Warm, seed: int
) -> None:
    """The executor is killed before or after a drawn one of all it does to files, to jobs and to what it knows: so
    between the bytes and the event of a result, too. Then a child kills it, and a child kills itself. Each time it is
    called again."""
    file, draw = write(WITH_CHILDREN), random.Random(seed)
    cache = Path(os.environ["TALLY"]).parent
    killed = 0
    for attempt in range(60):
        if attempt in (3, 5):
            (cache / f"kill-{'parent' if attempt == 3 else 'itself'}").touch()
        done, before = set(completed(root)), Counter(tally())
        point = draw.randrange(1, 40 * (attempt + 1)) if attempt < 12 else 0
        given = (root.location, str(file), str(point))
        process = warm.run(ANYWHERE, given, cwd=Path.cwd(), environment=os.environ, timeout=600)
        for leaver in cache.glob("pid-*"):  # children go with it
            pid = int(leaver.name.removeprefix("pid-"))
            deadline = time.monotonic() + 600
            while birth(pid):
                assert time.monotonic() < deadline, "a child outlived its executor"
            leaver.unlink()
        assert not done & set(Counter(tally()) - before), "a recorded step was executed again"
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, process.stderr
        killed += 1
    assert (process.stdout.split()[1], killed > 2) == ("0", True)
    assert completed(root) == dict.fromkeys(completed(root), 1)
    assert len(completed(root)) == 7
    assert leases_of(root).steps == {}
    assert check(root.storage, [root.verifier]) == []


def test_two_executors_share_the_work_and_do_no_step_twice(
    write: Write, root: Root, tally: Callable[[], list[str]]
) -> None:
    file = write("""
        def number(context):
            tally(context.address)
            return context.config["n"]

        ones = [Step(f"one/{n}", number, {"n": n}) for n in range(5)]
        steps = [Step(f"two/{n}", number, {"n": 10 + n}, {"one": ones[n % 5]}, HERE) for n in range(20)]
    """)
    both = [program(root, file), program(root, file)]
    for process in both:
        with process:
            out, err = process.communicate(timeout=600)
        assert (process.returncode, out.split()[-1:]) == (0, ["0"]), err
    assert sorted(tally()) == sorted([f"one/{n}" for n in range(5)] + [f"two/{n}" for n in range(20)])
    assert set(completed(root).values()) == {1}
    assert len(completed(root)) == 25


def test_a_claim_of_an_executor_on_another_machine_holds_until_its_term_has_passed(
    write: Write, root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(GRAPH)
    graph = load_graph(file)
    from marin.graph.planning import Planner

    first = Planner(graph, root).identity(graph.nodes["first"]).digest
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("marin.execution.leases.lease.birth", lambda pid: "another machine/1")
        claim = Claimant("asleep", timedelta(seconds=1.5)).take(
            leases_of(root), {first: "first"}, (), datetime.now(UTC)
        )
    root.append([claim])
    outcome = execute_graph(graph, root, file=file)
    assert outcome.failures == {}
    (taken,) = [
        event.body for _, event in root.reader().events() if event.type == events.LEASE_TAKEN and event.body["over"]
    ]
    assert taken["over"] == ["asleep"]
    (begun,) = [
        event
        for _, event in root.reader().events()
        if event.type == events.STEP_STARTED and event.body["address"] == "first"
    ]
    assert begun.time > claim.body["until"], "not before its term was over"


def test_the_result_of_an_executor_that_lost_its_claim_is_not_recorded(write: Write, root: Root) -> None:
    """It slept through its term; meanwhile another one did the step. Its own result is dropped, the other one's is a
    hit."""
    file = write("""
        def slow(context):
            (TALLY.parent / "inside").touch()
            while not (TALLY.parent / "go on").exists():
                pass
            tally("slow")
            return 1

        steps = [Step("slow", slow, {}, {}, HERE)]
    """)
    cache = Path(os.environ["TALLY"]).parent
    with executor_to_stop(root, file) as sleeper:
        while not (cache / "inside").exists():
            assert sleeper.poll() is None
        stop(root, sleeper.pid)
        (cache / "go on").touch()
        outcome = execute_graph(load_graph(file), root, file=file)
        assert outcome.results["slow"].action == "executed"
        sleeper.send_signal(signal.SIGCONT)
        out, err = sleeper.communicate(timeout=600)
    assert (sleeper.returncode, out.split()[1]) == (0, "0"), err
    assert completed(root) == {"slow": 1}
    assert "the lease was lost" in err


@pytest.mark.parametrize("where", ["HERE", "None"])
def test_a_stopped_executor_and_the_one_that_takes_over_have_folders_of_their_own(
    write: Write, root: Root, tally: Callable[[], list[str]], where: str
) -> None:
    """The first one is stopped in the middle of its files, in its own process or in that of a job; the second makes them. The
    first finds its folder as it left it, and its result is dropped."""
    file = write(f"""
        def slow(context):
            (context.out / "text").write_text("one ")
            (TALLY.parent / "inside").touch()
            while not (TALLY.parent / "go on").exists():
                pass
            with (context.out / "text").open("a") as stream:
                stream.write("two")
            tally("slow")

        steps = [Step("slow", slow, {{}}, {{}}{", HERE" if where == "HERE" else ""})]
    """)
    cache = Path(os.environ["TALLY"]).parent
    with executor_to_stop(root, file) as sleeper:
        while not (cache / "inside").exists():
            assert sleeper.poll() is None
        stopped = [sleeper.pid, *children(sleeper.pid)]
        stop(root, *stopped)
        (cache / "go on").touch()
        outcome = execute_graph(load_graph(file), root, file=file)
        assert outcome.failures == {}
        for number in stopped:
            os.kill(number, signal.SIGCONT)
        out, err = sleeper.communicate(timeout=600)
    assert (sleeper.returncode, out.split()[1]) == (0, "0"), err
    assert completed(root) == {"slow": 1} and tally() == ["slow", "slow"]
    with root.store().open_file(outcome.results["slow"].output.artifact, "text") as stream:
        assert stream.read() == b"one two"


def children(number: int) -> list[int]:
    """The processes that this one has started."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(stat.read_text(errors="replace").rpartition(")")[2].split()[1]) == number:
                found.append(int(stat.parent.name))
    return found


@pytest.mark.parametrize("pid", [0, -1, 2**22 + 1, 2**53 - 1])
@pytest.mark.parametrize("year", [1, 9999])
def test_a_claim_of_no_process_at_no_time_keeps_nothing_for_long(pid: int, year: int) -> None:
    """A log of somebody else may say anything."""
    at = datetime(year, 12, 31, 23, 59, tzinfo=UTC)
    body = {
        "executor": "odd",
        "host": os.uname().nodename,
        "pid": pid,
        "born": birth(os.getpid()),
        "over": [],
        "until": "9999-12-31T23:59:59.999999Z",
        "steps": {STEP: "a"},
        "term": 2**53 - 1,
    }
    leases = Leases()
    leases.see(events.LEASE_TAKEN, 0, body, at)
    assert leases.living() == []
    leases.see(events.LEASE_TAKEN, 1, {**body, "host": "elsewhere"}, at)
    holder = leases.holder(STEP)
    assert holder is not None
    assert not holder.alive(datetime.now(UTC) + timedelta(hours=1), watched=3600)


def test_claims_follow_from_the_events_alone() -> None:
    leases, mine = Leases(), Claimant("mine", timedelta(seconds=60))
    taken = mine.take(leases, {STEP: "a"}, (), NOW)
    leases.see(taken.type, 0, taken.body, NOW)
    holder = leases.holder(STEP)
    assert holder is not None
    assert (holder.executor, holder.alive(NOW), holder.alive(NOW + timedelta(seconds=61))) == ("mine", True, False)
    renewed = mine.renew(leases, NOW + timedelta(seconds=50))
    leases.see(renewed.type, 1, renewed.body, NOW + timedelta(seconds=50))
    assert leases.steps == {STEP: "mine"}
    assert leases.holder(STEP).alive(NOW + timedelta(seconds=100))  # type: ignore[union-attr]
    leases.see(taken.type, 0, taken.body, NOW)  # seen before: nothing
    theirs = Claimant("theirs").release(leases, [STEP])
    leases.see(theirs.type, 2, theirs.body, NOW)
    assert leases.steps == {STEP: "mine"}, "nobody releases for somebody else"
    released = mine.release(leases, [STEP])
    assert released.expect_seq == 3
    leases.see(released.type, 3, released.body, NOW)
    assert leases.steps == {}


def test_a_dead_process_is_seen_at_once_and_a_number_used_again_is_another_process() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        born = birth(process.pid)
        assert born
        leases = Leases()
        taken = Claimant("x").take(leases, {STEP: "a"}, (), NOW)
        leases.see(taken.type, 0, {**taken.body, "pid": process.pid, "born": born}, NOW)
        holder = leases.holder(STEP)
        assert holder is not None
        assert holder.alive(NOW)
        process.kill()
    assert not holder.alive(NOW)
    leases.see(taken.type, 1, {**taken.body, "pid": os.getpid(), "born": born}, NOW)
    again = leases.holder(STEP)
    assert again is not None
    assert not again.alive(NOW), "the number is somebody else's now"


def test_the_log_takes_one_of_two_claims(root: Root) -> None:
    leases = Leases()
    root.append([Claimant("one").take(leases, {STEP: "a"}, (), NOW)])
    with pytest.raises(OutOfSequence):
        root.append([Claimant("two").take(leases, {STEP: "a"}, (), NOW)])


def test_who_finds_all_in_the_ledger_has_no_business_with_leases(
    write: Write, root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it costs does not depend on how many there have been."""
    file = write(GRAPH)
    assert execute_graph(load_graph(file), root, file=file).failures == {}

    def read(self: Leases, root: Root) -> set[str]:
        raise AssertionError("nothing is to be executed")

    monkeypatch.setattr(Leases, "catch_up", read)
    assert execute_graph(load_graph(file), root, file=file).counts == {"cached": STEPS}


@pytest.mark.long(seconds=6)
def test_steps_that_last_longer_than_the_term_are_done_once(
    write: Write, root: Root, tally: Callable[[], list[str]]
) -> None:
    """Called in the executor's own process, one after the other: what is not done yet stays its own."""
    file = write("""
        import time

        def slow(context):
            time.sleep(1)  # as long as it takes: four of them, and the term is shorter
            tally(context.address)
            return 1

        steps = [Step(f"slow/{n}", slow, {"n": n}, {}, HERE) for n in range(4)]
    """)
    both = [program(root, file, 0, "before", "2.5") for _ in range(2)]
    for process in both:
        with process:
            out, err = process.communicate(timeout=600)
        assert (process.returncode, out.split()[-1:]) == (0, ["0"]), err
    assert sorted(tally()) == [f"slow/{n}" for n in range(4)]
    assert completed(root) == {f"slow/{n}": 1 for n in range(4)}


def test_a_signal_right_after_the_leases_were_taken_gives_them_back(
    write: Write, root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, real = write(GRAPH), HeldLeases.take

    def take(self: HeldLeases, *given: object) -> bool:
        taken = real(self, *given)  # type: ignore[arg-type]
        os.kill(os.getpid(), signal.SIGTERM)
        return taken

    with monkeypatch.context() as signalled:
        signalled.setattr(HeldLeases, "take", take)
        with pytest.raises(KeyboardInterrupt):
            execute_graph(load_graph(file), root, file=file)
    assert leases_of(root).steps == {}
    (ended,) = [event.body for _, event in root.reader().events() if event.type == GRAPH_COMPLETED]
    assert ended["outcome"] == "interrupted"


def test_a_second_execution_that_came_to_no_end_compares_nothing(
    write: Write, root: Root, tally: Callable[[], list[str]]
) -> None:
    """Of a lease that was lost, or a machine that was not there, nothing follows about the step."""
    file = write("""
        from ledger import Unavailable

        def once(context):
            tally("once")
            if len((TALLY).read_text().split()) > 1:
                raise Unavailable("the machine is gone")
            return 1

        steps = [Step("once", once, {}, {}, HERE)]
    """)
    outcome = execute_graph(load_graph(file), root, file=file, options=Options(check=True))
    assert tally() == ["once", "once"]
    assert (outcome.failures, list(outcome.nondeterministic)) == ({}, [])
