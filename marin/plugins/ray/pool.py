"""The runner on Ray: warm worker processes that take one task after the other (:mod:`marin.plugins.ray.cluster` has the
Ray)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from typing import Any

from ledger import LedgerError, Unavailable
from marin.plugins.ray.cluster import connect
from marin.plugins.ray.meeting import held_address
from marin.plugins.ray.resources import check, options
from marin.plugins.ray.software import other_software_than, software
from marin.process.interpreter import collect_less_often, with_room
from marin.runners.jobs import error_of, parts_of
from marin.runners.resources import Resources
from marin.work.placed import Seat, Setup, Start, setup_bytes

ONE_CORE = Resources()
RESTARTS = 2
"""How often a worker that died is started again, and its task with it, before it counts as a failure."""


class RayRunner:
    """:class:`marin.runners.Runner` on a Ray of its own, or on the cluster at ``address``. Each of ``workers`` is
    ``together`` processes that do every task of it at the same time; ``each``: what one of these reserves, and
    ``variables`` is set in them before anything is imported."""

    def __init__(
        self,
        workers: int,
        address: str | None = None,
        *,
        each: Resources = ONE_CORE,
        together: int = 1,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.workers = workers
        self._address = address
        self._each = each
        self._together = together
        self._variables = dict(variables or {})

    @contextmanager
    def run(self, start: Start, setup: Setup, tasks: Sequence[bytes]) -> Iterator[Iterator[bytes]]:
        """The results in order. Workers take the next task as soon as they have finished one."""
        count = max(1, min(self.workers, len(tasks)))
        with connect(self._address, cpus=max(self.workers * self._together, self._each.cpus)) as ray:
            check(ray, self._each, where=f"{count * self._together} worker(s)", count=count * self._together)
            # Of several together none can be begun again alone: the others wait for it in the middle of a program.
            lives = RESTARTS if self._together == 1 else 0
            asked = {**options(self._each), "max_restarts": lives, "max_task_retries": lives}
            if self._variables:
                asked["runtime_env"] = {"env_vars": self._variables}
            kind = ray.remote(**asked)(_Process)
            alone = setup_bytes(setup) if self._together == 1 else None
            crews = [[kind.remote(start, alone, software()) for _ in range(self._together)] for _ in range(count)]
            try:
                if self._together > 1:
                    _assemble(ray, crews, setup)
                yield _in_order(ray, crews, tasks, lives)
            finally:  # the Ray may live on, for others or for the next piece of work
                for process in chain.from_iterable(crews):
                    with suppress(ray.exceptions.RayError):
                        ray.kill(process)


class _Process:
    """The actor: a started piece of work that takes tasks. One with other software than the driver's refuses them."""

    def __init__(self, start: Start, setup: bytes | None, expected: str) -> None:
        collect_less_often()
        refusal = other_software_than(expected)
        self._refusal = parts_of(refusal) if refusal is not None else []
        self._start, self._held = start, ExitStack()
        self._work = with_room(start, setup) if refusal is None and setup is not None else None

    def meeting(self) -> tuple[str, list[str]]:
        """An address of this machine where several can meet, or the parts of an error."""
        import ray

        if self._refusal:
            return "", self._refusal
        return self._held.enter_context(held_address(ray.util.get_node_ip_address())), []

    def join(self, setup: bytes) -> None:
        """Begin as one of several; returns when all have met."""
        self._work = with_room(self._start, setup)

    def do(self, task: bytes) -> tuple[bytes, list[str]]:
        """The result of one task, or the parts of an error."""
        if self._work is None:
            return b"", self._refusal
        try:
            return with_room(self._work, task), []
        except LedgerError as error:
            return b"", parts_of(error)


def _assemble(ray: Any, crews: Sequence[Sequence[Any]], setup: Setup) -> None:
    """Have the processes of each crew meet where its first one says. None waits for one that cannot come."""
    waiting = []
    for crew in crews:
        offered = ray.get([process.meeting.remote() for process in crew])
        if parts := next((parts for _, parts in offered if parts), None):
            raise error_of(parts)
        (meeting, _), *_ = offered
        seats = [Seat(number, len(crew), meeting) for number in range(len(crew))]
        waiting += [process.join.remote(setup_bytes(setup, seat)) for process, seat in zip(crew, seats, strict=True)]
    try:
        while waiting:
            done, waiting = ray.wait(waiting, num_returns=1)
            ray.get(done)
    except ray.exceptions.RayActorError as error:
        raise _died(error, "before the first task", 0) from error


def _in_order(ray: Any, crews: Sequence[Sequence[Any]], tasks: Sequence[bytes], lives: int) -> Iterator[bytes]:
    """Hand tasks to the workers that are free, in order, and give the results out in order too. Of several together the first
    one's result counts, and whatever befalls one of them befalls the task."""
    idle = list(crews)
    running: dict[Any, tuple[int, Sequence[Any], bool]] = {}
    ready: dict[int, bytes] = {}
    following = 0
    for wanted in range(len(tasks)):
        while wanted not in ready:
            while idle and following < len(tasks):
                crew = idle.pop()
                for process in crew:
                    running[process.do.remote(tasks[following])] = (following, crew, process is crew[0])
                following += 1
            (done,), _ = ray.wait(list(running), num_returns=1)
            number, crew, first = running.pop(done)
            try:
                answer, parts = ray.get(done)
            except ray.exceptions.RayActorError as error:
                raise _died(error, f"task {number} of {len(tasks)}", lives) from error
            if parts:
                raise error_of(parts)
            if first:
                ready[number] = answer
                idle.append(crew)
        yield ready.pop(wanted)


def _died(error: Exception, where: str, lives: int) -> Unavailable:
    return Unavailable(
        "a worker died again and again" if lives else "one of several processes that work together died",
        where=where,
        expected=f"at most {lives} restarts",
        found=" ".join(str(error).split())[:300],
        cure="use fewer workers: each holds the whole state in memory",
    )
