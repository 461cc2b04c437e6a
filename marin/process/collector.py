"""The many objects of programs that import Levanter: how seldom Python looks through them, and that it leaves them to the
system at the end.

Hundreds of thousands of objects are made while Levanter and jax are imported. With its first settings the collector of
reference cycles looks through the youngest of them after every 700, finds next to nothing, and takes about an eighth of
the time. At the end of a process Python takes all of them apart, one by one: seconds in which nothing is said any more.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys
import threading
from typing import NoReturn

OBJECTS = 20_000
"""New containers before a collection of the youngest generation, instead of 700."""


def collect_less_often() -> None:
    """For this process, from now on."""
    gc.set_threshold(OBJECTS, *gc.get_threshold()[1:])


def leave(status: int) -> NoReturn:
    """End this process as Python does, but for taking its objects apart: threads are awaited, what was registered for the
    end is called, streams are flushed."""
    threading._shutdown()  # type: ignore[attr-defined]  # as multiprocessing ends its processes
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # nobody reads, closed, none
            stream.flush()
    os._exit(status)
