"""The runner on Ray: warm worker processes that take one task after the other (:mod:`marin.runners.ray.cluster` has the
Ray)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from ledger import Unavailable
from marin.process.collector import collect_less_often
from marin.runners import Start
from marin.runners.jobs import Resources, error_of, parts_of
from marin.runners.ray.cluster import connected
from marin.runners.ray.resources import check, options
from marin.runners.ray.software import software

ONE_CORE = Resources()
RESTARTS = 2
"""How often a worker that died is started again, and its task with it, before it counts as a failure."""


class RayRunner:
    """:class:`marin.runners.Runner` on ``workers`` processes of a Ray of its own, or of the cluster at ``address``.
    ``each``: what one of them reserves."""

    def __init__(self, workers: int, address: str | None = None, *, each: Resources = ONE_CORE) -> None:
        self.workers = workers
        self._address = address
        self._each = each

    @contextmanager
    def run(self, start: Start, setup: bytes, tasks: Sequence[bytes]) -> Iterator[Iterator[bytes]]:
        """The results in order. Workers take the next task as soon as they have finished one."""
        count = max(1, min(self.workers, len(tasks)))
        with connected(self._address, cpus=max(self.workers, self._each.cpus)) as ray:
            check(ray, self._each, where=f"{count} worker(s)", count=count)
            asked = options(self._each)
            kind = ray.remote(**asked, max_restarts=RESTARTS, max_task_retries=RESTARTS)(_Worker)
            pool = [kind.remote(start, setup, software()) for _ in range(count)]
            try:
                yield _in_order(ray, pool, tasks)
            finally:  # the Ray may live on, for others or for the next piece of work
                for worker in pool:
                    with suppress(ray.exceptions.RayError):
                        ray.kill(worker)


class _Worker:
    """The actor: a started piece of work that takes tasks. One with other software than the driver's refuses them."""

    def __init__(self, start: Start, setup: bytes, expected: str) -> None:
        collect_less_often()
        self._expected, self._found = expected, software()
        self._work = start(setup) if self._found == expected else None

    def do(self, task: bytes) -> tuple[bytes, list[str]]:
        """The result of one task, or the parts of an error."""
        if self._work is None:
            return b"", parts_of(
                Unavailable(
                    "the worker has other software than the driver",
                    where="Ray worker",
                    expected=self._expected,
                    found=self._found,
                    cure="use the same image on all machines (docs/cluster.md)",
                )
            )
        return self._work(task), []


def _in_order(ray: Any, pool: Sequence[Any], tasks: Sequence[bytes]) -> Iterator[bytes]:
    """Hand tasks to whoever is free, in order, and give the results out in order too."""
    idle = list(pool)
    running: dict[Any, tuple[int, Any]] = {}
    ready: dict[int, bytes] = {}
    following = 0
    for wanted in range(len(tasks)):
        while wanted not in ready:
            while idle and following < len(tasks):
                worker = idle.pop()
                running[worker.do.remote(tasks[following])] = (following, worker)
                following += 1
            (done,), _ = ray.wait(list(running), num_returns=1)
            number, worker = running.pop(done)
            idle.append(worker)
            try:
                ready[number], parts = ray.get(done)
            except ray.exceptions.RayActorError as error:
                raise Unavailable(
                    "a worker died again and again",
                    where=f"task {number} of {len(tasks)}",
                    expected=f"at most {RESTARTS} restarts",
                    found=" ".join(str(error).split())[:300],
                    cure="use fewer workers: each holds the whole state in memory",
                ) from error
            if parts:
                raise error_of(parts)
        yield ready.pop(wanted)
