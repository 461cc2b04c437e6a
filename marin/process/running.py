"""Which run and step this process works on, for what is started from it: two variables of the environment."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

RUN_VARIABLE = "MARIN_RUN"
STEP_VARIABLE = "MARIN_STEP"


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """``values`` in the environment of this process and of what it starts; afterwards it is as before."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def running(run: str, step: str) -> AbstractContextManager[None]:
    """Inside, the environment names this run and step."""
    return environment({RUN_VARIABLE: run, STEP_VARIABLE: step})
