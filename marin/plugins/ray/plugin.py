"""What this plugin adds: the place ``ray`` (:class:`marin.runners.places.Place`). Ray is imported where it is needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from marin.runners import Runner
from marin.work.placed import Start

if TYPE_CHECKING:
    from marin.execution.step import StepResult, Task
    from marin.runners.jobs import JobRunner
    from marin.runners.resources import Resources


class RayPlace:
    """A Ray of this machine, or the cluster at an address."""

    def train(self, task: Task) -> StepResult:
        from marin.plugins.ray.training import train_on_ray

        return train_on_ray(task)

    def stage(self, name: str, **asked: Any) -> bool:
        from marin.graph.execution.stage import stage_on_ray

        return stage_on_ray(name, **asked)

    def jobs(self, address: str | None, cpus: float | None, root: str | None) -> AbstractContextManager[JobRunner]:
        from marin.plugins.ray.jobs import RayJobs

        return RayJobs(address=address, cpus=cpus, root=root)

    def workers(
        self,
        workers: int,
        address: str | None = None,
        *,
        each: Resources | None = None,
        together: int = 1,
        variables: Mapping[str, str] | None = None,
    ) -> Runner:
        from marin.plugins.ray.pool import RayRunner
        from marin.runners.resources import Resources

        return RayRunner(workers, address, each=each or Resources(), together=together, variables=variables)

    def tasks(self, start: Start, setup: bytes, tasks: Sequence[bytes], workers: int) -> Iterator[tuple[int, bytes]]:
        from marin.plugins.ray.data import execute_by_data

        return execute_by_data(start, setup, tasks, workers)

    def held(self, address: str | None = None, *, cpus: float = 0) -> AbstractContextManager[None]:
        from marin.plugins.ray.cluster import one_ray

        return one_ray(address, cpus=cpus)


RAY = RayPlace()
