"""Experiments: what was registered before the runs, and what they bear out."""

from __future__ import annotations

from marin.kinds.body import Body, Digest, Json
from marin.kinds.kind import Kind

EXPERIMENT_REGISTERED = "experiment.registered/v1"
EXPERIMENT_REPORTED = "experiment.reported/v1"


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


KINDS: tuple[Kind, ...] = (
    Kind(EXPERIMENT_REGISTERED, ExperimentRegistered),
    Kind(EXPERIMENT_REPORTED, ExperimentReported),
)
