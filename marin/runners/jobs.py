"""Jobs: single pieces of work with resources of their own, each in a fresh process, behind one small interface.

    with open_jobs("local") as jobs:                       # or "ray", with the address of a cluster or a Ray of its own
        future = jobs.submit(Job("tokens", worker.execute, payload, Resources(cpus=2)))
        future.result()                                    # bytes; or future.cancel(), add_done_callback(...)

What is executed is a module-level function of the installed code, and it travels by name: never as code, never as
something that a ledger or a store named. Payload and result are bytes whose format belongs to the caller. A process
is fresh for every attempt, because jax reads its settings once: ``Job.environment`` is in force before anything is
imported. An error of the ledger's tree that the function raises is raised by ``result()`` as what it was. A process
that dies (killed, out of memory, its machine lost) is started again, ``Job.retries`` times at most, and then
``result()`` raises :class:`Unavailable` with every death.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from importlib import import_module
from typing import Literal, Protocol

from ledger import LedgerError, Unavailable
from marin import errors
from marin.errors import StepFailed, UsageError
from marin.runners.resources import Resources

Function = Callable[[bytes], bytes]
"""A module-level function of an importable module: payload in, result out."""
RunnerName = Literal["local", "ray"]


@dataclass(frozen=True)
class Attempt:
    """One process that worked on a job: the first is number 1. ``death`` says how it died, "" when it answered."""

    number: int
    death: str = ""


@dataclass(frozen=True)
class Job:
    """One piece of work. ``retries``: how often a process that died is replaced. ``observe`` is called from another
    thread for every process that died, before the next one starts, so that the caller can record it. ``launches``: the
    job starts work of its own on the same Ray (a training), so it is a process beside this one and no task there.
    ``prepare`` is called with the payload in a process of this machine whose forks do all jobs that are ``alike``, in turn."""

    name: str
    function: Function
    payload: bytes
    resources: Resources = field(default_factory=Resources)
    environment: Mapping[str, str] = field(default_factory=dict)
    retries: int = 2
    observe: Callable[[Attempt], None] | None = None
    launches: bool = False
    prepare: Function | None = None
    alike: str = ""


class JobFuture(Future[bytes]):
    """The result of a job, as :class:`concurrent.futures.Future` has it; ``cancel`` also ends a job that is running."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.job = job
        self.attempts: list[Attempt] = []
        self._stop: Callable[[], None] | None = None

    def cancel(self) -> bool:
        """Drop the job if it waits, end its process if it runs. False when it is done already."""
        if super().cancel():
            return True
        stop = self._stop
        if self.done() or stop is None:
            return False
        stop()
        return True

    def stoppable(self, stop: Callable[[], None]) -> None:
        """For runners: what ends the process that works on this job."""
        self._stop = stop


class JobRunner(Protocol):
    """Takes jobs and executes each as soon as its resources are free, in the order of their submission."""

    def submit(self, job: Job) -> JobFuture:
        """Accept a job.

        Raises:
            UsageError: the function is not one that a fresh process can find by name.
            Unavailable: the job needs more than there is in all.
        """


# A function by name, and an answer as bytes: what goes back and forth between processes.


def reference(function: Callable[[bytes], object]) -> str:
    """``module:name`` of a function that any process with the same installation finds again.

    Raises:
        UsageError: not a function that another process can find.
    """
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    found = getattr(sys.modules.get(module), name, None)
    if module == "__main__" or found is not function:
        raise UsageError(
            "not a function that another process can find",
            where=f"{module}:{name}",
            expected="a function at the top of an installed module",
            found=repr(function),
            cure="move it into a module of the installed packages",
        )
    return f"{module}:{name}"


def resolve(named: str) -> Function:
    """The function that :func:`reference` named, in this process. Names come from a runner, never from data."""
    module, _, name = named.partition(":")
    function = getattr(import_module(module), name)
    assert callable(function), f"{named} is a function"
    return function  # type: ignore[no-any-return]


def answer(function: Function, payload: bytes) -> bytes:
    """Call, and put result or error into bytes: on one line the result's size or the parts of the error, then the
    result."""
    try:
        result = function(payload)
    except LedgerError as error:
        return json.dumps({"error": parts_of(error)}).encode() + b"\n"
    except (Exception, SystemExit) as error:
        text = " ".join(str(error).split())[:400]
        parts = [
            "StepFailed",
            "the job stopped",
            "",
            "",
            f"{type(error).__name__}: {text}",
            "MARIN_DEBUG=1 shows where",
        ]
        return json.dumps({"error": parts}).encode() + b"\n"
    return json.dumps({"size": len(result)}).encode() + b"\n" + result


def is_whole(data: bytes) -> bool:
    """Whether an answer was written to its end: the process may have died over it, or afterwards."""
    head, newline, result = data.partition(b"\n")
    return bool(newline) and ((size := json.loads(head).get("size")) is None or size == len(result))


def unpack(name: str, data: bytes) -> bytes:
    """The result in a whole answer; raises the error if it is one."""
    head, _, result = data.partition(b"\n")
    parts = json.loads(head).get("error")
    if parts is None:
        return result
    raise error_of([*parts[:2], parts[2] or f"job {name}", *parts[3:]])


def parts_of(error: LedgerError) -> list[str]:
    """Kind and fields of an error, to be sent to another process."""
    return [type(error).__name__, error.what, error.where, error.expected, error.found, error.cure]


def error_of(parts: Sequence[str]) -> LedgerError:
    """The error that :func:`parts_of` took apart; one of an unknown kind is a :class:`StepFailed`."""
    kind, what, where, expected, found, cure = parts
    known = {error.__name__: error for error in _below(LedgerError)}
    return known.get(kind, StepFailed)(what, where=where, expected=expected, found=found, cure=cure)


def _below(kind: type[LedgerError]) -> Iterator[type[LedgerError]]:
    """This error and those below it that the ledger or Marin defines: one of a user's may take other fields."""
    if kind.__module__ in (LedgerError.__module__, errors.__name__):
        yield kind
    for other in kind.__subclasses__():
        yield from _below(other)


def gave_up(job: Job, attempts: list[Attempt]) -> Unavailable:
    """What a job raises whose processes died once too often."""
    deaths = "; ".join(f"attempt {attempt.number}: {attempt.death}" for attempt in attempts)
    return Unavailable(
        "a job's process died again and again",
        where=f"job {job.name}",
        expected=f"at most {job.retries} restarts",
        found=deaths[:600],
        cure="give it more memory or fewer neighbours, and run the same command again: it goes on from here",
    )
