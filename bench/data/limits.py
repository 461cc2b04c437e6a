"""Control groups of memory, one for each process that is to be limited, below the group of whoever measures.

Of version 1 (``memory.limit_in_bytes``) or 2 (``memory.max``), whichever the machine has and lets us write; where it does not,
nothing is limited and :func:`groups` says so. Files that a process maps count too: what it read first is its own. What it took
before it was moved to its group counts where it was before.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from bench.data.watching import RAY, Process

MOUNTED = Path("/sys/fs/cgroup")
LIMIT = {1: "memory.limit_in_bytes", 2: "memory.max"}
ENDED = {1: "memory.oom_control", 2: "memory.events"}
"""Where the kernel says, as ``oom_kill N``, how many processes it ended because the group was full."""


@dataclass
class Groups:
    """A group of ``most`` bytes for each process of a build, but one without a limit for what is neither the command nor a
    worker."""

    parent: Path
    version: int
    most: int
    _of: dict[tuple[int, int], Path] = field(default_factory=dict)

    @property
    def by(self) -> str:
        """What limits."""
        return f"a control group for each process ({LIMIT[self.version]})"

    def place(self, process: Process) -> None:
        """Into its group, unless it is there."""
        rest = process.kind == RAY
        key = (0, 0) if rest else (process.number, process.began)
        if key not in self._of:
            self._of[key] = folder = self.parent / f"{process.kind}-{process.number}-{process.began}"
            folder.mkdir(exist_ok=True)
            if not rest:
                (folder / LIMIT[self.version]).write_text(str(self.most))
                self._admit(folder, process.number)
        if rest:
            self._admit(self._of[key], process.number)

    def _admit(self, folder: Path, number: int) -> None:
        with suppress(ProcessLookupError):  # ended meanwhile
            (folder / "cgroup.procs").write_text(str(number))

    def ended(self) -> int:
        """How many processes the kernel ended because their group was full."""
        count = 0
        for folder in self._of.values():
            said = dict(line.split() for line in (folder / ENDED[self.version]).read_text().splitlines())
            count += int(said.get("oom_kill", 0))
        return count

    def remove(self) -> None:
        """All of them; the processes have ended."""
        for folder in (*self._of.values(), self.parent):
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
def groups(most: int, mounted: Path = MOUNTED) -> Iterator[Groups | None]:
    """Groups of ``most`` bytes each; None where there cannot be any."""
    own, version = own_group(Path("/proc/self/cgroup").read_text(), mounted)
    made = Groups(own / f"marin-bench-{os.getpid()}", version, most)
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
