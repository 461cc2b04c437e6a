"""Which engine executes jobs: processes of this machine, or a Ray."""

from __future__ import annotations

from contextlib import AbstractContextManager

from marin.runners.jobs import JobRunner, RunnerName
from marin.runners.places import place_of
from marin.runners.process import LocalJobs


def open_jobs(
    runner: RunnerName, *, address: str | None = None, cpus: float | None = None, gpus: int = 0, root: str | None = None
) -> AbstractContextManager[JobRunner]:
    """A runner of jobs for the length of a ``with`` block; leaving it cancels what is still under way and leaves no
    process behind. ``cpus`` bounds what ``local`` and a Ray of one's own hand out (default: the cores of this process),
    ``gpus`` what ``local`` does; ``address`` (``host:port``) names a Ray cluster that exists. What jobs append to ``root`` (a
    location) goes through its one writer on this machine, so that other machines need no signing key.

    Raises:
        Unavailable: there is no such engine.
        NotInstalled: no plugin has one.
    """
    if runner == "local":
        return LocalJobs(cpus=cpus, gpus=gpus)
    return place_of(runner).jobs(address, cpus, root)
