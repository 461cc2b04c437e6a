"""The process of one local job: reads a function's name and a payload from stdin, calls it, writes the answer.

    python -m marin.runners.child DESCRIPTOR

Stdin stays open after the payload: its end means that the parent is gone, and then this process goes too.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from typing import BinaryIO

from marin.process.interpreter import collect_less_often, leave, with_room
from marin.process.text import log_as_worker
from marin.process.waiting import waiting
from marin.runners.jobs import answer, resolve


def main(descriptor: int) -> None:
    """Serve the one job that the parent wrote to stdin."""
    collect_less_often()
    log_as_worker()
    stdin = sys.stdin.buffer
    head = json.loads(stdin.readline())
    payload = stdin.read(head["size"])
    threading.Thread(target=_watch, args=(stdin,), daemon=True).start()
    with waiting("loading what a job executes"):
        function = resolve(head["function"])
    data = answer(function, payload)
    with open(descriptor, "wb") as stream:
        stream.write(data)


def _watch(stdin: BinaryIO) -> None:
    """Not through the stream's buffer, whose lock this thread would still hold when the interpreter ends."""
    while os.read(stdin.fileno(), 1):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    with_room(main, int(sys.argv[1]))
    leave(0)
