"""The progress of a whole graph on stderr: a bar with what runs now on a terminal, a line for each step elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from marin.process.text import visible

log = logging.getLogger(__name__)

QUIET_ABOVE = 50
"""Larger graphs tell their progress in tenths where nobody watches a terminal."""
SHOWN = 6


class Progress:
    """Told by the executor what happens; a context manager."""

    def __init__(self, total: int) -> None:
        self._total, self._done, self._failed = total, 0, 0
        self._running: dict[str, float] = {}
        self._stack = ExitStack()
        self._bar: Any = None
        self._task: Any = None
        self._drawn = 0.0

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

            self._bar = self._stack.enter_context(
                Bar(
                    TextColumn("{task.description}"),
                    BarColumn(),
                    MofNCompleteColumn(),
                    TimeElapsedColumn(),
                    TextColumn("{task.fields[note]}", markup=False),
                    console=Console(stderr=True),
                    transient=True,
                )
            )
            self._task = self._bar.add_task("steps", total=self._total, note="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def started(self, address: str) -> None:
        """A step begins in a process of its own."""
        self._running[address] = time.monotonic()
        log.debug("%s started", address)
        self._draw()

    def held(self, address: str, executor: str) -> None:
        """Another executor is at work on it."""
        log.debug("%s: executor %s is at work on it", address, executor)

    def found(self, address: str, action: str, seconds: float) -> None:
        """A step has its output."""
        self._running.pop(address, None)
        self._done += 1
        took = f" in {seconds:.1f} s" if action == "executed" else ""
        if self._total <= QUIET_ABOVE:
            log.info("[%d/%d] %s %s%s", self._done, self._total, address, action, took)
        elif self._bar is None and self._done * 10 // self._total > (self._done - 1) * 10 // self._total:
            log.info("[%d/%d] steps done", self._done, self._total)
        self._draw()

    def failed(self, address: str, error: str, because: str, *, paused: bool = False) -> None:
        """A step has no output, or none yet."""
        self._running.pop(address, None)
        self._failed += 1
        if because:
            log.info("%s skipped: it needs %s", address, because)
        elif paused:
            log.info("%s: %s", address, error)
        else:
            log.error("%s failed: %s", address, error)
        self._draw()

    def _draw(self) -> None:
        now = time.monotonic()
        if self._bar is None or (now - self._drawn < 0.1 and self._done + self._failed < self._total):
            return
        self._drawn = now
        names = list(self._running)
        note = ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
        if self._failed:
            note = f"{self._failed} without output  {note}"
        self._bar.update(self._task, completed=self._done + self._failed, note=visible(note))
