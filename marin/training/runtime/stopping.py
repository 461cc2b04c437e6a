"""Being asked to stop while training: remembered, and answered between two train steps by all processes at once.

In one process the signals are Python's. Several processes that train as one must stop after the same step, or the
others wait for ever in the next exchange; and a worker of a Ray trains in a thread, where Python hears no signals. For
them it is jax's preemption service, part of ``jax.distributed``: a handler below Python hears SIGTERM in any one of
them, and the processes agree on the next step that none of them has begun. :func:`request` is for anyone who heard it
elsewhere: the driver of a Ray, whose workers are told.
"""

from __future__ import annotations

import os
import signal
import threading
from types import TracebackType
from typing import Self

import jax
from jax.experimental import multihost_utils

from marin.process.interruption import Remembered

_requested = threading.Event()


def request() -> None:
    """Ask the training of this process to stop, and all that train with it, as SIGTERM would; from any thread."""
    _requested.set()


class StopSignal:
    """Remembers that one was asked to stop. A context manager; in one process it hears SIGTERM and SIGINT, and outside
    of its main thread only :func:`request`; in several, SIGTERM to any of them, and :func:`request` in any."""

    def __init__(self) -> None:
        self._together = jax.process_count() > 1
        self._remembered = Remembered()
        self._elsewhere: signal.Signals | None = None
        self._passed_on = False

    def __enter__(self) -> Self:
        if not self._together:
            self._remembered.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remembered.__exit__(kind, error, trace)

    @property
    def received(self) -> signal.Signals | None:
        """The signal that asked, once :meth:`asked` has said so; in one process at once."""
        return self._elsewhere or self._remembered.received

    def asked(self, step: int) -> bool:
        """Whether to stop after ``step``. Of several processes, every one must ask after every step that it has done;
        all get the same answer."""
        if _requested.is_set() and not self._passed_on:
            self._passed_on = True
            if self._together:
                os.kill(os.getpid(), signal.SIGTERM)  # jax hears it, and all processes agree on the step
            else:
                self._elsewhere = signal.SIGTERM
        if self._together and self._elsewhere is None and multihost_utils.reached_preemption_sync_point(step):
            self._elsewhere = signal.SIGTERM
        return self.received is not None
