"""Workers on this machine that cost one start: forks of a process that has imported what they need.

The process is begun for a piece of work and ends with it (:mod:`marin.runners.forking`). Its forks share the memory of what was
imported. Contract of arithmetic, confinement and limits are those of the process that asks. A worker that dies is replaced, and
its task executed again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.reduction import send_handle

from ledger import Unavailable
from marin.process.waiting import waiting
from marin.runners.forking import Beginning, Fork
from marin.runners.jobs import reference, unpack
from marin.runners.process import standard_error
from marin.work.placed import Setup, Start, encode, setup_bytes

RESTARTS = 2
"""How often a task is executed again whose worker died, before that counts as a failure."""
PATIENCE_SECONDS = 20.0
"""How long processes that were killed may take to end."""


class ForkedRunner:
    """:class:`marin.runners.Runner` with processes of this machine. ``variables`` are set in them before anything is imported."""

    def __init__(self, workers: int, *, variables: Mapping[str, str] | None = None, **of_others: object) -> None:
        """``of_others``: what other places are told of their machines."""
        self.workers = workers
        self._variables = dict(variables or {})

    @contextmanager
    def run(self, start: Start, setup: Setup, tasks: Sequence[bytes]) -> Iterator[Iterator[bytes]]:
        """The results in order. Workers take the next task as soon as they have finished one."""
        with self._forking(start, setup_bytes(setup)) as forking:
            yield _in_order(forking.answers(min(self.workers, len(tasks)), tasks), len(tasks))

    def each(self, start: Start, setup: bytes, tasks: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
        """(number of the task, its answer), as they are ready (:data:`marin.work.placed.Execute`)."""
        with self._forking(start, setup) as forking:
            yield from forking.answers(min(self.workers, len(tasks)), tasks)

    @contextmanager
    def _forking(self, start: Start, setup: bytes) -> Iterator[_Forking]:
        beginning = Beginning(sys.path, reference(start), setup)
        ours, theirs = Pipe()
        flags = ["-P"] if sys.flags.safe_path else []
        process = subprocess.Popen(
            [sys.executable, *flags, "-m", "marin.runners.forking", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=standard_error(),
            pass_fds=[theirs.fileno()],
            env={**os.environ, **self._variables},
            start_new_session=True,  # Ctrl-C is for the process that asks, which ends these
        )
        theirs.close()
        links: list[Connection] = []
        try:
            with suppress(OSError):  # it has ended: the first fork that is asked for says so
                ours.send_bytes(encode(beginning))
            yield _Forking(ours, process.pid, links)
        finally:
            ours.close()  # which it hears of, once it has forked: it ends its forks and waits for them
            if not links:
                process.kill()
            with suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE_SECONDS)
            process.kill()  # the kernel kills its forks with it
            process.wait()
            for link in links:
                with suppress(EOFError, OSError):  # the end of its fork
                    while link.poll(PATIENCE_SECONDS):
                        link.recv_bytes()
                link.close()


@dataclass(frozen=True)
class _Forking:
    """The process whose forks work. ``links``: to every fork that was made."""

    control: Connection
    process: int
    links: list[Connection]

    def answers(self, count: int, tasks: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
        """(number of the task, its answer), as they are ready, by ``count`` workers.

        Raises:
            LedgerError: what a task raised.
            Unavailable: a task's workers died again and again.
        """
        following, deaths = deque(range(len(tasks))), Counter[int]()
        working: dict[Connection, tuple[int, int]] = {}

        def hand(link: Connection, worker: int) -> None:
            if following:
                number = following.popleft()
                working[link] = number, worker
                with suppress(OSError):  # it has died: its link says so
                    link.send_bytes(tasks[number])

        for _ in range(count):
            hand(*self._forked())
        while working:
            for link in wait(list(working)):
                assert isinstance(link, Connection), "nothing else is waited for"
                number, worker = working.pop(link)
                where = f"task {number} of {len(tasks)}"
                try:
                    answer = link.recv_bytes()
                except (EOFError, OSError):
                    deaths[number] += 1
                    if deaths[number] > RESTARTS:
                        raise _died(where, self._death(worker)) from None
                    following.appendleft(number)
                    hand(*self._forked())
                else:
                    hand(link, worker)
                    yield number, unpack(where, answer)

    def _forked(self) -> tuple[Connection, int]:
        """A new worker: the link to it, and its process."""
        ours, theirs = Pipe()
        try:
            with waiting("loading what workers execute"):
                self.control.send_bytes(encode(Fork()))
                send_handle(self.control, theirs.fileno(), self.process)
                worker = int(self.control.recv_bytes())
            self.links.append(ours)
            return ours, worker
        except (EOFError, OSError) as error:
            raise _died("before a task", "the process that forks them has ended") from error
        finally:
            theirs.close()

    def _death(self, worker: int) -> str:
        """How a worker that has died ended."""
        try:
            self.control.send_bytes(encode(Fork(worker)))
            status = int(self.control.recv_bytes())
        except (EOFError, OSError):
            return "the process that forks them has ended"
        with suppress(ValueError):
            return f"killed by {signal.Signals(-status).name}"
        return f"exit status {status}"


def _in_order(answers: Iterator[tuple[int, bytes]], count: int) -> Iterator[bytes]:
    ready: dict[int, bytes] = {}
    for wanted in range(count):
        while wanted not in ready:
            number, ready[number] = next(answers)
        yield ready.pop(wanted)


def _died(where: str, found: str) -> Unavailable:
    return Unavailable(
        "a worker died again and again",
        where=where,
        expected=f"at most {RESTARTS} restarts",
        found=found,
        cure="use fewer workers: each needs memory of its own",
    )


workers = ForkedRunner
"""Those of the place ``local`` (:meth:`marin.runners.places.Place.workers`)."""
