"""Jobs on this machine without an engine: a fresh process each, or a fork of a prepared one, as the resources allow."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import BinaryIO

from ledger import Unavailable
from marin.provenance.environment import available_cores
from marin.runners.jobs import Attempt, Job, JobFuture, gave_up, is_whole, reference, unpack

GRACE_SECONDS = 10.0
"""How long a process that was asked to stop (SIGTERM) may take before it is killed."""


class LocalJobs(AbstractContextManager["LocalJobs"]):
    """:class:`marin.runners.jobs.JobRunner` with processes of this machine. A process ends when this one does: it reads
    from a pipe whose other end only this process holds."""

    def __init__(self, *, cpus: float | None = None, gpus: int = 0) -> None:
        self._cpus = float(available_cores()) if cpus is None else cpus
        self._gpus = list(range(gpus))
        self._free_cpus = self._cpus
        self._free_gpus = list(self._gpus)
        self._mutex = threading.Condition()
        self._waiting: list[tuple[JobFuture, str]] = []
        self._running: dict[JobFuture, threading.Thread] = {}
        self._prepared: list[_Process] = []

    def __exit__(self, *ended: object) -> None:
        with self._mutex:
            waiting, self._waiting = self._waiting, []
            running = dict(self._running)
        for future, _ in waiting:
            future.cancel()
        for future in running:
            future.cancel()
        for thread in running.values():
            thread.join()
        for process in self._prepared:
            process.end()

    def _answer(self, future: JobFuture, named: str, gpus: list[int], stopped: threading.Event) -> tuple[bytes, str]:
        """What one process answered, and how it died, "" if it did not."""
        job = future.job
        environment = {**os.environ, **job.environment}
        if gpus:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, gpus))
        alike = "" if gpus or not job.alike else json.dumps([job.alike, environment], sort_keys=True)
        with self._mutex:
            known = next((process for process in self._prepared if alike and process.alike == alike), None)
            if known is not None:
                self._prepared.remove(known)
        if known is not None and known.process.poll() is not None:  # it died after its last answer
            known.end()
            known = None
        used = known or _Process.begun(environment, alike)
        future.stoppable(lambda: _stop(used.process, stopped))
        if stopped.is_set():
            _stop(used.process, stopped)
        data, death = used.answer(job, named)
        if death or stopped.is_set() or not alike:
            used.end()
        else:
            future.stoppable(lambda: None)  # the process is another job's from here on
            with self._mutex:
                self._prepared.append(used)
        return data, death

    def submit(self, job: Job) -> JobFuture:
        """See :class:`marin.runners.jobs.JobRunner`.

        Raises:
            Unavailable: a job needs more than this machine has.
        """
        named = reference(job.function)
        needs = job.resources
        if needs.cpus > self._cpus or needs.gpus > len(self._gpus) or needs.tpus:
            raise Unavailable(
                "a job needs more than this machine has",
                where=f"job {job.name}",
                expected=f"at most {self._cpus:g} CPUs and {len(self._gpus)} GPUs",
                found=repr(needs),
                cure="ask for less, or name a cluster with --runner ray --address HOST:PORT",
            )
        future = JobFuture(job)
        with self._mutex:
            self._waiting.append((future, named))
        self._dispatch()
        return future

    def _dispatch(self) -> None:
        """Start whatever fits, oldest first."""
        with self._mutex:
            kept: list[tuple[JobFuture, str]] = []
            for place, (future, named) in enumerate(self._waiting):
                if self._free_cpus <= 0:
                    kept += self._waiting[place:]
                    break
                needs = future.job.resources
                gpus = int(-(-needs.gpus // 1))
                if needs.cpus > self._free_cpus or gpus > len(self._free_gpus):
                    kept.append((future, named))
                    continue
                if not future.set_running_or_notify_cancel():
                    continue
                held = [self._free_gpus.pop(0) for _ in range(gpus)]
                self._free_cpus -= needs.cpus
                thread = threading.Thread(
                    target=self._execute, args=(future, named, held), name=f"job {future.job.name}"
                )
                self._running[future] = thread
                thread.start()
            self._waiting = kept

    def _execute(self, future: JobFuture, named: str, gpus: list[int]) -> None:
        result: bytes | None = None
        failure: BaseException | None = None
        try:
            result = self._attempts(future, named, gpus)
        except BaseException as error:  # whatever it is, it belongs to the one that asks for the result
            failure = error
        with self._mutex:
            self._free_cpus += future.job.resources.cpus
            self._free_gpus = sorted([*self._free_gpus, *gpus])
            del self._running[future]
        self._dispatch()  # before the result is told: who waits for it finds the resources free
        if result is not None:
            future.set_result(result)
        else:
            future.set_exception(failure)

    def _attempts(self, future: JobFuture, named: str, gpus: list[int]) -> bytes:
        job = future.job
        stopped = threading.Event()
        for number in range(1, job.retries + 2):
            data, death = self._answer(future, named, gpus, stopped)
            if stopped.is_set():
                raise CancelledError
            attempt = Attempt(number, death)
            future.attempts.append(attempt)
            if not death:
                return unpack(job.name, data)
            if job.observe is not None:
                job.observe(attempt)
        raise gave_up(job, future.attempts)


@dataclass(frozen=True, eq=False)
class _Process:
    """A process that does jobs, where its answers come from, and which jobs are ``alike`` for it: "" for one job alone."""

    process: subprocess.Popen[bytes]
    answers: BinaryIO
    alike: str

    @classmethod
    def begun(cls, environment: dict[str, str], alike: str) -> _Process:
        """A new one."""
        reading, writing = os.pipe()
        process = subprocess.Popen(
            [sys.executable, "-m", "marin.runners.child", str(writing)],
            stdin=subprocess.PIPE,
            stdout=standard_error(),
            pass_fds=(writing,),
            env=environment,
            start_new_session=True,
        )
        os.close(writing)
        return cls(process, open(reading, "rb"), alike)

    def answer(self, job: Job, named: str) -> tuple[bytes, str]:
        """What it answered, and how it died, "" if it did not."""
        assert self.process.stdin is not None
        prepare = reference(job.prepare) if self.alike and job.prepare is not None else ""
        head = {"function": named, "size": len(job.payload), "prepare": prepare}
        with suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(head).encode() + b"\n" + job.payload)
            self.process.stdin.flush()
        data = self.answers.readline()
        if data.endswith(b"\n"):
            data += self.answers.read(json.loads(data).get("size", 0))
        if is_whole(data):
            return data, ""
        status = self.process.wait()
        if status == 0:
            return b"", "ended without an answer"
        with suppress(ValueError):
            return b"", f"killed by {signal.Signals(-status).name}"
        return b"", f"exit status {status}"

    def end(self) -> None:
        """Wait for its end; there are no more jobs."""
        assert self.process.stdin is not None
        with self.answers, suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()


def _stop(process: subprocess.Popen[bytes], stopped: threading.Event) -> None:
    """Ask the process and its children to end, and kill them when they do not."""
    stopped.set()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    killer = threading.Timer(GRACE_SECONDS, _kill, [process])
    killer.daemon = True
    killer.start()


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def standard_error() -> int:
    """What a child has for its standard output: that of this process is the caller's data, and what is printed there goes where
    logs go."""
    with suppress(OSError, ValueError):
        return sys.stderr.fileno()
    return subprocess.DEVNULL
