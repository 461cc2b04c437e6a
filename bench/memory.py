"""The most memory that a command takes in one checkout beside another, of all its processes.

    python -m bench.memory OLD NEW [--calls 3] [--json] -- .venv/bin/marin verify latest --no-record
    python -m bench.memory OLD NEW --until 'http://' [--idle 20] -- .venv/bin/marin ui --port 0

OLD and NEW are checkouts as in bench.beside, and the command is called in each by turns, with its homes. All processes
below the command are looked at ten times a second:

    together      the most that their proportional set sizes sum to: what they share counts once
    largest       the most that one of them has had resident at any time (VmHWM), as the kernel counted
    idle          with ``--until``: the sum so many seconds after the command printed the text, when it is ended

MiB; of each row the largest call, but for idle its median. Exit status 1 when a command fails or ends before it printed the text.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from bench.beside import environment
from bench.data.watching import processes

SECONDS = 0.1
"""Between two looks."""
LONGEST = 1800.0
"""A command that takes longer than so many seconds is ended, which fails."""


class Peaks:
    """What the processes of one call had at most: bytes."""

    def __init__(self) -> None:
        self.together, self.largest, self.now = 0, 0, 0

    def look(self, command: int) -> None:
        """At the command and what lies below it."""
        self.now = 0
        for one in processes(command):
            self.largest = max(self.largest, one.memory.get("resident", 0))
            with suppress(OSError, ValueError, IndexError):
                rollup = Path(f"/proc/{one.number}/smaps_rollup").read_text()
                self.now += int(rollup.split("\nPss:", 1)[1].split()[0]) << 10
        self.together = max(self.together, self.now)


def called(checkout: Path, arguments: list[str], until: str | None, idle: float) -> dict[str, float]:
    """One call there: MiB by the names of the module's description.

    Raises:
        SystemExit: it failed.
    """
    peaks, begun = Peaks(), time.monotonic()
    answered, at_answer = None, 0
    with tempfile.TemporaryFile("w+") as said:
        running = subprocess.Popen(arguments, cwd=checkout, env=environment(checkout), stdout=said, stderr=said)
        while running.poll() is None and time.monotonic() - begun < LONGEST:
            peaks.look(running.pid)
            if until is not None and answered is None:
                said.seek(0)
                answered = time.monotonic() if until in said.read() else None
                at_answer = peaks.largest
            if answered is not None and time.monotonic() - answered >= idle:
                break
            with suppress(subprocess.TimeoutExpired):
                running.wait(SECONDS)
        alive = running.poll() is None
        if alive:
            running.send_signal(signal.SIGTERM)
        status = running.wait()
        if (answered is None) if until is not None else (alive or status):
            said.seek(0)
            raise SystemExit(f"{checkout}: exit status {status}: {said.read()[-2000:]}")
    found = {"together": peaks.together, "largest": peaks.largest}
    if until is not None:
        found |= {"answered": at_answer, "idle": peaks.now}
    return {name: round(size / (1 << 20), 1) for name, size in found.items()}


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--calls", type=int, default=1)
    parser.add_argument("--until", metavar="TEXT", help="the command is ended after it printed this")
    parser.add_argument("--idle", type=float, default=0.0, metavar="SECONDS", help="how long after that")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("arguments", nargs="+", metavar="-- COMMAND")
    asked = parser.parse_args()
    calls: dict[Path, list[dict[str, float]]] = {asked.old.resolve(): [], asked.new.resolve(): []}
    for _ in range(asked.calls):
        for checkout, found in calls.items():
            found.append(called(checkout, asked.arguments, asked.until, asked.idle))
            sys.stderr.write(f"{checkout.name}: {json.dumps(found[-1])}\n")
    old, new = (
        {name: (statistics.median if name == "idle" else max)([one[name] for one in found]) for name in found[0]}
        for found in calls.values()
    )
    if asked.json:
        sys.stdout.write(json.dumps({"command": " ".join(asked.arguments), "old": old, "new": new}) + "\n")
        return 0
    for name in new:
        row = f"{new[name]:.0f} MiB beside {old[name]:.0f}: {new[name] / old[name]:.2f}"
        sys.stdout.write(f"{' '.join(asked.arguments)}, {name}: {row}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
