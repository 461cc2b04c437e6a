"""A training on Ray in a process of its own, as a user would start it, and the hands that kill parts of it."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marin.record.root import open_root

if TYPE_CHECKING:
    from ledger import Event
    from tests.e2e.conftest import Project

MARIN = "import sys; from marin.cli.main import main; sys.argv[0] = 'marin'; main()"
WORKER, WRITER, CONTROLLER, HEAD = "ray::RayTrainWorker", "ray::LedgerWriter", "ray::TrainController", "gcs_server"
PATIENCE_SECONDS = 600
"""A busy machine is slow: this only ends a test that hangs."""


def longer(project: Project, steps: int, segment: int) -> Project:
    """The project with a longer training that is not yet done: one that leaves time to be killed in."""
    path = project.folder / "params.yaml"
    params = json.loads(path.read_text(encoding="utf-8"))
    params["trainer"] |= {"num_steps": steps, "steps_per_segment": segment}
    path.write_text(json.dumps(params), encoding="utf-8")
    for step in ("corpus", "tokenizer", "tokens"):
        done = project.marin("stage", step)
        assert done.returncode == 0, done.stderr
    (project.folder / "artifacts" / "train.json").unlink(missing_ok=True)
    return project


def trained_digest(project: Project) -> str:
    """The state that the pointer names."""
    pointer = json.loads((project.folder / "artifacts" / "train.json").read_text(encoding="utf-8"))
    return str(pointer["digest"])


def events(project: Project, kind: str | None = None) -> list[Event]:
    """What the ledger holds, in order."""
    found = [event for _, event in open_root(str(project.root)).reader().events()]
    return [event for event in found if kind in (None, event.type)]


def processes(project: Project, title: str = "") -> dict[int, str]:
    """Living processes that were started for ``project`` (its cache is in their environment), by number."""
    mark = f"MARIN_CACHE={project.home / 'cache'}".encode()
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark not in (folder / "environ").read_bytes().split(b"\0"):
                continue
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            descriptor = os.pidfd_open(int(folder.name))
            with os.fdopen(descriptor):
                if title in line and not select.select([descriptor], [], [], 0)[0]:
                    found[int(folder.name)] = line
    return found


def listening(numbers: Iterable[int]) -> set[str]:
    """The addresses at which these processes listen, as /proc/net writes them (7F000001 backwards is the loopback
    one)."""
    sockets = set()
    for number in numbers:
        with suppress(OSError):
            sockets |= {os.readlink(link) for link in Path(f"/proc/{number}/fd").iterdir()}
    lines = [
        line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    ]
    return {line[1].partition(":")[0] for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in sockets}


@dataclass
class RayTraining:
    """`marin stage train --runner ray` under way."""

    project: Project
    process: subprocess.Popen[str]

    def until(self, reached: Callable[[], bool]) -> bool:
        """Wait until something is so; False when the training ended first."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not reached():
            if self.process.poll() is not None:
                if self.process.returncode > 0:
                    raise AssertionError(f"exit status {self.process.returncode}: {self.ended()[1]}")
                return False
            assert time.monotonic() < deadline, "this never happens"
            time.sleep(0.2)
        return True

    def until_recorded(self, kind: str, count: int) -> bool:
        """Wait until the ledger holds ``count`` events of a type."""
        return self.until(lambda: len(events(self.project, kind)) >= count)

    def kill(self, title: str, count: int = 1) -> list[int]:
        """SIGKILL for ``count`` processes of this title (0: all of them), as they are now."""
        chosen = sorted(processes(self.project, title))
        chosen = chosen if count == 0 else chosen[:count]
        for number in chosen:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        return chosen

    def ended(self) -> tuple[int, str]:
        """Exit status and what was said on stderr."""
        _, told = self.process.communicate(timeout=PATIENCE_SECONDS)
        return self.process.returncode, told


@contextmanager
def training(
    project: Project, *arguments: str, processes: int = 2, devices: int = 8, environment: dict[str, str] | None = None
) -> Iterator[RayTraining]:
    """Started; ended with the block, whatever happens."""
    command = [
        sys.executable,
        "-c",
        MARIN,
        "stage",
        "train",
        "--runner",
        "ray",
        "--processes",
        str(processes),
        "--devices",
        str(devices),
        *arguments,
    ]
    with subprocess.Popen(
        command,
        cwd=project.folder,
        env=project.environment() | (environment or {}),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            yield RayTraining(project, process)
        finally:
            process.kill()


def nothing_left(project: Project, seconds: float = 0.0) -> bool:
    """Whether no process of the project is left, at the latest after so many seconds (a killed driver's Ray ends by
    itself)."""
    deadline = time.monotonic() + seconds
    while processes(project):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def bodies(project: Project, kind: str) -> list[dict[str, Any]]:
    """The bodies of all events of a type."""
    return [dict(event.body) for event in events(project, kind)]
