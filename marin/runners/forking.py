"""The process whose forks are workers (:mod:`marin.runners.forked`): it imports what they need, and forks when it is asked to.

    python -m marin.runners.forking DESCRIPTOR

It computes nothing and starts no thread of its own, so a fork finds a process at rest. It ends with the process that asks, whose
end closes the descriptor, and ends its forks; where it is killed itself, the kernel does (prctl(2), PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import warnings
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle

import msgspec

from marin.process.confinement import end_with
from marin.process.interpreter import collect_less_often, leave, with_room
from marin.process.logs import log_as_worker
from marin.runners.jobs import answer, resolve
from marin.work.placed import Start, Work, decode, prepare


class Beginning(msgspec.Struct, frozen=True):
    """The first message: where modules are found, the function that begins a worker, by its name, and its setup."""

    path: list[str]
    start: str
    setup: bytes


class Fork(msgspec.Struct, frozen=True):
    """The messages after it: fork, with a descriptor behind it, and answer the process; or say how ``ended`` ended."""

    ended: int = 0


def serve(control: Connection) -> None:
    """Fork until the process that asks has ended."""
    beginning = decode(control.recv_bytes(), Beginning)
    sys.path[:] = beginning.path
    start: Start = resolve(beginning.start)  # type: ignore[assignment]  # a function of bytes, of the installed code
    with suppress(Exception):  # a worker meets it again, and answers with it
        prepare(beginning.setup)
    gc.freeze()  # what is here is nothing that a fork has to look through, and stays shared
    warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning)  # threads of libraries, all idle
    forking, forks = os.getpid(), set[int]()
    while True:
        try:
            asked = decode(control.recv_bytes(), Fork)
        except EOFError:
            break
        if asked.ended:
            told = os.waitstatus_to_exitcode(os.waitpid(asked.ended, 0)[1])
            forks.discard(asked.ended)
        else:
            descriptor = recv_handle(control)
            told = os.fork()
            if told == 0:
                end_with(forking)
                control.close()
                with Connection(descriptor) as link:
                    _work(link, start, beginning.setup)
                return
            os.close(descriptor)
            forks.add(told)
        control.send_bytes(b"%d" % told)
    for fork in forks:  # which ended, or are at a task that nobody waits for
        with suppress(ProcessLookupError):
            os.kill(fork, signal.SIGKILL)
        os.waitpid(fork, 0)


def _work(link: Connection, start: Start, setup: bytes) -> None:
    """Begun with the first task, so that what cannot begin is its answer."""
    begun: list[Work] = []

    def do(task: bytes) -> bytes:
        if not begun:
            begun.append(start(setup))
        return begun[0](task)

    while True:
        link.send_bytes(answer(do, link.recv_bytes()))


def main(descriptor: int) -> None:
    """Serve the process at the other end, or in a fork its tasks."""
    collect_less_often()
    log_as_worker()
    try:
        with Connection(descriptor) as control:
            serve(control)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # nobody asks any more


if __name__ == "__main__":
    with_room(main, int(sys.argv[1]))
    leave(0)
