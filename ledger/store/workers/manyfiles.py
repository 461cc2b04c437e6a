"""Thousands of small files at once, by a process for each processor: Python's threads cannot share this work.

A file of a kilobyte costs a few calls of the system, and between two calls a thread waits for the lock of the
interpreter. So the calls are made by short-lived processes that run ``fileworker``, which says what they can do. They are
an accelerator and decide nothing: whatever one of them reports as not done, for any reason, the caller does itself, and
says what is wrong. Work goes in by standard input and results come out by standard output; no path is ever part of a
command.
"""

from __future__ import annotations

import gc
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise
from typing import IO, Final

from ledger.store.workers import fileworker

WORTH: Final = 2000
"""Files below which a process costs more than it saves."""
MOST_BYTES: Final = fileworker.MOST_BYTES
MOST_PACKED: Final = fileworker.MOST_PACKED
_SECONDS: Final = 600.0
NOT_DONE: Final = "-"

Record = tuple[str, ...]


def work[T](verb: str, common: Record, items: Sequence[T], processes: int, record: Callable[[T], Record]) -> list[str]:
    """The result of each item, given as a record, "-" for what was not done. Neighbours go to one process."""
    with begun(verb, common, items, processes, record) as finish:
        return finish()


@contextmanager
def begun[T](
    verb: str, common: Record, items: Sequence[T], processes: int, record: Callable[[T], Record]
) -> Iterator[Callable[[], list[str]]]:
    """As ``work``, with time for something else: what is given waits for the results. Who leaves before that, ends the
    processes.

    The processes are given files and not pipes: nothing is to be fed to them or drained meanwhile.
    """
    bounds = [len(items) * number // processes for number in range(processes + 1)]
    with ExitStack() as stack:
        # The first one begins while the records of the next are made.
        running = [_start(stack, verb, common, map(record, items[start:end])) for start, end in pairwise(bounds)]

        def finish() -> list[str]:
            answers: list[str] = []
            for (start, end), process in zip(pairwise(bounds), running, strict=True):
                given = [] if process is None else _finish(*process)
                answers += given + [NOT_DONE] * (end - start - len(given))
            return answers

        yield finish


@contextmanager
def collector_paused() -> Iterator[None]:
    """Leave Python's collector of cycles off: among tens of thousands of tuples it finds none, and takes a tenth of the
    time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _start(
    stack: ExitStack, verb: str, common: Record, records: Iterable[Record]
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
        _wait(process)
        answered.seek(0)
        return answered.read().decode("ascii").split("\n")[:-1]
    return []


def _wait(process: subprocess.Popen[bytes]) -> None:
    """Wait without looking again and again, where the system can: ``Popen.wait`` sleeps for up to 50 ms between two
    looks."""
    if hasattr(os, "pidfd_open"):
        with suppress(OSError):
            descriptor = os.pidfd_open(process.pid)
            try:
                ended = select.poll()
                ended.register(descriptor, select.POLLIN)
                ended.poll(_SECONDS * 1000)
            finally:
                os.close(descriptor)
    process.wait(0 if process.poll() is None else _SECONDS)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Nothing is left behind, however the caller leaves."""
    if process.poll() is None:
        process.kill()
    process.wait()
