"""Runners: how many pieces of independent work are executed, behind one small interface.

``local`` works in this process, ``ray`` on worker processes of a Ray that is started for the occasion. A worker is
warm: ``start`` is called once in it, and what it returns then takes one task after the other, so that imports and
compilation are paid once per worker and not once per task. Setup, tasks and results are bytes whose format belongs to
the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

Work = Callable[[bytes], bytes]
"""One task in, its result out."""
Start = Callable[[bytes], Work]
"""A function of an installed module, called with the setup once in every worker."""


class Runner(Protocol):
    """Executes tasks on ``workers`` workers."""

    @property
    def workers(self) -> int:
        """How many tasks are under way at a time."""

    def run(self, start: Start, setup: bytes, tasks: Sequence[bytes]) -> AbstractContextManager[Iterator[bytes]]:
        """The results in the order of the tasks, whichever is ready first. Leaving the context drops what is still
        under way and ends the workers, so that whoever has seen enough simply leaves.

        Raises:
            Unavailable: there is no engine, or a worker died more often than is bearable.
        """
