"""Tests in several processes, each a fork of the one that has imported and collected them: `pytest --processes N`.

Collecting this suite is nearly all imports of jax, Levanter, MLflow and Ray, which a fork has already; as in the product's own
programs, frames have room meanwhile, and nobody looks for garbage. Whole files are handed out; anyone who is done asks for the
next: those that begin early in their order (order.py beside this), then by folder. A process that dies fails the test that
it was at, and another takes its place. What nobody began, for processes ended before, fails the session.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import selectors
import signal
import socket
import sys
import traceback
import warnings
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import IO, Any

import pytest
from order import begins_early

from marin.process.interpreter import OBJECTS, with_room

VARIABLE = "MARIN_TEST_PROCESS"
"""In a fork: its number."""


def add_option(parser: pytest.Parser) -> None:
    parser.addoption("--processes", type=int, default=1, metavar="N", help="run tests in N forks of this process")


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    if session.config.getoption("processes") > 1:
        gc.disable()  # of what is imported nothing goes away
        session.perform_collect = partial(with_room, session.perform_collect)  # type: ignore[method-assign]
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> object:
    count, options = session.config.getoption("processes"), session.config.option
    if count < 2 or options.collectonly or (session.testsfailed and not options.continue_on_collection_errors):
        return None  # pytest's own loop
    Forks(session).run(min(count, len(session.items)))
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
    return True


def following(paths: Sequence[Path], mine: Path | None, others: Collection[Path | None]) -> int:
    """Which of the files that are left a process does next that was at the folder ``mine``, while others are at ``others``: the
    first that begins early; then one of its folder, or of a near one where nobody is, since what tests of a room trace and
    compile is kept in a process."""
    early = next((place for place, path in enumerate(paths) if begins_early(path)), None)

    def near(place: int) -> tuple[bool, bool, int, int]:
        folder = paths[place].parent
        shared = len(os.path.commonpath([folder, mine])) if mine else 0
        return folder == mine, folder not in others, shared, -place

    return max(range(len(paths)), key=near) if early is None else early


@dataclass(eq=False)
class Fork:
    """One process, as its parent knows it. ``at``: the place of the test that it is at; ``todo``: those that it was given
    and has not begun; ``folder``: where its last file was."""

    pid: int
    link: socket.socket
    at: int | None = None
    todo: list[int] = field(default_factory=list)
    folder: Path | None = None
    heard: bytes = b""
    broke: str = ""

    def lines(self) -> list[dict[str, Any]] | None:
        """What it says, at least a part of a line; None when it has ended."""
        data = self.link.recv(1 << 16)
        *whole, self.heard = (self.heard + data).split(b"\n")
        return [json.loads(line) for line in whole] if data else None


@dataclass
class Forks:
    """The parent: hands out files, and hears of each test."""

    session: pytest.Session
    ready: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    files: deque[list[int]] = field(default_factory=deque)
    alive: list[Fork] = field(default_factory=list)
    begun: int = 0
    unheard: str = ""

    def run(self, count: int) -> None:
        """All tests, in ``count`` processes."""
        places = range(len(self.session.items))
        self.files.extend(list(group) for _, group in groupby(places, lambda place: self.session.items[place].path))
        self.session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        gc.set_threshold(5 * OBJECTS, 20, 20)  # seldom: most of what tracing makes is freed without
        gc.collect()
        gc.freeze()  # what is here stays where it is: no fork copies it by looking through it
        try:
            for _ in range(count):
                self._begin()
            while self.alive:
                for key, _ in self.ready.select():
                    self._hear(key.data)
            self._miss()
        finally:
            for fork in self.alive:
                with suppress(ProcessLookupError):
                    os.kill(fork.pid, signal.SIGTERM)
            self.ready.close()
            gc.unfreeze()

    def _begin(self) -> None:
        number, (here, there) = self.begun, socket.socketpair()
        self.begun += 1
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():  # threads of libraries, all idle
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            for other in (here, *(fork.link for fork in self.alive)):
                other.close()
            Child(self.session, there.makefile("rw", encoding="utf-8"), number).run()
        there.close()
        fork = Fork(pid, here)
        self.alive.append(fork)
        self.ready.register(here, selectors.EVENT_READ, fork)

    def _hear(self, fork: Fork) -> None:
        lines, hook, config = fork.lines(), self.session.config.hook, self.session.config
        if lines is None:
            self._buried(fork)
            return
        for told in lines:
            if "report" in told:
                report = hook.pytest_report_from_serializable(config=config, data=told["report"])
                if report.skipped and isinstance(report.longrepr, list):
                    report.longrepr = tuple(report.longrepr)  # which JSON does not know
                hook.pytest_runtest_logreport(report=report)
            elif "at" in told:
                fork.at = told["at"]
                fork.todo = [place for place in fork.todo if place != fork.at]
            elif "broke" in told:
                fork.broke = told["broke"]
            else:
                stop = self.session.shouldfail or self.session.shouldstop
                given = [] if stop or not self.files else self._next(fork)
                fork.todo += given
                fork.link.sendall(json.dumps(given).encode() + b"\n")

    def _next(self, fork: Fork) -> list[int]:
        """The file that this process does next."""
        paths = [self.session.items[file[0]].path for file in self.files]
        place = following(paths, fork.folder, {other.folder for other in self.alive if other is not fork})
        given = self.files[place]
        del self.files[place]
        fork.folder = paths[place].parent
        return given

    def _buried(self, fork: Fork) -> None:
        """It ended: by itself, or in the middle of a test."""
        self.ready.unregister(fork.link)
        self.alive.remove(fork)
        fork.link.close()
        _, status = os.waitpid(fork.pid, 0)
        if fork.todo:
            self.files.appendleft(fork.todo)
        died = f"ended with {os.waitstatus_to_exitcode(status)}\n{fork.broke}"
        if fork.at is not None:
            item = self.session.items[fork.at]
            said = f"the process of this test {died}"
            report = pytest.TestReport(item.nodeid, item.location, {}, "failed", said, "call")
            item.ihook.pytest_runtest_logreport(report=report)
            if self.files:
                self._begin()
        elif status:
            self.unheard = f"a process that was at no test {died}".strip()

    def _miss(self) -> None:
        """No process is left: what none of them began fails the session, and so does one that ended badly at no test."""
        missed = sum(map(len, self.files))
        if not (self.session.shouldfail or self.session.shouldstop) and (missed or self.unheard):
            self.session.shouldfail = f"{missed} tests were never begun; {self.unheard}"


@dataclass(eq=False)
class Child:
    """A fork: executes the files that it is given, and tells of each test."""

    session: pytest.Session
    link: IO[str]
    number: int

    def run(self) -> None:
        """Never returns."""
        status = 1
        try:
            self._become()
            with_room(self._execute)
            status = 0
        except KeyboardInterrupt:
            status = 130
        except BaseException:  # of pytest or of a plugin: nobody above hears of it
            with suppress(OSError):
                self._tell(broke=traceback.format_exc())
        finally:
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def _become(self) -> None:
        """What is a process's own: temporary folders, captured output, who is told, what happens at its end."""
        os.environ[VARIABLE] = str(self.number)
        if state := os.environ.get("XDG_STATE_HOME"):  # two processes' logs of one key are no copies of each other
            os.environ["XDG_STATE_HOME"] = os.path.join(state, f"process-{self.number}")
        atexit._clear()
        plugins, factory = self.session.config.pluginmanager, self.session.config._tmp_path_factory  # type: ignore[attr-defined]
        factory._basetemp = factory.getbasetemp() / f"process-{self.number}"
        factory._basetemp.mkdir(mode=0o700)
        capture = plugins.getplugin("capturemanager")
        capture.stop_global_capturing()
        capture.start_global_capturing()
        plugins.unregister(name="terminalreporter")
        plugins.register(self, "forked-reports")

    def _execute(self) -> None:
        items = self.session.items
        current = next(places := self._places(), None)
        while current is not None:
            self._tell(at=current)
            following = next(places, None)
            item = items[current]
            nextitem = items[following] if following is not None else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=nextitem)
            current = following
        self._tell(at=None)

    def _places(self) -> Iterator[int]:
        """Tests in the order in which they are handed out."""
        while True:
            self._tell(wants=1)
            if not (given := json.loads(self.link.readline() or "[]")):
                return
            yield from given

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Pytest's hook: the parent counts and prints."""
        config = self.session.config
        self._tell(report=config.hook.pytest_report_to_serializable(config=config, report=report))

    def _tell(self, **what: object) -> None:
        self.link.write(json.dumps(what) + "\n")
        self.link.flush()
