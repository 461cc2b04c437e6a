"""Jobs as Ray tasks: a fresh worker process each, wherever the cluster has the resources.

Ray queues and places them; it does not retry: retries are counted here, so that every death can be recorded. A worker
whose installed code is not the driver's refuses to work, because what it made could not be named by the driver's code.
"""

from __future__ import annotations

import math
import threading
from concurrent.futures import CancelledError, Future, wait
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Self

from marin.plugins.ray.cluster import ADDRESS_VARIABLE, connect, import_ray
from marin.plugins.ray.deaths import describe_death
from marin.plugins.ray.resources import check, options
from marin.plugins.ray.software import other_software_than, software
from marin.plugins.ray.writer import SpooledAppender, start_writer
from marin.provenance.environment import available_cores
from marin.record.root import append_through, open_root
from marin.runners.jobs import Attempt, Job, JobFuture, answer, gave_up, reference, resolve, unpack
from marin.runners.process import GRACE_SECONDS, LocalJobs
from marin.runners.resources import Resources


class RayJobs:
    """:class:`marin.runners.jobs.JobRunner` on a Ray of its own with ``cpus``, or on that at ``address``."""

    def __init__(self, *, address: str | None = None, cpus: float | None = None, root: str | None = None) -> None:
        self._address = address
        self._root = root
        self._cpus = float(available_cores()) if cpus is None else cpus
        self._mutex = threading.Lock()
        self._open: set[JobFuture] = set()
        self._is_closed = False
        self._exit = ExitStack()
        self._software = software()
        self._ray: Any = None
        self._task: Any = None
        self._writer: Any = None
        self._beside = LocalJobs(cpus=math.inf)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._ray = stack.enter_context(connect(self._address, cpus=self._cpus))
            stack.enter_context(self._beside)
            if self._root is not None:
                # Held: Ray ends an actor, named or not, when nobody holds it any more.
                self._writer = start_writer(self._ray, open_root(self._root), self._root)
            self._task = self._ray.remote(max_retries=0, max_calls=1)(_work)
            self._exit = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with self._mutex:
            running = list(self._open)
        try:
            for future in running:
                future.cancel()
            wait(running, timeout=GRACE_SECONDS)
        finally:  # also where one was asked to stop again
            with self._mutex:
                self._is_closed = True
            self._exit.close()
            for future in running:
                if not future.done():
                    future.set_exception(CancelledError())

    def submit(self, job: Job) -> JobFuture:
        if job.launches:
            here = {ADDRESS_VARIABLE: self._ray.get_runtime_context().gcs_address}
            return self._beside.submit(
                replace(job, environment={**job.environment, **here}, resources=Resources(cpus=0))
            )
        named = reference(job.function)
        check(self._ray, job.resources, where=f"job {job.name}")
        future = JobFuture(job)
        future.set_running_or_notify_cancel()  # Ray's queue is Ray's: from here on the job counts as under way
        with self._mutex:
            self._open.add(future)
        self._attempt(future, named, 1, threading.Event())
        return future

    def _attempt(self, future: JobFuture, named: str, number: int, stopped: threading.Event) -> None:
        job = future.job
        asked = options(job.resources) | {"name": job.name}
        if job.environment:
            asked["runtime_env"] = {"env_vars": dict(job.environment)}
        handle = self._task.options(**asked).remote(named, job.payload, self._software, self._root)

        def stop() -> None:
            stopped.set()
            self._ray.cancel(handle)  # KeyboardInterrupt in its process, which records that it was stopped
            killer = threading.Timer(GRACE_SECONDS, self._kill, [future, handle])
            killer.daemon = True
            killer.start()

        future.stoppable(stop)
        handle.future().add_done_callback(lambda done: self._ended(future, named, number, stopped, done))

    def _kill(self, future: JobFuture, handle: Any) -> None:
        """End the process of a job that was asked to stop and did not; with Ray, if that has ended, so has the process."""
        with self._mutex:
            if future in self._open and not self._is_closed:
                self._ray.cancel(handle, force=True)

    def _ended(self, future: JobFuture, named: str, number: int, stopped: threading.Event, done: Future[bytes]) -> None:
        """One process ended; called from a thread of Ray's."""
        try:
            if stopped.is_set():
                raise CancelledError
            error = done.exception()
            death = "" if error is None else describe_death(error)
            attempt = Attempt(number, death)
            future.attempts.append(attempt)
            if error is None:
                self._tell(future, unpack(future.job.name, done.result()), None)
                return
            if future.job.observe is not None:
                future.job.observe(attempt)
            if number > future.job.retries:
                raise gave_up(future.job, future.attempts)
            self._attempt(future, named, number + 1, stopped)
        except BaseException as failure:  # whatever it is, it belongs to the one that asks for the result
            self._tell(future, None, failure)

    def _tell(self, future: JobFuture, result: bytes | None, failure: BaseException | None) -> None:
        with self._mutex:
            self._open.discard(future)
        if future.done():
            return
        if failure is not None:
            future.set_exception(failure)
        else:
            future.set_result(result or b"")


def _work(named: str, payload: bytes, expected: str, writes: str | None) -> bytes:
    """In a worker process: the answer to one job, which may append to the root ``writes``."""

    def checked(payload: bytes) -> bytes:
        if (refusal := other_software_than(expected)) is not None:
            raise refusal
        if writes is not None:
            append_through(SpooledAppender(import_ray(), open_root(writes)))
        return resolve(named)(payload)

    return answer(checked, payload)
