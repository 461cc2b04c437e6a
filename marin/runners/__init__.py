"""Runners: how many pieces of independent work are executed, behind one small interface.

``local`` works in this process, ``ray`` on worker processes of a Ray that is started for the occasion. A worker is
warm: ``start`` is called once in it, and what it returns then takes one task after the other, so that imports and
compilation are paid once per worker and not once per task. Setup, tasks and results are bytes whose format belongs to
the caller. A worker may be several processes that do each task together, as a model that no machine holds alone needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

Work = Callable[[bytes], bytes]
"""One task in, its result out."""
Start = Callable[[bytes], Work]
"""A function of an installed module, called with the setup once in every process of a worker."""


@dataclass(frozen=True)
class Seat:
    """Which of ``count`` processes this is that do a worker's tasks together, and where they meet (``host:port``, at
    which number 0 listens). The answer of number 0 counts."""

    number: int = 0
    count: int = 1
    meeting: str = ""


ALONE = Seat()
Setup = bytes | Callable[[Seat], bytes]
"""What a worker is told; or what each of its processes is, by its seat."""


def told(setup: Setup, seat: Seat = ALONE) -> bytes:
    """What the process in ``seat`` is told."""
    return setup if isinstance(setup, bytes) else setup(seat)


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
