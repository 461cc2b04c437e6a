"""The type of event that this plugin writes: a run on a track of speedruns."""

from __future__ import annotations

from msgspec import Struct

from marin.kinds.body import Body, Digest, HexFloat, Json
from marin.kinds.kind import Kind

SPEEDRUN_ENTERED = "speedrun.entered/v1"


class Replayed(Struct, frozen=True, kw_only=True):
    """Where a reproducer's five PASS stand: the verifier key, the event in that log, and the size of the run's log."""

    key: str
    event: int
    size: int


class SpeedrunEntered(Body, frozen=True, omit_defaults=True):
    """A run on a track (the ``registration`` of an experiment), admitted by the keeper of the track: the keeper or ``replayed``
    others replayed all of it. ``run`` is one of the log ``origin`` under ``keys``, whose root at ``size`` is ``root`` (hex).
    ``score`` is the track's metric; ``flops`` of training and ``parameters`` follow from ``recipe``, ``hours`` from what
    those who counted needed to replay its training (None where they did not say so)."""

    track: str
    registration: Digest
    run: str
    origin: str
    keys: list[str]
    size: int
    root: str
    recipe: Json
    metric: str
    score: HexFloat
    flops: float
    parameters: int
    replayed: list[Replayed]
    hours: float | None = None


KINDS: tuple[Kind, ...] = (
    Kind(
        SPEEDRUN_ENTERED,
        SpeedrunEntered,
        beside=lambda event: f"an entry of this run on the track {event.body.get('track')} by {event.actor}",
    ),
)
