"""What a follower asks of a training that goes on, and what the training answers: the bodies of their events.

The request stands in the stream ``replay/RUN``, with what else a reproducer says of the run. The answer stands in the run's
own stream: from there on it says what of the training stands.
"""

from __future__ import annotations

from marin.record.bodies.body import Body, Digest

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


FOLLOWING: dict[str, type[Body]] = {STOP_REQUESTED: StopRequested, TRAIN_WITHDRAWN: TrainWithdrawn}
"""The bodies of these events, by type."""
