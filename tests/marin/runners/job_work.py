"""What jobs of tests/marin/runners/test_prepared.py execute: by name, in processes of their own."""

from __future__ import annotations

import atexit
import json
import os
import signal
import threading
from pathlib import Path

PREPARED: list[str] = []


def prepare(payload: bytes) -> bytes:
    """What is imported once."""
    PREPARED.append(payload.decode())
    return b""


def describe(payload: bytes) -> bytes:
    """This process, the one that it was forked from, and what was prepared."""
    return json.dumps([os.getpid(), os.getppid(), PREPARED]).encode()


def end(payload: bytes) -> bytes:
    """End without an answer: by a signal, or with an exit status."""
    status = int(payload)
    if status < 0:
        os.kill(os.getpid(), -status)
    os._exit(status)


def leave_slowly(payload: bytes) -> bytes:
    """Answer, and write a file at the path of the payload only at the end of this process, after its answer was read."""
    path = Path(payload.decode())

    def last() -> None:
        threading.Event().wait(0.2)
        path.touch()

    atexit.register(last)
    return b"answered"


def hang(payload: bytes) -> bytes:
    """Until somebody asks for the end, which leaves a mark at the path of the payload."""
    folder, asked = Path(payload.decode()), threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: asked.set())
    (folder / "begun").write_text(str(os.getpid()))
    while not asked.wait(0.05):
        pass
    (folder / "ended").touch()
    return b"ended"
