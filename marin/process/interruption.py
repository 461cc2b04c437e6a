"""Being asked to stop: SIGINT, SIGTERM and SIGHUP as one exception, held back where stopping would tear something.

    with Interruption() as interruption:
        work()                          # raises KeyboardInterrupt("SIGTERM") when a signal arrives
        with interruption.shield():
            record()                    # a signal that arrives here is raised at the end of the block

It is KeyboardInterrupt because libraries catch Exception in many places and go on. :class:`Remembered` is for work that
can end at a better moment than now, :class:`Attended` for work that leaves processes behind when its own one simply ends.
Signals reach only the main thread of a process; in any other thread these do nothing.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Handling:
    """While entered, signals that ask to stop come to :meth:`_arrived`, but for those that are ignored here."""

    _signals: tuple[signal.Signals, ...] = _SIGNALS

    def __init__(self) -> None:
        self._before: dict[signal.Signals, Callable[[int, FrameType | None], Any] | int | None] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in self._signals:
                if self._is_handled(signal.getsignal(number)):
                    self._before[number] = signal.signal(number, self._arrived)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def _is_handled(self, before: object) -> bool:
        """Whether a signal that so far goes to ``before`` comes here. What is ignored, as under nohup, stays so."""
        return before is not signal.SIG_IGN

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt(signal.Signals(number).name)


class Interruption(_Handling):
    """While entered, a signal that asks to stop raises ``KeyboardInterrupt`` where the main thread is."""

    def __init__(self) -> None:
        super().__init__()
        self._shields = 0
        self._pending: signal.Signals | None = None

    @contextmanager
    def shield(self) -> Iterator[None]:
        """Hold signals back until the block is done."""
        self._shields += 1
        try:
            yield
        finally:
            self._shields -= 1
        if self._pending is not None and not self._shields:
            pending, self._pending = self._pending, None
            raise KeyboardInterrupt(pending.name)

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        if self._shields:
            self._pending = signal.Signals(number)
            return
        super()._arrived(number, frame)


class Remembered(_Handling):
    """While entered, the first SIGTERM or SIGINT is kept in ``received`` and nothing else happens; the second one
    raises ``KeyboardInterrupt``."""

    _signals = (signal.SIGTERM, signal.SIGINT)

    def __init__(self) -> None:
        super().__init__()
        self.received: signal.Signals | None = None

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:  # asked twice: stop now
            super()._arrived(number, frame)
        self.received = signal.Signals(number)


class Attended(_Handling):
    """While entered, a signal that would end this process without a word raises ``KeyboardInterrupt``; one that a user
    handles already stays theirs."""

    def _is_handled(self, before: object) -> bool:
        return before is signal.SIG_DFL


def assert_handlers() -> None:
    """Make true what Python believes of the signals that ask to stop: a library may have changed it below Python."""
    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            if (handler := signal.getsignal(number)) is not None:
                signal.signal(number, handler)
