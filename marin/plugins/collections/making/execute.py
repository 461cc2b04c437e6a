"""Who executes the tasks of a collection: this process, or the workers of a Ray, by Ray Data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from marin.runners.places import place_of
from marin.work.placed import Execute, Start


@contextmanager
def executing(workers: int, address: str | None = None) -> Iterator[Execute]:
    """Executes tasks on ``workers`` workers; Ray begins when the first tasks are there, and ends with the block."""
    if workers == 1 and address is None:
        yield in_process
        return
    place = place_of("ray")
    with place.held(address):
        yield partial(place.tasks, workers=workers)


def in_process(start: Start, setup: bytes, tasks: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
    """One after the other, here (:data:`marin.plugins.collections.making.shelf.Execute`)."""
    """One after the other, here (:data:`marin.work.placed.Execute`)."""
    work = start(setup)
    for number, task in enumerate(tasks):
        yield number, work(task)
