"""Runners: how many pieces of independent work are executed, behind one small interface.

``local`` works in this process or in several of this machine, ``ray`` on worker processes of a Ray that is started for the
occasion. A worker is warm: it is begun once, and then takes one task after the other (:mod:`marin.work.placed`), so that
imports and compilation are paid once per worker and not once per task. A worker may be several processes that do each task
together, as a model that no machine holds alone needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from marin.work.placed import Setup, Start


class Runner(Protocol):
    """Executes tasks on ``workers`` workers."""

    @property
    def workers(self) -> int:
        """How many tasks are under way at a time."""

    def run(self, start: Start, setup: Setup, tasks: Sequence[bytes]) -> AbstractContextManager[Iterator[bytes]]:
        """The results in the order of the tasks, whichever is ready first. Leaving the context drops what is still
        under way and ends the workers, so that anyone who has seen enough simply leaves.

        Raises:
            Unavailable: there is no engine, or a worker died more often than is bearable.
        """
