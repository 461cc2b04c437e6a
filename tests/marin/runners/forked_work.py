"""Work for the forks of test_forked.py, in a module that a process finds by its name."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

from marin.errors import Unsupported
from marin.work.placed import Worker

PREPARED: list[int] = []
"""Processes that prepared: a fork has the one that it was forked from."""


def prepare(setup: str) -> None:
    if setup == "cannot":
        raise ValueError("what cannot be prepared cannot begin either")
    PREPARED.append(os.getpid())


def begin(setup: str) -> Callable[[list[str]], list[str]]:
    """Does tasks: ``echo``; ``kill FILE``, itself, unless that file is there; ``kill FILE once``, which makes it; ``raise``;
    ``hold TOLD NEVER``, which says in one pipe which process is at it and waits at the other."""
    if setup == "cannot":
        raise Unsupported("a worker that cannot begin", where="here", expected="this", found="that", cure="none")

    def work(task: list[str]) -> list[str]:
        if task[0] == "kill" and not Path(task[1]).exists():
            if len(task) > 2:
                Path(task[1]).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if task[0] == "raise":
            raise RuntimeError("what no task should raise")
        if task[0] == "hold":
            Path(task[1]).write_text(f"{os.getpid()} {os.getppid()}\n")
            Path(task[2]).read_text()
        return [*task, os.environ.get("TOLD", setup), str(os.getpid()), *map(str, PREPARED)]

    return work


WORKER = Worker(f"{__name__}:WORKER", str, list[str], list[str], begin, prepare)
