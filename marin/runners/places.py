"""Where steps, jobs and tasks are executed beside this machine's own processes: a plugin for each kind of place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from marin.provenance.plugins import load_plugin
from marin.runners import Runner
from marin.work.placed import Start

if TYPE_CHECKING:
    from marin.execution.step import StepResult, Task
    from marin.runners.jobs import JobRunner
    from marin.runners.resources import Resources


class Place(Protocol):
    """Machines that a plugin reaches. ``address``: of ones that are there already; None: its own, for as long as needed. The
    place ``local`` is this machine, and has workers alone."""

    def train(self, task: Task) -> StepResult:
        """Execute the step ``train``."""

    def stage(self, name: str, **asked: Any) -> bool:
        """Have another step of the pipeline executed unless it has its output; whether it was."""

    def jobs(self, address: str | None, cpus: float | None, root: str | None) -> AbstractContextManager[JobRunner]:
        """See :func:`marin.runners.engines.open_jobs`."""

    def workers(
        self,
        workers: int,
        address: str | None = None,
        *,
        each: Resources | None = None,
        together: int = 1,
        variables: Mapping[str, str] | None = None,
    ) -> Runner:
        """See :func:`marin.runners.workers.warm_workers`."""

    def tasks(self, start: Start, setup: bytes, tasks: Sequence[bytes], workers: int) -> Iterator[tuple[int, bytes]]:
        """Tasks executed by workers that are replaced when they die, with their numbers, as they end."""

    def held(self, address: str | None = None, *, cpus: float = 0) -> AbstractContextManager[None]:
        """One and the same set of machines for everything in a ``with`` block."""


def place_of(runner: str) -> Place:
    """The place that ``--runner`` names.

    Raises:
        NotInstalled: there is no such plugin.
    """
    place: Place = load_plugin("marin.places", runner, f"--runner {runner}")
    return place
