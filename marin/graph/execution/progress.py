"""The progress of a whole graph on stderr: a line for each step. Nothing live: the processes that execute steps draw
that, on the same terminal."""

from __future__ import annotations

import logging

log = logging.getLogger(__name__)

QUIET_ABOVE = 50
"""Larger graphs tell their progress in tenths."""


class Progress:
    """Told by the executor what happens."""

    def __init__(self, total: int) -> None:
        self._total, self._done = total, 0

    def started(self, address: str) -> None:
        """A step begins in a process of its own."""
        log.debug("%s started", address)

    def held(self, address: str, executor: str) -> None:
        """Another executor is at work on it."""
        log.debug("%s: executor %s is at work on it", address, executor)

    def found(self, address: str, action: str, seconds: float) -> None:
        """A step has its output."""
        self._done += 1
        took = f" in {seconds:.1f} s" if action == "executed" else ""
        if self._total <= QUIET_ABOVE:
            log.info("[%d/%d] %s %s%s", self._done, self._total, address, action, took)
        elif self._done * 10 // self._total > (self._done - 1) * 10 // self._total:
            log.info("[%d/%d] steps done", self._done, self._total)

    def failed(self, address: str, error: str, because: str, *, paused: bool = False) -> None:
        """A step has no output, or none yet."""
        if because:
            log.info("%s skipped: it needs %s", address, because)
        elif paused:
            log.info("%s: %s", address, error)
        else:
            log.error("%s failed: %s", address, error)
