"""A process that has imported what computes, and forks itself for each program that a test runs.

A fork has its own memory, environment, folder and exit status, as a new process has, and is spared the six seconds in
which jax and Levanter are imported, and so are the jobs that it starts (warm_jobs.py). The contract of arithmetic is in force
in it, as after the program's own `apply`. What is about how a process begins, other devices, or kills, needs a new
process.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SERVER = Path(__file__).with_name("warm_server.py")


@dataclass(frozen=True)
class Warm:
    """The process, and a folder for what programs print."""

    process: subprocess.Popen[str]
    folder: Path

    def run(
        self, program: str, arguments: Sequence[str], *, cwd: Path, environment: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """`python -c PROGRAM ARGUMENT...` in a fork; ``timeout`` in seconds.

        Raises:
            subprocess.TimeoutExpired: the program was killed.
        """
        told = [self.folder / name for name in ("stdout", "stderr")]
        asked = {
            "program": program,
            "arguments": list(arguments),
            "cwd": str(cwd),
            "environment": dict(environment),
            "told": [str(path) for path in told],
        }
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        child = int(self.process.stdout.readline())
        late = not select.select([self.process.stdout], [], [], timeout)[0]
        if late:
            os.kill(child, signal.SIGKILL)
        status = int(self.process.stdout.readline())
        if late:
            raise subprocess.TimeoutExpired([program, *arguments], timeout)
        return subprocess.CompletedProcess(
            [program, *arguments], status, *(path.read_text(encoding="utf-8") for path in told)
        )


@contextmanager
def warmed(folder: Path, environment: Mapping[str, str], modules: Sequence[str] = ()) -> Iterator[Warm]:
    """The process, until the block ends. ``environment`` says where modules are found. With ``modules`` it has imported
    these, and nothing else of all this."""
    with subprocess.Popen(
        [sys.executable, str(SERVER), *modules],
        cwd=folder,
        env=dict(environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as process:
        yield Warm(process, folder)
        assert process.stdin is not None
        process.stdin.close()
