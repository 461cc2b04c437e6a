"""The runner without an engine: one task after the other, in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from marin.work.placed import Setup, Start, told


class LocalRunner:
    """:class:`marin.runners.Runner` with this process as its only worker."""

    workers = 1

    @contextmanager
    def run(self, start: Start, setup: Setup, tasks: Sequence[bytes]) -> Iterator[Iterator[bytes]]:
        """The results in order; a task is executed when its result is asked for."""
        work = start(told(setup))
        yield (work(task) for task in tasks)
