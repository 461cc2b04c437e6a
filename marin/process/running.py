"""Which run and step this process works on, for what is started from it: two variables of the environment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

RUN_VARIABLE = "MARIN_RUN"
STEP_VARIABLE = "MARIN_STEP"


@contextmanager
def running(run: str, step: str) -> Iterator[None]:
    """Inside, the environment names this run and step; afterwards it is as before."""
    before = {name: os.environ.get(name) for name in (RUN_VARIABLE, STEP_VARIABLE)}
    os.environ |= {RUN_VARIABLE: run, STEP_VARIABLE: step}
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
