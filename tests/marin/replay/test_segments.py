"""Stored states that no segment starts from are looked at too, whatever a dishonest record says that they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import msgspec
import pytest

from marin.events import CheckpointSaved, TrainSegment
from marin.replay.compare import Divergence
from marin.replay.segments import Answer, Job, SegmentWorker, idle_states
from marin.runs import Fact, RunView
from tests.marin.replay.test_difference import sha, view


def saved(step: int, artifact: int) -> CheckpointSaved:
    """The stored state after ``step`` train steps of :func:`view`'s run."""
    return CheckpointSaved(run="r", step=step, state=sha(80 + step), artifact=sha(artifact), manifest=sha(1), size=1)


def run(*checkpoints: CheckpointSaved) -> RunView:
    facts = tuple(Fact(i, "", body) for i, body in enumerate(checkpoints))
    body = view().started.body
    return replace(view(), checkpoints=facts, started=Fact(0, "", msgspec.structs.replace(body, continues=None)))


@pytest.mark.parametrize(("checkpoints", "idle"), [
    ((saved(2, 100), saved(4, 101)), [4]),
    ((saved(2, 100), saved(4, 100)), [4]),  # the last one said to be what another one is
    ((saved(2, 102), saved(2, 100), saved(4, 101)), [2, 4]),  # two of one state: replay starts from the later one
])
def test_states_that_nothing_starts_from(checkpoints: tuple[CheckpointSaved, ...], idle: list[int]) -> None:
    found = idle_states(run(*checkpoints))
    assert [body.step for body in found] == idle
    job = Job(view().segments[1].body, sha(100), None, None, found)
    assert msgspec.json.decode(msgspec.json.encode(job), type=Job) == job


class Held:
    """A replay that found no difference, in a store whose states of step 4 are others than they are recorded as."""

    program: ClassVar[dict[str, object]] = {}

    def replay(self, segment: TrainSegment, *_: object) -> tuple[Divergence | None, Sequence[float]]:
        return None, [1.0]

    def mislabelled(self, checkpoints: Sequence[CheckpointSaved]) -> list[str]:
        return [f"another state at step {body.step}" for body in checkpoints if body.step == 4]


@pytest.mark.parametrize(("checkpoint", "outcome", "line"), [(2, "PASS", ""), (4, "FAIL", "another state at step 4")])
def test_a_segment_that_holds_does_not_hide_them(checkpoint: int, outcome: str, line: str) -> None:
    worker = object.__new__(SegmentWorker)
    worker._made = Held()  # type: ignore[assignment]
    job = Job(view().segments[1].body, sha(100), None, None, [saved(checkpoint, 101)])
    answer = msgspec.json.decode(worker(msgspec.json.encode(job)), type=Answer)
    assert (answer.outcome, answer.line) == (outcome, line)
