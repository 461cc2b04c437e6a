"""Thousands of small files at once, by a process for each processor: Python's threads cannot share this work.

A file of a kilobyte costs a few calls of the system, and between two calls a thread waits for the lock of the interpreter. So
the calls are made by short-lived processes that run `ledger.fileworker`, which says what they can do. They are an accelerator
and decide nothing: whatever one of them reports as not done, for any reason, the caller does itself, and says what is wrong.
Work goes in by standard input and results come out by standard output; no path is ever part of a command.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from itertools import pairwise
from typing import IO, Final

from ledger import fileworker

WORTH: Final = 2000
"""Files below which a process costs more than it saves."""
MOST_BYTES: Final = fileworker.MOST_BYTES
_SECONDS: Final = 600.0
NOT_DONE: Final = "-"

Record = tuple[str, ...]


def work(verb: str, common: Record, records: Sequence[Record], processes: int) -> list[str]:
    """The result of each record, "-" for what was not done. Neighbours go to one process.

    The processes are given files and not pipes: nothing is to be fed to them or drained meanwhile.
    """
    bounds = [len(records) * number // processes for number in range(processes + 1)]
    portions = [records[start:end] for start, end in pairwise(bounds)]
    answers: list[str] = []
    with ExitStack() as stack:
        running = [_start(stack, verb, common, portion) for portion in portions]
        for portion, process in zip(portions, running, strict=True):
            given = [] if process is None else _finish(*process)
            answers += given + [NOT_DONE] * (len(portion) - len(given))
    return answers


def _start(
    stack: ExitStack, verb: str, common: Record, records: Sequence[Record]
) -> tuple[subprocess.Popen[bytes], IO[bytes]] | None:
    if not sys.executable:
        return None
    command = [sys.executable, "-I", "-S", os.path.abspath(fileworker.__file__), verb]
    try:
        asked, answered = map(stack.enter_context, (tempfile.TemporaryFile(), tempfile.TemporaryFile()))  # noqa: SIM115
        asked.write(os.fsencode("\0\n".join(["\0".join(record) for record in (common, *records)]) + "\0\n"))
        asked.seek(0)
        process = subprocess.Popen(command, stdin=asked, stdout=answered, stderr=subprocess.DEVNULL)
    except OSError:
        return None
    stack.callback(_end, process)
    return process, answered


def _finish(process: subprocess.Popen[bytes], answered: IO[bytes]) -> list[str]:
    with suppress(OSError, subprocess.SubprocessError, UnicodeDecodeError):
        process.wait(_SECONDS)
        answered.seek(0)
        return answered.read().decode("ascii").split("\n")[:-1]
    return []


def _end(process: subprocess.Popen[bytes]) -> None:
    """Nothing is left behind, however the caller leaves."""
    if process.poll() is None:
        process.kill()
    process.wait()
