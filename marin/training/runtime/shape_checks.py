"""haliax's switch for its shape checks, made one for each thread.

Where jax takes a tree of named arrays apart and puts it together again, haliax switches its check of shapes off for
that moment: such a tree may hold anything. Its switch (0.2, ``haliax.core.enable_shape_checks``) is a variable of the
whole process. Levanter's loader works in threads of its own, and one that switches the checks on again while the
training thread is inside such a moment makes a train step fail over shapes that are as they should be: rarely, and
nowhere near the cause.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import haliax.core


class _Switch(threading.local):
    on = True


_switch = _Switch()


@cache
def per_thread() -> None:
    """From here on, switching the checks off in one thread of this process leaves the others alone."""
    haliax.core.enable_shape_checks = _enabled
    haliax.core.are_shape_checks_enabled = lambda: _switch.on


@contextmanager
def _enabled(enabled: bool) -> Iterator[bool]:
    before, _switch.on = _switch.on, enabled
    try:
        yield before
    finally:
        _switch.on = before
