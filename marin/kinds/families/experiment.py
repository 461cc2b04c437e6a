"""Experiments: what was registered before the runs, what they bear out, and runs on a track of speedruns."""

from __future__ import annotations

from msgspec import Struct

from marin.kinds.body import Body, Digest, HexFloat, Json
from marin.kinds.kind import Kind

EXPERIMENT_REGISTERED = "experiment.registered/v1"
EXPERIMENT_REPORTED = "experiment.reported/v1"
SPEEDRUN_ENTERED = "speedrun.entered/v1"


class ExperimentRegistered(Body, frozen=True):
    """What an experiment claims, before it is run. ``registration`` digests the canonical JSON of all of it, recipes
    included, which the store keeps; ``arms`` are digests of recipes without seed, by name; metrics are name and
    direction (lower or higher is better); seeds are strings."""

    experiment: str
    registration: Digest
    file: str
    file_digest: Digest
    question: str
    hypothesis: str
    primary: dict[str, str]
    secondary: list[dict[str, str]]
    arms: dict[str, Digest]
    baseline: str
    seeds: list[str]
    test: str
    alternative: str
    alpha: float
    stopping_rule: str
    cost_cap: Json


class ExperimentReported(Body, frozen=True):
    """What the runs of an experiment bear out. ``verdict``: confirmatory, exploratory or incomplete; ``artifact`` is
    the stored tree with report.md, report.html, table.csv and plot.svg; ``supported`` is None where nothing could be
    tested."""

    experiment: str
    registration: Digest
    verdict: str
    supported: bool | None
    deviations: list[str]
    artifact: Digest
    runs: list[str]


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
    Kind(EXPERIMENT_REGISTERED, ExperimentRegistered),
    Kind(EXPERIMENT_REPORTED, ExperimentReported),
    Kind(
        SPEEDRUN_ENTERED,
        SpeedrunEntered,
        beside=lambda event: f"an entry of this run on the track {event.body.get('track')} by {event.actor}",
    ),
)
