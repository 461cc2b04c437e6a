"""Who does tasks one after another: this process alone, processes of this machine, or those of a Ray, all of which stay warm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from marin.runners import Runner
from marin.runners.places import place_of
from marin.work.placed import Setup, Start, setup_bytes

if TYPE_CHECKING:
    from marin.runners.jobs import RunnerName
    from marin.runners.resources import Resources


class LocalRunner:
    """:class:`marin.runners.Runner` with this process as its only worker."""

    workers = 1

    @contextmanager
    def run(self, start: Start, setup: Setup, tasks: Sequence[bytes]) -> Iterator[Iterator[bytes]]:
        """The results in order; a task is executed when its result is asked for."""
        work = start(setup_bytes(setup))
        yield (work(task) for task in tasks)


def warm_workers(
    workers: int,
    each: Resources | None = None,
    *,
    runner: RunnerName = "local",
    together: int = 1,
    variables: Mapping[str, str] | None = None,
) -> Runner:
    """This process alone, or processes of this machine. With ``runner`` ray, and where each of ``workers`` is ``together``
    processes that do a task as one or has an accelerator to itself, those of a Ray: each process reserves ``each`` (one core)
    there. All begin with ``variables`` set. Without need of it, Ray is never imported."""
    if workers == together == 1:
        return LocalRunner()
    shares = each is None or not (each.gpus or each.tpus or each.cpus > 1)
    place = "local" if runner == "local" and together == 1 and shares else "ray"
    return place_of(place).workers(workers, each=each, together=together, variables=variables)
