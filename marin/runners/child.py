"""The process of local jobs: reads a function's name and a payload from stdin, calls it, writes the answer.

    python -m marin.runners.child DESCRIPTOR

A job that says what is to be prepared is executed in a fork of this process, which takes the next one. A fork that dies takes
this process with it, in the same way. The end of stdin means that the parent is gone, and then this process goes too.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import sys
import threading
import warnings
from contextlib import suppress

from marin.process.confinement import end_with
from marin.process.interpreter import collect_less_often, leave, with_room
from marin.process.logs import log_as_worker
from marin.process.waiting import waiting
from marin.runners.jobs import answer, resolve

ANSWERED = 100
"""The exit status of a fork that has answered."""


def main(descriptor: int) -> int:
    """Serve the jobs that the parent writes to stdin; the exit status."""
    collect_less_often()
    log_as_worker()
    stdin = sys.stdin.buffer
    with open(descriptor, "wb") as stream:
        while line := stdin.readline():
            head = json.loads(line)
            payload = stdin.read(head["size"])
            if head["prepare"]:
                with suppress(Exception):  # the job meets it again, and answers with it
                    resolve(head["prepare"])(payload)
                if not _is_fork():
                    continue
            answered = threading.Event()
            threading.Thread(target=_watch, args=(stdin.fileno(), answered), daemon=True).start()
            with waiting("loading what a job executes"):
                function = resolve(head["function"])
            said = answer(function, payload)
            answered.set()  # from here on the end of the pipe says only that no further job comes
            stream.write(said)
            return ANSWERED if head["prepare"] else 0
    return 0


def _is_fork() -> bool:
    """Fork: True in the fork; False here, once it has answered. SIGTERM is for the fork, which may have something to put away."""
    gc.freeze()  # what is here is nothing that a fork has to look through, and stays shared
    warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning)  # threads of libraries, all idle
    ours = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    fork = os.fork()
    if fork == 0:
        end_with(ours)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        return True
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    status = os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1])
    signal.signal(signal.SIGTERM, before)
    if status != ANSWERED:
        if status < 0:
            os.kill(ours, -status)
        leave(status)
    return False


def _watch(descriptor: int, answered: threading.Event) -> None:
    """Who waits for the answer is gone: nobody needs it. Nothing is read here: the next job is for who forked this process."""
    asked = select.poll()
    asked.register(descriptor, 0)  # its end alone
    asked.poll()
    if not answered.is_set():
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    leave(with_room(main, int(sys.argv[1])))
