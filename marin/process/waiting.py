"""What a program is busy with, said before a user wonders: within two seconds, with how long it took the last time here.

    with waiting("compiling the train step"):
        ...

Nothing is said of what is over sooner, unless nothing was said for longer already: the moment is counted from the last thing
that was said, so that short waits one behind the other make no silence. Of waits inside of each other the innermost
speaks. On a terminal the seconds are counted below what was said, in a line that the next output overwrites, or in the bar
(:mod:`marin.process.progress`) where one stands; elsewhere a line in ten seconds says how long it is so far. How long a
wait took is kept in the user's cache folder, by its words; a wait that was never seen here has no estimate.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from marin.process.text import ERASED, seconds_silent

logger = logging.getLogger(__name__)

SOON = 1.5
"""Seconds of silence after which a wait is announced."""
AGAIN = 10.0
"""Seconds after which one that goes on says so again, where nobody looks at a terminal."""
COUNTED = 1.0
"""Seconds after which it is counted on a terminal."""
KEPT = 200
"""So many waits are remembered, the newest."""
_innermost: list[_Wait] = []


class _Wait:
    def __init__(self, what: str) -> None:
        self.what, self.began, self.announced = what, time.monotonic(), False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._speak, name="marin-waiting", daemon=True)

    def __enter__(self) -> _Wait:
        _innermost.append(self)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._over.set()
        self._thread.join()
        _innermost.remove(self)
        took = self.so_far()
        if kind is None and (self.announced or took > SOON):
            _remember(self.what, took)

    def _speak(self) -> None:
        pause, counted = max(SOON / 8, SOON - seconds_silent()), False
        while not self._over.wait(pause):
            looked_at = sys.stderr.isatty()
            pause = COUNTED if looked_at else AGAIN
            if _innermost[-1:] != [self]:
                continue
            if not self.announced:
                if (silent := seconds_silent()) < SOON:  # something else was said meanwhile
                    pause = SOON - silent
                    continue
                self.announced = True
                logger.info("%s", self._sentence(self.so_far()))
            elif not looked_at:
                logger.info("%s", self._sentence(self.so_far()))
            # Where a bar of this process stands on the terminal, ``rich`` makes a line of everything that is written
            # meanwhile, and the bar itself counts (:func:`so_far`).
            elif not hasattr(sys.stderr, "rich_proxied_file") and logger.isEnabledFor(logging.INFO):
                counted = True
                _on_terminal(f"  {self.so_far():.0f} s so far")
        if counted:
            _on_terminal("")

    def so_far(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self.began

    def _sentence(self, so_far: float) -> str:
        last = last_waits().get(self.what)
        told = [] if so_far < AGAIN else [f"{so_far:.0f} s so far"]
        if last is not None:
            told.append(f"about {last:.0f} s the last time here")
        elif not told:
            told.append("a first time here")
        return f"{self.what} ({', '.join(told)})" if told else self.what


def _on_terminal(text: str) -> None:
    """In place of what stands in this line of the terminal; the next output begins there."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"{ERASED}{text}\r")
        sys.stderr.flush()


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """While entered, ``what`` is announced once it takes longer than a moment."""
    with _Wait(what):
        yield


def so_far() -> float | None:
    """Seconds of the wait that was announced and is not over; None where there is none."""
    wait = next(iter(_innermost[-1:]), None)
    return wait.so_far() if wait is not None and wait.announced else None


def last_waits() -> dict[str, float]:
    """How long waits took the last time on this machine, in seconds, by their words."""
    from ledger import LedgerError  # here and below: a command that is loaded need not have loaded the ledger

    with contextlib.suppress(OSError, ValueError, LedgerError):
        found = json.loads(_file().read_bytes())
        if isinstance(found, dict):
            return {str(name): float(value) for name, value in found.items() if isinstance(value, int | float)}
    return {}


def _remember(what: str, seconds: float) -> None:
    from ledger import LedgerError

    known = {name: value for name, value in last_waits().items() if name != what}
    known[what] = round(seconds, 2)
    with contextlib.suppress(OSError, LedgerError):  # it only makes an estimate
        new = _file().with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps(dict(list(known.items())[-KEPT:])))
        new.replace(_file())


def _file() -> Path:
    from marin.process.cache import own_folder

    return own_folder("waits") / "seconds.json"
