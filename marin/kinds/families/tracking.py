"""Measurements beside the evidence, and what users log through another tool."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence

from msgspec import Struct

from marin.kinds.body import Body, HexFloat, Json
from marin.kinds.claim import Contradiction
from marin.kinds.families.run import LOOP
from marin.kinds.kind import Fact, Held, Kind, LoopContext, Pair, RunContext, Standing

METRICS_RECORDED = "metrics.recorded/v1"
TRACKING_LOGGED = "tracking.logged/v1"
GRAD_NORM = "train/grad_norm"
"""It is in the fingerprint of each train step."""
MACHINE = "system/"
"""How the names of measurements begin that were taken of the machine, and that no verdict derives."""
OF_EXPERTS = ("router/entropy", "router/largest_share", "router/idle_experts")
"""Where a mixture's tokens went: by a run that has no experts not measured."""
OF_COMPLETIONS = ("rl/reward", "rl/reward_std", "rl/completion_length", "rl/entropy")
"""Means of completions, which are themselves in the store: as those of experts."""
OF_TRAINING = (GRAD_NORM, *OF_EXPERTS, *OF_COMPLETIONS)
"""What is measured of each train step: once, and by a replay again."""
_ROUNDED = {"router/entropy": 2.0**-40}
"""How far apart values of one train step may be: processors round a library's logarithm each in its own way."""


def is_one_value(name: str, one: float, other: float) -> bool:
    """Whether these are one measurement of one train step."""
    return one == other or (math.isnan(one) and math.isnan(other)) or abs(one - other) <= _ROUNDED.get(name, 0.0)


class Series(Struct, frozen=True, kw_only=True):
    """Points of one measurement: train steps and values (hex floats), one each."""

    key: str
    steps: list[int]
    values: list[HexFloat]


class MetricsRecorded(Body, frozen=True):
    """Measurements beside the evidence: times, memory, load, norms. They depend on machine and moment, enter no
    identity and no verdict. ``step`` is the step of the plan that was measured, empty for the run as a whole."""

    run: str
    step: str
    series: list[Series]


class TrackingLogged(Body, frozen=True):
    """Something that a user logged through MLflow's own interface. ``run`` is MLflow's run id (empty where the
    operation speaks of none), ``operation`` and ``values`` are described in ``marin/plugins/mlflow/folding/operations.py``."""

    run: str
    operation: str
    values: Json


def _series(fact: Fact[MetricsRecorded], seen: RunContext) -> Iterator[Pair]:
    """A series has one value for each train step, and every step is one of the run's."""
    first, last = seen.recipe.first_step, seen.recipe.last_step
    measured = {name: "experts" for name in OF_EXPERTS if not seen.recipe.model.num_experts}
    measured |= {name: "completions" for name in OF_COMPLETIONS if seen.recipe.objective is None}
    for series in fact.body.series:
        if (lacking := measured.get(series.key)) is not None:
            yield f"series {series.key}", f"no such measurement, for the recipe has no {lacking}", "one"
        if len(series.steps) != len(series.values) or not all(first <= step < last for step in series.steps):
            yield f"series {series.key}", "a value for each of the run's train steps that it names", "another number"


def _series_of_loop(fact: Fact[MetricsRecorded], seen: LoopContext) -> Iterator[Pair]:
    yield "step", LOOP, fact.body.step
    for series in fact.body.series:
        yield f"series {series.key}", len(series.steps), len(series.values)


def _underived(fact: Fact[MetricsRecorded]) -> Iterator[str]:
    for series in fact.body.series:
        of_training = series.key in OF_TRAINING and fact.body.step == "train"
        if not of_training and not series.key.startswith(MACHINE):
            yield f"a measurement {series.key}"


def _one_of_each(facts: Sequence[Fact[MetricsRecorded]], standing: Standing) -> Iterator[Contradiction]:
    """A train step has one gradient norm, which is a float32, and one of each other measurement."""
    known: dict[tuple[str, int], str] = {}
    values = (
        (fact.index, series.key, step, value)
        for fact in facts
        for series in fact.body.series
        if series.key in OF_TRAINING
        for step, value in zip(series.steps, series.values, strict=False)
    )
    for index, name, step, value in values:
        number, first = float.fromhex(value), known.setdefault((name, step), value)
        if name == GRAD_NORM and _as_float32(number).hex() != value:
            yield Contradiction(index, f"series {name}", f"a float32 at train step {step}", value, "train")
        elif first != value and not is_one_value(name, float.fromhex(first), number):
            yield Contradiction(index, f"series {name}", f"{first} at train step {step}", value, "train")


def _as_float32(value: float) -> float:
    try:
        (found,) = struct.unpack("<f", struct.pack("<f", value))
    except OverflowError:
        return math.copysign(math.inf, value)
    return float(found)


KINDS: tuple[Kind, ...] = (
    Kind(
        METRICS_RECORDED,
        MetricsRecorded,
        underway=True,
        names_step=True,
        run=Held(claimed=("series",), agrees=_series, underived=_underived),
        loop=Held(claimed=("series",), agrees=_series_of_loop),
        reaches=lambda body: max(
            (at + 1 for series in body.series for at in series.steps if body.step == "train"), default=0
        ),
        twice=_one_of_each,
    ),
    Kind(
        TRACKING_LOGGED,
        TrackingLogged,
        underway=True,
        beside=lambda event: f"{event.body.get('operation')} logged to this run by {event.actor} with another tool",
    ),
)
