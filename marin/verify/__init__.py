"""Replay: execute again what a run recorded, compare, and judge.

``compare`` is pure; ``verify`` gathers the five verdicts; ``rehearsal`` executes steps without recording them;
``training`` (in :mod:`marin.verify.jax.replay`) is the only part that needs jax. The package can be called:
``marin.verify(run)`` is ``run.verify()`` (docs/api.md).
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, Protocol


class Verifiable(Protocol):
    """A run as the library has it."""

    def verify(self, **how: Any) -> Any:
        """Judge it."""


class _Called(ModuleType):
    def __call__(self, run: Verifiable, **how: Any) -> Any:
        return run.verify(**how)


sys.modules[__name__].__class__ = _Called
