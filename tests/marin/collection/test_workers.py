"""Ray Data executes tasks: the digest of one process, also when workers are killed at moments drawn from a seed."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from marin.collection.build import Asked, build
from marin.collection.making import make as making_module
from marin.record.root import create_root
from tests.marin.collection.labelled import labelled
from tests.marin.collection.making import root_of

pytestmark = pytest.mark.survival


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
