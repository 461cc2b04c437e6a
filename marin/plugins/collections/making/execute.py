"""Who executes the tasks of a collection: this process, several of this machine, or the workers of a Ray, by Ray Data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from marin.runners.forked import ForkedRunner
from marin.runners.places import place_of
from marin.work.placed import Execute, Start


@contextmanager
def executing(workers: int, address: str | None = None) -> Iterator[Execute]:
    """Executes tasks on ``workers`` workers, processes of this machine, or of the Ray at ``address``; they begin when the first
    tasks are there, and end with the block at the latest."""
    if address is None:
        yield in_process if workers == 1 else ForkedRunner(workers).each
        return
    place = place_of("ray")
    with place.held(address):
        yield partial(place.tasks, workers=workers)


def in_process(start: Start, setup: bytes, tasks: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
    """One after the other, here (:data:`marin.work.placed.Execute`)."""
    work = start(setup)
    for number, task in enumerate(tasks):
        yield number, work(task)
