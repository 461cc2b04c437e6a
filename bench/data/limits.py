"""Control groups of memory, below the group of the process that measures: one for the command of a build and one for its workers.

Of version 1 (``memory.limit_in_bytes``) or 2 (``memory.max``), whichever the machine has and lets us write; where it does not,
nothing is limited and :func:`groups` says so. Pages of files count too, where they were first read or written: so all workers are
in one group, since what one of them wrote is mapped by the others. What a process took before it was moved to its group counts
where it was before.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from bench.data.watching import RAY, WORKER, Process

MOUNTED = Path("/sys/fs/cgroup")
LIMIT = {1: "memory.limit_in_bytes", 2: "memory.max"}
ENDED = {1: "memory.oom_control", 2: "memory.events"}
"""Where the kernel says, as ``oom_kill N``, how many processes it ended because the group was full."""


@dataclass
class Groups:
    """A group for each kind of process. ``most``: bytes of a process; the workers together have so many times as much as there
    are, and what is neither the command nor a worker has no limit."""

    parent: Path
    version: int
    most: int
    workers: int
    _folders: set[str] = field(default_factory=set)
    _placed: set[tuple[int, int, str]] = field(default_factory=set)

    @property
    def by(self) -> str:
        """What limits."""
        return f"a control group of the command, one of the workers together ({LIMIT[self.version]})"

    def place(self, process: Process) -> None:
        """Into its group, unless it is there."""
        key = process.number, process.began, process.kind
        if key in self._placed:
            return
        folder = self.parent / process.kind
        if process.kind not in self._folders:
            folder.mkdir(exist_ok=True)
            self._folders.add(process.kind)
            if process.kind != RAY:
                times = self.workers if process.kind == WORKER else 1
                (folder / LIMIT[self.version]).write_text(str(self.most * times))
        with suppress(ProcessLookupError):  # ended meanwhile
            (folder / "cgroup.procs").write_text(str(process.number))
            self._placed.add(key)

    def ended(self) -> int:
        """How many processes the kernel ended because their group was full."""
        count = 0
        for kind in self._folders:
            said = dict(line.split() for line in (self.parent / kind / ENDED[self.version]).read_text().splitlines())
            count += int(said.get("oom_kill", 0))
        return count

    def remove(self) -> None:
        """All of them; the processes have ended."""
        for folder in (*(self.parent / kind for kind in self._folders), self.parent):
            with suppress(OSError):
                folder.rmdir()


def own_group(said: str, mounted: Path = MOUNTED) -> tuple[Path, int]:
    """The folder of the group of memory that a process is in, and the version. ``said``: what its /proc/PID/cgroup says."""
    unified = mounted
    for line in said.splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return mounted / "memory" / path.lstrip("/"), 1
        if not controllers:
            unified = mounted / path.lstrip("/")
    return unified, 2


@contextmanager
def groups(most: int, workers: int, mounted: Path = MOUNTED) -> Iterator[Groups | None]:
    """Groups of ``most`` bytes a process; None where there cannot be any."""
    own, version = own_group(Path("/proc/self/cgroup").read_text(), mounted)
    made = Groups(own / f"marin-bench-{os.getpid()}", version, most, workers)
    try:
        made.parent.mkdir()
        probe = made.parent / "probe"
        probe.mkdir()
        try:
            with (probe / LIMIT[version]).open("r+") as file:  # never made by us: the kernel offers it, or does not
                file.write(str(most))
        finally:
            probe.rmdir()
    except OSError:
        with suppress(OSError):
            made.parent.rmdir()
        yield None
        return
    try:
        yield made
    finally:
        made.remove()
