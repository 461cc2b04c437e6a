"""A process that has imported what computes, and forks itself for each program that a test runs.

A fork has its own memory, environment, folder and exit status, as a new process has, and is spared the six seconds in
which jax and Levanter are imported, and so are the jobs that it starts (warm_jobs.py). The contract of arithmetic is in force
in it, as after the program's own `apply`. What is about how a process begins needs a new process.

A session of several processes (forked.py) has one such process for all of them, which imports while tests are collected.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from itertools import count
from multiprocessing.connection import wait as ready
from pathlib import Path

import pytest
from sessions import made_meanwhile

SERVER = Path(__file__).with_name("warm_server.py")
REPOSITORY = SERVER.parents[2]
OF_THE_SESSION = pytest.StashKey["Warm"]()


@dataclass(frozen=True)
class Warm:
    """Where it listens, and a folder for what programs print."""

    address: Path
    folder: Path
    _numbers: Iterator[int] = field(default_factory=count)

    def run(
        self, program: str, arguments: Sequence[str], *, cwd: Path, environment: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """`python -c PROGRAM ARGUMENT...` in a fork; ``timeout`` in seconds.

        Raises:
            subprocess.TimeoutExpired: the program was killed.
        """
        name = f"{os.getpid()}-{next(self._numbers)}"
        told = [self.folder / f"{name}-{stream}" for stream in ("stdout", "stderr")]
        asked = {
            "program": program,
            "arguments": list(arguments),
            "cwd": str(cwd),
            "environment": dict(environment),
            "told": [str(path) for path in told],
        }
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(str(self.address))
            link.sendall(json.dumps(asked).encode() + b"\n")
            with link.makefile("rb", buffering=0) as server:
                child = _child_number(server.readline())
                late = not ready([link], timeout)
                if late:
                    os.kill(child, signal.SIGKILL)
                status = _child_number(server.readline())
        if late:
            raise subprocess.TimeoutExpired([program, *arguments], timeout)
        printed = [path.read_text(encoding="utf-8") for path in told]
        for path in told:
            path.unlink()
        return subprocess.CompletedProcess([program, *arguments], status, *printed)


def _child_number(line: bytes) -> int:
    if not line:
        raise ChildProcessError("the process that forks programs (tests/services/warm_server.py) has ended")
    return int(line)


def environment() -> dict[str, str]:
    """No variable of the user that reaches Marin, and none that a test process set for jax."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MARIN", "XLA", "JAX", "XDG")) and name != "NPROC"
    }
    return kept | {"PYTHONPATH": str(REPOSITORY)}


@contextmanager
def warmed(environment: Mapping[str, str], modules: Sequence[str] = ()) -> Iterator[Warm]:
    """The process, until the block ends. ``environment`` says where modules are found. With ``modules`` it has imported
    these, and nothing else of all this. Programs wait for it until it has."""
    folder = Path(tempfile.mkdtemp(prefix="marin-warm-"))  # not the test's: an address has 108 bytes
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(folder / "asked"))
            listening.listen(64)
            process = subprocess.Popen(
                [sys.executable, str(SERVER), str(listening.fileno()), *modules],
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.PIPE,
                pass_fds=[listening.fileno()],
            )
        with process:
            try:
                yield Warm(folder / "asked", folder)
            finally:
                process.terminate()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def pytest_sessionstart(session: pytest.Session) -> None:
    """One for all processes, which imports while this one collects; meanwhile, in a session of all tests, the run that many
    need is trained."""
    config = session.config
    if config.getoption("processes") > 1 and not config.option.collectonly:
        until_the_end = ExitStack()
        config.add_cleanup(until_the_end.close)
        warm = config.stash[OF_THE_SESSION] = until_the_end.enter_context(warmed(environment()))
        if config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.keyword:
            factory = config._tmp_path_factory  # type: ignore[attr-defined]
            until_the_end.enter_context(made_meanwhile(factory, "trained", partial(_train, lambda: warm)))


def _train(warm: Callable[[], Warm], base: Path) -> None:
    sys.path.insert(0, str(REPOSITORY))
    import_module("tests.e2e.conftest").train(warm, base)


@pytest.fixture(scope="session")
def warm(request: pytest.FixtureRequest) -> Iterator[Callable[[], Warm]]:
    """The process that commands are forked from: the session's, or one that begins when the first command is asked for."""
    with ExitStack() as until_the_end:

        @cache
        def begun() -> Warm:
            of_all = request.config.stash.get(OF_THE_SESSION, None)
            return of_all or until_the_end.enter_context(warmed(environment()))

        yield begun
