"""What earlier runs say of this machine's speed: only those of this processor, only what was executed, the nearest
first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ledger import Event, Stray
from marin.history import measured
from marin.history.measured import measurements
from marin.history.run import Fact
from marin.provenance.environment import available_cores, processor
from marin.recipe.cost import work_of
from marin.recipe.schema import Recipe, Trainer, recorded
from marin.record import events

HERE: dict[str, Any] = {"processor": {"model": processor().model}, "cores": {"available": available_cores()}}


class Log:
    """Events without a ledger."""

    def __init__(self) -> None:
        self.log: list[Event] = []

    def add(self, kind: str, body: dict[str, Any]) -> None:
        self.log.append(Event(f"id{len(self.log)}", kind, f"run/{body['run']}", len(self.log), "t", "a", body))

    def run(self, name: str, environment: object, steps: int, seconds: object, step: str = "train") -> None:
        self.add(
            events.RUN_STARTED,
            {"run": name, "recipe": recorded(Recipe(trainer=Trainer(num_steps=steps))), "environment": environment},
        )
        self.add(events.STEP_COMPLETED, {"run": name, "step": step, "seconds": seconds})

    def events(
        self, *, stream: str | None = None, type: str | None = None, **named: str | None
    ) -> Iterable[tuple[int, Event]]:
        return ((index, event) for index, event in enumerate(self.log) if type in (None, event.type))

    def event(self, index: int) -> Event | None:
        return self.log[index]

    def strays(self, naming: str) -> tuple[Stray, ...]:
        return ()

    def newest(self, stream: str) -> int:
        return max((index for index, event in self.events(stream=stream)), default=-1)

    def counts(self, verdict: Fact[events.ReplayCompleted]) -> bool:
        return True


def no_table(work: object) -> float | None:
    return None


def test_only_this_processor_with_as_many_cores_counts() -> None:
    log = Log()
    log.run("here", HERE, 240, 60.0)
    log.run("other", HERE | {"processor": {"model": "another"}}, 240, 6.0)
    log.run("more", HERE | {"cores": {"available": 512}}, 240, 6.0)
    log.run("odd", "not a mapping", 240, 6.0)
    log.run("wrong", HERE, 240, "soon")
    found = measurements(log).seconds("train", work_of("train", Recipe()), no_table)
    assert found == (60.0, "measured in run here")


def test_the_nearest_in_size_is_scaled_and_the_newest_of_equals_counts() -> None:
    log = Log()
    log.run("small", HERE, 100, 30.0)
    log.run("old", HERE, 1000, 200.0)
    log.run("new", HERE, 1000, 215.0)
    found = measurements(log)
    assert found.seconds("train", work_of("train", Recipe(trainer=Trainer(num_steps=1000))), no_table) == (
        215.0,
        "measured in run new",
    )
    twice = found.seconds("train", work_of("train", Recipe(trainer=Trainer(num_steps=2000))), no_table)
    assert twice is not None and abs(twice[0] - (15 + 2 * 200)) < 1e-6 and twice[1] == "scaled from run new"
    assert found.seconds("evaluate", work_of("evaluate", Recipe()), no_table) is None


def test_a_recipe_that_cannot_be_read_counts_as_a_step_of_unknown_size() -> None:
    log = Log()
    log.add(events.RUN_STARTED, {"run": "old", "recipe": {"of": "another version"}, "environment": HERE})
    log.add(events.STEP_COMPLETED, {"run": "old", "step": "train", "seconds": 9.0})
    found = measurements(log)
    assert found.seconds("train", work_of("train", Recipe()), no_table) is None
    assert found.seconds("train", measured.Work.unknown(), no_table) == (9.0, "measured once")
