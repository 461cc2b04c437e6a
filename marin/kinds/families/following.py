"""What a follower asks of a training that goes on, and what the training answers.

The request stands in the stream ``replay/RUN``, with what else a reproducer says of the run. The answer stands in the run's
own stream: from there on it says what of the training stands.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from msgspec import ValidationError, convert

from ledger import canonical_digest
from marin.kinds.body import Body, Digest
from marin.kinds.claim import Claim
from marin.kinds.families.train import TRAIN_SEGMENT, within
from marin.kinds.kind import Around, Fact, Held, InStream, Kind, Pair, RunContext

STOP_REQUESTED = "stop.requested/v1"
TRAIN_WITHDRAWN = "train.withdrawn/v1"


class StopRequested(Body, frozen=True, omit_defaults=True):
    """A follower of a run found something that does not hold, and asks its training to record no more of it. ``found``: in
    words. ``segment`` digests the whole body of the train.segment that did not hold, None where it is about something else.
    ``step`` and ``state``: the last state that held, before which train step. ``back``: to go on from there at once, instead
    of ending."""

    run: str
    found: str
    step: int
    segment: Digest | None = None
    state: Digest | None = None
    back: bool = False


class TrainWithdrawn(Body, frozen=True):
    """A training goes on from an earlier state than its last one: what it recorded until now of train steps from ``step`` on
    stands no more. ``request`` is the index of the stop.requested that it answers."""

    run: str
    step: int
    request: int


def _request(fact: Fact[TrainWithdrawn], history: Any, stretch: InStream) -> Fact[StopRequested] | None:
    """What a follower asked of this training, which it answers."""
    for index, event in history.events(type=STOP_REQUESTED, run=stretch.run):
        if index == fact.body.request:
            with suppress(ValidationError):
                return Fact(index, event.time, convert(event.body, StopRequested), event.actor)
    return None


def _withdrawn(fact: Fact[TrainWithdrawn], seen: RunContext) -> Iterator[Pair]:
    """A training withdraws what a follower had refuted before, from the state on that the request names."""
    body, asked = fact.body, seen.referred.get(fact.index)
    if asked is None or asked.index >= fact.index or asked.body.run != seen.stream:
        yield "request", f"a {STOP_REQUESTED} of run {seen.stream} before it", f"event {body.request}"
    elif not any(
        place < asked.index
        and event.type == TRAIN_SEGMENT
        and event.body["start"] >= body.step
        and canonical_digest(event.body) == asked.body.segment
        for place, event in seen.events
    ):
        wanted = f"one about a segment from train step {body.step} on, recorded before it"
        yield "request", wanted, f"event {body.request}, about {asked.body.segment or 'no segment'}"
    else:
        yield from within("step", body.step, seen)
        yield "step", asked.body.step, body.step


def _went_back(fact: Fact[TrainWithdrawn], around: Around) -> Iterator[Claim]:
    asked = around.referred.get(fact.index)
    why = f", for a follower said: {asked.body.found}" if asked is not None else ""
    back = f"the training went back to the state before train step {fact.body.step}{why}"
    yield Claim(back, "claimed", event=fact.index)


KINDS: tuple[Kind, ...] = (
    Kind(STOP_REQUESTED, StopRequested, verdict=True),
    Kind(
        TRAIN_WITHDRAWN,
        TrainWithdrawn,
        step="train",
        run=Held(agrees=_withdrawn),
        kept=True,
        withdraws=lambda body: int(body.step),
        refers=_request,
        claims=_went_back,
    ),
)
