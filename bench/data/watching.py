"""What the processes of a build hold in memory, each by itself: its command, the workers of its Ray, and the rest of that Ray.

Read from /proc while the build runs, twice a second; only the command that was started and what lies below it is looked at.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from os import sysconf
from pathlib import Path
from typing import Any

SECONDS = 0.5
"""Between two looks."""
COMMAND, WORKER, RAY = "command", "worker", "ray"
"""Kinds of processes: that which was started; one that does the tasks of a collection; any other below it."""
FIELDS = {"anonymous": "RssAnon", "mapped": "RssFile", "shared": "RssShmem", "resident": "VmHWM"}
TICKS = sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Process:
    """A process at one moment. ``began``: its start, so that a number which is given again is another process.

    ``memory``: bytes. ``anonymous``: of its own; ``mapped``: of files, which the kernel drops where it needs room; ``shared``: of
    /dev/shm, Ray's object store; ``resident``: the most of all three together so far, as the kernel counted.
    """

    number: int
    began: int
    kind: str
    cpu_seconds: float
    memory: dict[str, int]


def descendants(process: int) -> list[int]:
    """Numbers of the processes below ``process``."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            children.setdefault(int(_stat(entry)[1]), []).append(int(entry.parent.name))
    found, waiting = [], [process]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def workers_of(process: int) -> list[int]:
    """Numbers of the workers below ``process`` that do the tasks of a collection."""
    return [number for number in descendants(process) if _is_worker(number)]


def processes(command: int) -> Iterator[Process]:
    """The command and what lies below it, now."""
    for number in (command, *descendants(command)):
        with suppress(OSError, ValueError, IndexError):
            yield _process(number, COMMAND if number == command else WORKER if _is_worker(number) else RAY)


def _process(number: int, kind: str) -> Process:
    fields = _stat(Path(f"/proc/{number}/stat"))
    said = dict(line.split(":", 1) for line in Path(f"/proc/{number}/status").read_text().splitlines())
    memory = {name: int(said[field].split()[0]) << 10 for name, field in FIELDS.items() if field in said}
    return Process(number, int(fields[19]), kind, (int(fields[11]) + int(fields[12])) / TICKS, memory)


def _stat(path: Path) -> list[str]:
    """From the third field on: the second, a name, may hold anything."""
    return path.read_text().rpartition(")")[2].split()


def _is_worker(number: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{number}/cmdline").read_bytes().startswith(b"ray::MapWorker")
    return False


class Watch:
    """Peaks of each process of a build."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, int], Process] = {}
        self._phases: dict[tuple[int, int], set[str]] = {}
        self._rest = 0

    def saw(self, found: list[Process], work: Path) -> None:
        """The processes at one moment. ``work``: below it tasks leave ``<phase>/<task>.<process>.partial``."""
        writers = {path.name.split(".")[-2]: path.parent.name for path in work.glob("*/*/*.partial")}
        for one in found:
            key = one.number, one.began
            before = self._last.get(key, one)
            peaks = {name: max(size, before.memory.get(name, 0)) for name, size in one.memory.items()}
            kind = WORKER if before.kind == WORKER else one.kind
            self._last[key] = Process(*key, kind, one.cpu_seconds, before.memory | peaks)
            if (phase := writers.get(str(one.number))) is not None:
                self._phases.setdefault(key, set()).add(phase)
        self._rest = max(self._rest, sum(one.memory.get("anonymous", 0) for one in found if one.kind == RAY))

    def told(self) -> dict[str, Any]:
        """Peaks in bytes: of the command, of each worker process with its phases in the order in which they began, and of the
        rest of Ray: of its own memory the most at one moment, and of what is shared the most that one process holds."""
        kinds: dict[str, list[tuple[tuple[int, int], Process]]] = {COMMAND: [], WORKER: [], RAY: []}
        for key, one in sorted(self._last.items(), key=lambda item: (item[1].began, item[1].number)):
            kinds[one.kind].append((key, one))
        shared = max((one.memory.get("shared", 0) for _, one in kinds[RAY]), default=0)
        return {
            "cpu_seconds": round(sum(one.cpu_seconds for one in self._last.values()), 1),
            "command_memory": kinds[COMMAND][0][1].memory if kinds[COMMAND] else {},
            "worker_memory": [
                {"phases": sorted(self._phases.get(key, ())), **one.memory} for key, one in kinds[WORKER]
            ],
            "rest_of_ray_memory": {"anonymous": self._rest, "shared": shared, "processes": len(kinds[RAY])},
        }


def watched(
    command: list[str], folder: Path, variables: dict[str, str], place: Callable[[Process], None]
) -> tuple[str, float, dict[str, Any]]:
    """Run a command in ``folder`` to its end: what it printed, seconds, and :meth:`Watch.told`.

    Args:
        place: is called with each process whenever it is seen.

    Raises:
        SystemExit: it failed.
    """
    watch, begun = Watch(), time.monotonic()
    with (folder / "printed").open("w+b") as printed:
        running = subprocess.Popen(command, cwd=folder, env=variables, stdout=printed)
        try:
            while running.poll() is None:
                found = list(processes(running.pid))
                for one in found:
                    place(one)
                watch.saw(found, folder / ".marin" / "work")
                with suppress(subprocess.TimeoutExpired):
                    running.wait(SECONDS)
        finally:
            running.kill()
        seconds = time.monotonic() - begun
    if running.wait() != 0:
        raise SystemExit(f"{' '.join(command[:6])} ... ended with {running.returncode}")
    return (folder / "printed").read_text("utf-8"), seconds, watch.told()
