"""Signals stay this process's own while it works on a Ray.

``ray.init`` takes SIGTERM twice: from Python, and below Python together with the signals of a crash, for a handler that
prints a stack. ``ray.shutdown`` then leaves to the system what a signal does: SIGTERM ends the process at once, whatever
Python believes. Here Ray is kept from both, so that being asked to stop means the same with a Ray and without.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from marin.process.interruption import assert_handlers

_INSTALLED = "_ZN3ray6RayLog36is_failure_signal_handler_installed_E"
"""Ray's own note of whether its handlers below Python are installed: then it does not install them, and what it did not
install it does not take away."""


@contextmanager
def own_signals() -> Iterator[None]:
    """For the call of ``ray.init``: afterwards, and until Ray has ended, handlers are what they were."""
    from ray._private import utils

    theirs, note = utils.set_sigterm_handler, _note()
    utils.set_sigterm_handler = _ignored
    if note is not None:
        note.value = True
    try:
        yield
    finally:
        if note is not None:
            note.value = False
        utils.set_sigterm_handler = theirs
        assert_handlers()  # a Ray that failed to start has taken them away


def _ignored(handler: Any) -> None:
    """In place of Ray's own function, which would replace the handler of SIGTERM."""


def _note() -> ctypes.c_bool | None:
    """None where Ray's library has no such note; then handlers are set again when Ray has begun and when it has ended."""
    library = find_spec("ray._raylet")
    try:
        return ctypes.c_bool.in_dll(ctypes.CDLL(library.origin), _INSTALLED) if library is not None else None
    except (OSError, ValueError):
        return None
