"""Python's collector of reference cycles, set for programs that import Levanter.

Hundreds of thousands of objects are made while it and jax are imported. With its first settings the collector looks
through the youngest of them after every 700, finds next to nothing, and takes about an eighth of the time.
"""

from __future__ import annotations

import gc

OBJECTS = 20_000
"""New containers before a collection of the youngest generation, instead of 700."""


def collect_less_often() -> None:
    """For this process, from now on."""
    gc.set_threshold(OBJECTS, *gc.get_threshold()[1:])
