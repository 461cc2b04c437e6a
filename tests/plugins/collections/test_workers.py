"""Ray Data executes tasks: the digest of one process, also when workers are killed at moments drawn from a seed, and where
sources and root are in a bucket."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pytest
from buckets import Bucket

from ledger import open_storage
from marin.plugins.collections.build import Asked, build
from marin.plugins.collections.making import make as making_module
from marin.record.root import create_root
from tests.plugins.collections.labelled import labelled
from tests.plugins.collections.making import root_of

PROJECT = Path(__file__).resolve().parents[3]


def descendants(parent: int) -> Iterator[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, IndexError, ValueError):
                above = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(above, []).append(int(entry.name))
    waiting = [parent]
    while waiting:
        found = children.get(waiting.pop(), [])
        yield from found
        waiting += found


def workers_of(parent: int) -> list[int]:
    found = []
    for number in descendants(parent):
        with suppress(OSError):
            if b"ray::MapWorker" in Path(f"/proc/{number}/cmdline").read_bytes():
                found.append(number)
    return found


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
    asked = Asked((f"{project}/raw/*.jsonl",), evaluations=(f"{project}/test.jsonl",))
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
            assert select.select([handle], [], [], 60)[0], f"worker {number} does not end"
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
    wanted = build(root_of(project), Asked((f"{project}/raw/*.jsonl",), evaluations=(evaluation,)))
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
    # A verifier, who has nothing of it in his cache.
    monkeypatch.setenv("MARIN_CACHE", str(project / "other-cache"))
    judged = command.run("data", "verify", made["artifact"])
    assert (judged["same"], judged["wrong"], judged["taken"]) == (True, [], 0) and judged["executed"] > 16
