"""Workers execute tasks: the digest of one process, also when workers are killed at moments drawn from a seed, and where
sources and root are in a bucket. Of two machines that build one collection on one root one does, and the other takes it.

Another machine is a process with a local folder of its own, so no lock excludes it, that names itself otherwise, so nobody
here can see whether it lives.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait as ready
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pytest
from buckets import Bucket

from ledger import open_storage
from marin.kinds.families.collection import COLLECTION_COMPLETED, COLLECTION_SHARD, COLLECTION_STARTED
from marin.plugins.collections.build import BuildRequest, build
from marin.plugins.collections.making import make as making_module
from marin.record import events
from marin.record.creation import create_root
from tests.plugins.collections.labelled import labelled
from tests.plugins.collections.making import root_of

PROJECT = Path(__file__).resolve().parents[3]


def children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, IndexError, ValueError):
                above = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                found.setdefault(above, []).append(int(entry.name))
    return found


def workers_of(parent: int) -> list[int]:
    """The forks of the one process of this program that forks."""
    below = children()
    return [worker for forking in below.get(parent, []) if forks(forking) for worker in below.get(forking, [])]


def forks(process: int) -> bool:
    with suppress(OSError):
        return b"marin.runners.forking" in Path(f"/proc/{process}/cmdline").read_bytes()
    return False


class Killer(threading.Thread):
    """SIGKILL for a worker, as often as there is one to be found, until it is told to end."""

    def __init__(self, seed: int, most: int) -> None:
        super().__init__(daemon=True)
        self.draw, self.most, self.killed, self.ended = random.Random(seed), most, 0, threading.Event()

    def run(self) -> None:
        while self.killed < self.most and not self.ended.wait(self.draw.uniform(0.5, 3.0)):
            if found := workers_of(os.getpid()):
                with suppress(ProcessLookupError):
                    os.kill(self.draw.choice(found), signal.SIGKILL)
                    self.killed += 1


@pytest.mark.survival
@pytest.mark.parametrize("workers", [2, 8])
def test_workers_make_what_one_process_makes_while_they_are_killed(
    project: Path, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making_module, "NEAR_DOCUMENTS", 50)
    known = labelled(11, size=150)
    known.write(project / "raw", files=24)
    asked = BuildRequest((f"{project}/raw/*.jsonl",), evaluations=(f"{project}/test.jsonl",))
    wanted = build(root_of(project), asked).artifact
    create_root(str(project / "other" / ".marin"), origin="marin.test/other")
    killer = Killer(workers, most=10)
    killer.start()
    try:
        made = build(root_of(project / "other"), asked, workers=workers)
    finally:
        killer.ended.set()
        killer.join()
    assert made.artifact == wanted and killer.killed


class Command:
    """`marin ARGUMENT...` in a process of its own, below which all workers are its own. ``work``: the folder
    in which its workers leave results; ``interrupted``: tasks that a kill left unfinished there."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.interrupted: list[Path] = []

    def run(self, *arguments: str, kills: int = 0, seed: int = 0) -> Any:
        """What it prints, as JSON. So many times a worker is killed in the middle of a task, with a drawn number of tasks
        from one kill to the next."""
        command = [sys.executable, "-m", "marin.cli.main", *arguments, "--json"]
        draw, seen = random.Random(seed), set[Path]()
        after = draw.randint(1, 4)
        with TemporaryFile() as said, TemporaryFile() as told:
            running = subprocess.Popen(command, stdout=said, stderr=told, env=os.environ | {"PYTHONPATH": str(PROJECT)})
            stuck = threading.Timer(600, running.kill)
            stuck.start()
            try:
                while not _ended(running, within=0.005):
                    for task in self._at_work() - seen:
                        seen.add(task)
                        after -= 1
                        if after <= 0 and len(self.interrupted) < kills and _interrupted(running.pid, task):
                            self.interrupted.append(task)
                            after = draw.randint(1, 4)
            finally:
                stuck.cancel()
                running.kill()
                running.wait()
            for file in (said, told):
                file.seek(0)
            assert running.returncode == 0, told.read()
            return json.loads(said.read())

    def _at_work(self) -> set[Path]:
        """Folders of tasks that are being done: anyone who is done with one renames it, who is killed leaves it behind."""
        return set(self.work.glob("collection-*/*/*.partial"))


def _ended(running: subprocess.Popen[bytes], *, within: float) -> bool:
    with suppress(subprocess.TimeoutExpired):
        running.wait(within)
    return running.returncode is not None


def _interrupted(command: int, task: Path) -> bool:
    """Kill the worker of this command that is at the task, and wait until it is no more; whether that was before its end."""
    number = int(task.name.split(".")[-2])
    if number not in workers_of(command):
        return False
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(number)
        try:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            assert ready([handle], 60), f"worker {number} does not end"
        finally:
            os.close(handle)
    return task.exists()


@pytest.fixture(params=["folder", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where sources and root lie, the store of the root with it."""
    bucket: Bucket | None = None if request.param == "folder" else request.getfixturevalue(request.param)
    return str(tmp_path / "place") if bucket is None else bucket.url


@pytest.mark.long(seconds=50)
def test_what_killed_workers_make_is_what_one_process_makes_also_in_a_bucket(
    project: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    labelled(11, size=150).write(project / "raw", files=8)
    evaluation, given = f"{project}/test.jsonl", open_storage(place)
    wanted = build(root_of(project), BuildRequest((f"{project}/raw/*.jsonl",), evaluations=(evaluation,)))
    for path in (project / "raw").iterdir():
        given.create(f"raw/{path.name}", path.read_bytes())
    elsewhere = project / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    root = create_root(f"{place}/root", origin="marin.test/workers")
    monkeypatch.setenv("MARIN_ROOT", root.location)
    command = Command(root.local / "work")
    sources = [word for number in (5, 2, 7, 0, 3, 6, 1, 4) for word in ("--source", f"{place}/raw/part-{number}.jsonl")]
    made = command.run("data", "build", *sources, "--evaluation", evaluation, "--workers", "2", kills=2, seed=18)
    assert command.interrupted, "no worker was killed in the middle of a task"
    assert made["artifact"] == wanted.artifact and not made["cached"]
    assert made["documents"] == {"read": wanted.read, "kept": wanted.kept} and made["removed"] == dict(wanted.removed)
    assert not root.store().verify(wanted.artifact) and list(given.list("root/store/"))
    # A verifier, who has nothing of it in the cache.
    monkeypatch.setenv("MARIN_CACHE", str(project / "other-cache"))
    judged = command.run("data", "verify", made["artifact"])
    assert (judged["same"], judged["wrong"], judged["taken"]) == (True, [], 0) and judged["executed"] > 16


# Machines that share a root

MACHINE = """
import logging, os, sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
name, project, term = sys.argv[1:]
from marin.plugins.collections import build as building
from marin.execution.leases import lease
from marin.record.root import open_root

real, make = lease.birth, building.make
lease.birth = lambda pid: f"{name}/{real(pid)}"
lease.Claimant.of_process = classmethod(lambda cls: cls(f"{name}-{os.getpid()}", timedelta(seconds=float(term))))

def making(*given):
    print("inside", flush=True)
    assert sys.stdin.readline() == "go on\\n"
    return make(*given)

building.make = making
root = replace(open_root(f"{project}/.marin"), local=Path(project) / name)
built = building.build(root, building.BuildRequest((f"{project}/raw/*.jsonl",)))
print("taken" if built.again else "made", built.artifact)
"""


def write(project: Path, files: int) -> None:
    (project / "raw").mkdir()
    for number in range(files):
        lines = (json.dumps({"text": f"text {place} of file {number}"}) + "\n" for place in range(20))
        (project / "raw" / f"{number}.jsonl").write_text("".join(lines))


@contextmanager
def machine(name: str, project: Path, term: float = 120) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", MACHINE, name, str(project), str(term)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def is_inside(process: subprocess.Popen[str]) -> bool:
    assert process.stdout is not None
    return process.stdout.readline() == "inside\n"


def ended(process: subprocess.Popen[str], told: str = "") -> list[str]:
    out, err = process.communicate(told, timeout=600)
    assert process.returncode == 0, err
    return out.split()


def test_of_two_machines_that_build_one_collection_one_does(project: Path) -> None:
    write(project, 2)
    root = root_of(project)
    with machine("one", project) as first:
        assert is_inside(first)
        with machine("two", project) as second:
            assert second.stderr is not None
            waiting = next(line for line in second.stderr if "waiting for its end" in line)
            assert f"collection is being executed by executor one-{first.pid}" in waiting
            (made, artifact), taken = ended(first, "go on\n"), ended(second)
    assert (made, taken) == ("made", ["taken", artifact])
    told = [event for _, event in root.reader().events()]
    counts = Counter(event.type for event in told)
    assert (counts[COLLECTION_STARTED], counts[COLLECTION_COMPLETED]) == (1, 1)
    shards = [event.body["identity"] for event in told if event.type == COLLECTION_SHARD]
    assert len(shards) == len(set(shards)) > 2
    assert (counts[events.LEASE_TAKEN], counts[events.LEASE_RELEASED]) == (1, 1)


def test_a_build_that_died_on_another_machine_is_taken_over_after_its_term(project: Path) -> None:
    write(project, 1)
    with machine("one", project, term=1.5) as first:
        assert is_inside(first)
        first.kill()
        first.wait()
        with machine("two", project) as second:
            assert ended(second, "go on\n")[:2] == ["inside", "made"]
    taken = [event for _, event in root_of(project).reader().events() if event.type == events.LEASE_TAKEN]
    assert [event.body["over"] for event in taken] == [[], [f"one-{first.pid}"]]


def test_a_build_that_failed_leaves_no_lease(project: Path) -> None:
    write(project, 1)
    root = root_of(project)
    with machine("one", project) as first:
        assert is_inside(first)
        first.communicate("no\n", timeout=600)
        assert first.returncode != 0
    last = [event for _, event in root.reader().events()][-1]
    assert last.type == events.LEASE_RELEASED
