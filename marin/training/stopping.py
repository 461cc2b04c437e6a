"""Being asked to stop while training: remembered, and answered between two train steps by all processes at once.

In one process the signals are Python's. Several processes that train as one must stop after the same step, or the others
wait for ever in the next exchange; and a worker of a Ray trains in a thread, where Python hears no signals. For them it is
jax's preemption service, part of ``jax.distributed``: a handler below Python hears SIGTERM in any one of them, and the
processes agree on the next step that none of them has begun.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Self

import jax
from jax.experimental import multihost_utils


class StopSignal:
    """Remembers that one was asked to stop. A context manager; in one process it hears SIGTERM and SIGINT, and outside of
    its main thread nothing; in several, SIGTERM to any of them."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._together = jax.process_count() > 1
        self._previous: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        if not self._together and threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._previous[number] = signal.signal(number, self._remember)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def asked(self, step: int) -> bool:
        """Whether to stop after ``step``. Of several processes, every one must ask after every step that it has done; all
        get the same answer."""
        if self._together and self.received is None and multihost_utils.reached_preemption_sync_point(step):
            self.received = signal.SIGTERM
        return self.received is not None

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:  # asked twice: stop now
            raise KeyboardInterrupt
        self.received = signal.Signals(number)
