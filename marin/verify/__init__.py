"""Replay: execute again what a run recorded, compare, and judge.

``verification`` gathers the verdicts, each from its judge in ``judges``; ``derivation`` reads what the run says;
``rehearsal`` executes steps without recording them; ``segments`` has what train steps are compared by
(``segments.compare`` is pure); only the room ``jax`` imports jax. The package can be called: ``marin.verify(run)`` is
``run.verify()`` (docs/api.md).
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
