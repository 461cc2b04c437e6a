"""Work that another process does: what arrives is what was sent, and each task is read when it is handed out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.graph.execution.work import by_bytes
from marin.runners.jobs import reference, resolve
from marin.runners.workers import LocalRunner
from marin.work import placed
from marin.work.placed import Seat, Worker, decode, encode


class Sum(msgspec.Struct, frozen=True):
    losses: list[float]
    seat: Seat


@dataclass(frozen=True)
class Part:
    text: str
    data: bytes = b""


def begin(setup: Sum) -> Callable[[Part], Sum]:
    return lambda part: Sum([*setup.losses, float(len(part.text) + len(part.data))], setup.seat)


WORKER = Worker(f"{__name__}:WORKER", Sum, Part, Sum, begin)


@by_bytes(Part)
def count(part: Part) -> int:
    """What a job executes."""
    return len(part.text)


class Read(Sequence[Part]):
    """Tasks that say when they are read."""

    def __init__(self) -> None:
        self.read: list[int] = []

    def __len__(self) -> int:
        return 3

    def __getitem__(self, number: int) -> Part:  # type: ignore[override]
        if number >= 3:
            raise IndexError
        self.read.append(number)
        return Part("x" * number)


def test_a_worker_gets_its_setup_and_one_task_after_the_other() -> None:
    tasks = Read()
    with WORKER.run(LocalRunner().run, Sum([math.nan, math.inf], Seat()), tasks) as answers:
        assert tasks.read == [], "none is read before it is handed out"
        first = next(answers)
        assert tasks.read == [0]
        assert math.isnan(first.losses[0]) and first.losses[1:] == [math.inf, 0.0]
        assert [answer.losses[2] for answer in answers] == [1.0, 2.0]


def test_each_process_of_a_worker_gets_the_setup_of_its_seat() -> None:
    seats = []

    def setup(seat: Seat) -> Sum:
        seats.append(seat)
        return Sum([], seat)

    with WORKER.run(LocalRunner().run, setup, [Part("a")]) as answers:
        assert next(answers).seat == seats[0] == Seat(0, 1, "")


@given(st.lists(st.builds(Part, st.text(), st.binary())))
def test_answers_in_any_order_keep_their_number(parts: list[Part]) -> None:
    def backwards(start: placed.Start, setup: bytes, tasks: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
        work = start(setup)
        for number in reversed(range(len(tasks))):
            yield number, work(tasks[number])

    found = dict(WORKER.each(backwards, Sum([], Seat()), parts))
    assert found == {n: Sum([float(len(p.text) + len(p.data))], Seat()) for n, p in enumerate(parts)}


def test_a_job_is_found_by_its_name() -> None:
    assert resolve(reference(count)) is count
    assert decode(count(encode(Part("four"))), int) == 4


def test_what_does_not_fit_its_type_is_not_begun() -> None:
    with pytest.raises(msgspec.ValidationError):
        placed.start(encode((WORKER.name, {"losses": "none"})))
