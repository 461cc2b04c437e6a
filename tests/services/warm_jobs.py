"""Jobs of a command that was forked (warm_server.py): forks too, with the imports that they would make first.

The process that forked the command forks each job too, when the command asks it: `python -m marin.runners.child` with the pipes,
environment and folder that were asked for, in a session of its own. A
job for another arithmetic contract, or with other modules, is the new process that it always was. The product's code is
the same up to `subprocess.Popen`, and from `marin.runners.child.main` on. So is the process that finds again what train
steps saw (`python -m marin.training.inspection.answers`), which has nothing to do but import jax.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import wait as ready
from types import SimpleNamespace
from typing import IO, Any

from marin.process import arithmetic
from marin.process.interpreter import with_room
from marin.reporting.lineage import samples
from marin.runners import child
from marin.runners import process as runner
from marin.training.inspection import answers

FIXED = ("PYTHONPATH", "NPROC", "JAX_")
"""Variables that were read when modules were imported; the number of devices is read when jax counts them."""


def offer(address: str) -> None:
    """From now on jobs of this process are forks of the one that listens at ``address``."""
    begun = _read_at_import(os.environ)

    def started(command: Sequence[str], **options: Any) -> Any:
        environment = options["env"]
        if command[1:3] != ["-m", "marin.runners.child"] or _read_at_import(environment) != begun:
            return subprocess.Popen(command, **options)
        return Fork(address, int(command[3]), environment, options["stdout"])

    def inspecting(command: Sequence[str], **options: Any) -> Any:
        if tuple(command) != samples.Inspector.COMMAND or _read_at_import(os.environ) != begun:
            return subprocess.Popen(command, **options)
        return Inspecting(address)

    parts = {"Popen": started, "PIPE": subprocess.PIPE, "DEVNULL": subprocess.DEVNULL}
    setattr(runner, "subprocess", SimpleNamespace(**parts))  # noqa: B010 - this process is a fork of a test's
    setattr(samples, "subprocess", SimpleNamespace(**parts | {"Popen": inspecting}))  # noqa: B010


def _read_at_import(environment: Mapping[str, str]) -> dict[str, str]:
    found = {name: value for name, value in environment.items() if name.startswith(FIXED)}
    flags = environment.get("XLA_FLAGS", "").split()
    return found | {"XLA_FLAGS": " ".join(flag for flag in flags if not flag.startswith(arithmetic.DEVICE_COUNT_FLAG))}


class Fork:
    """What :mod:`marin.runners.process` needs of a process."""

    def __init__(self, address: str, answer: int | None, environment: Mapping[str, str], stdout: int) -> None:
        read, write = os.pipe()
        nothing = os.open(os.devnull, os.O_RDWR)
        out = nothing if stdout == subprocess.DEVNULL else stdout
        asked = {"environment": dict(environment), "cwd": os.getcwd(), "job": answer is not None}
        self._link = socket.socket(socket.AF_UNIX)
        self._link.connect(address)
        passed = [read, out, sys.stderr.fileno(), nothing if answer is None else answer]
        socket.send_fds(self._link, [b"{"], passed)
        self._link.sendall(json.dumps(asked)[1:].encode() + b"\n")
        for used in (read, nothing):
            os.close(used)
        self.stdin: IO[bytes] = os.fdopen(write, "wb")
        self.returncode: int | None = None
        self._answers = self._link.makefile("rb", buffering=0)
        self._mutex = threading.Lock()
        self.pid = int(self._answers.readline())

    def wait(self) -> int:
        """Its exit status, negative for a signal, when it has ended."""
        with self._mutex:
            if self.returncode is None:
                self.returncode = int(self._answers.readline())
                self._answers.close()
                self._link.close()
        return self.returncode

    def poll(self) -> int | None:
        """The same; None while it runs."""
        if not self._mutex.acquire(blocking=False):  # somebody waits for it
            return None
        try:
            running = self.returncode is None and not ready([self._link], 0)
        finally:
            self._mutex.release()
        return None if running else self.wait()


class Inspecting(Fork):
    """What :class:`marin.reporting.lineage.samples.Inspector` needs of one."""

    def __init__(self, address: str) -> None:
        reading, writing = os.pipe()
        super().__init__(address, None, os.environ, writing)
        os.close(writing)
        self.stdout: IO[bytes] = os.fdopen(reading, "rb")

    def kill(self) -> None:
        """SIGKILL, if it runs."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def communicate(self) -> None:
        """Wait until it has ended."""
        with suppress(BrokenPipeError):
            self.stdin.close()
        self.stdout.close()
        self.wait()


def execute(asked: Mapping[str, Any], stdin: int, stdout: int, stderr: int, answer: int) -> int:
    """The job, in a process that becomes its own; its exit status."""
    for number, descriptor in enumerate((stdin, stdout, stderr)):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False, buffering=1)
    sys.argv = ["-m", str(answer)]
    sys.path[0] = asked["cwd"]
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, signal.SIG_DFL if signum == signal.SIGTERM else signal.default_int_handler)
    setattr(runner, "subprocess", subprocess)  # noqa: B010 - a job of a job is a process
    setattr(samples, "subprocess", subprocess)  # noqa: B010
    try:
        with_room(child.main, answer) if asked["job"] else with_room(answers.main)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0
