"""Work that another process does: a task and its answer, and for a worker a setup before the first task.

What travels is bytes, and they have this one form: values of types that both sides name (msgpack). What is executed is a
function or a :class:`Worker` of the installed code, found by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import msgspec

Work = Callable[[bytes], bytes]
"""One task in, its answer out."""
Start = Callable[[bytes], Work]
"""A function of an installed module, called with the setup once in every process of a worker."""


@dataclass(frozen=True)
class Seat:
    """Which of ``count`` processes this is that do a worker's tasks together, and where they meet (``host:port``, at
    which number 0 listens). The answer of number 0 counts."""

    number: int = 0
    count: int = 1
    meeting: str = ""


def encode(value: object) -> bytes:
    """A setup, a task or an answer as it travels."""
    return msgspec.msgpack.encode(value)


def decode[V](data: bytes | msgspec.Raw, kind: type[V]) -> V:
    """The value of this type that :func:`encode` wrote."""
    return msgspec.msgpack.decode(data, type=kind)


ALONE = Seat()
Setup = bytes | Callable[[Seat], bytes]
"""The setup of a worker; or that of each of its processes, by its seat."""
Run = Callable[[Start, Setup, Sequence[bytes]], AbstractContextManager[Iterator[bytes]]]
"""Has workers do tasks, answers in the order of the tasks (:meth:`marin.runners.Runner.run`)."""
Execute = Callable[[Start, bytes, Sequence[bytes]], Iterator[tuple[int, bytes]]]
"""Has workers do tasks and gives (number of the task, answer) in any order; every task at least once."""


def setup_bytes(setup: Setup, seat: Seat = ALONE) -> bytes:
    """The setup of the process in ``seat``."""
    return setup if isinstance(setup, bytes) else setup(seat)


@dataclass(frozen=True)
class Worker[S, T, A]:
    """What workers of one kind do. ``name``: ``module:name`` of this value. ``begin`` is called with the setup, once in each
    process, and takes the tasks then. ``prepare``: what of it processes may share that are forks of one, imports before all; it
    starts no thread. Tasks of type bytes are encoded one at a time, as they are handed out."""

    name: str
    setup: type[S]
    task: type[T]
    answer: type[A]
    begin: Callable[[S], Callable[[T], A]]
    prepare: Callable[[S], None] = lambda setup: None

    @contextmanager
    def run(self, run: Run, setup: S | Callable[[Seat], S], tasks: Sequence[T]) -> Iterator[Iterator[A]]:
        """The answers in the order of the tasks, each when it is asked for. ``setup``: of all processes, or of each by its
        seat."""
        sent: Setup = (lambda seat: self._sent(setup(seat))) if callable(setup) else self._sent(setup)
        with run(start, sent, _Encoded(tasks)) as answers:
            yield (decode(answer, self.answer) for answer in answers)

    def each(self, execute: Execute, setup: S, tasks: Sequence[T]) -> Iterator[tuple[int, A]]:
        """(number of the task, its answer), as they come."""
        for number, answer in execute(start, self._sent(setup), _Encoded(tasks)):
            yield number, decode(answer, self.answer)

    def _sent(self, setup: S) -> bytes:
        return encode((self.name, setup))


def start(setup: bytes) -> Work:
    """In each process of a worker, once (:data:`Start`)."""
    worker, rest = _worker(setup)
    work = worker.begin(decode(rest, worker.setup))
    return lambda task: encode(work(decode(task, worker.task)))


def prepare(setup: bytes) -> None:
    """Before a process forks itself into several that :func:`start`."""
    worker, rest = _worker(setup)
    worker.prepare(decode(rest, worker.setup))


def _worker(setup: bytes) -> tuple[Worker[Any, Any, Any], msgspec.Raw]:
    """The worker, and the rest of a setup. The name comes from the one that began the worker, never from a ledger."""
    name, rest = decode(setup, tuple[str, msgspec.Raw])
    module, _, attribute = name.partition(":")
    worker: Worker[Any, Any, Any] = getattr(import_module(module), attribute)
    return worker, rest


class _Encoded[T](Sequence[bytes]):
    """Tasks, each encoded when it is handed out: one may be megabytes that its sequence reads just then."""

    def __init__(self, tasks: Sequence[T]) -> None:
        self._tasks = tasks

    def __len__(self) -> int:
        return len(self._tasks)

    def __getitem__(self, number: int) -> bytes:  # type: ignore[override]
        return encode(self._tasks[number])
