"""How fast this machine was: throughput of each step, from what earlier runs in the ledger recorded.

Wall time is not evidence, and nothing here is; it is good enough to say how long the next run will take. Only results
that were executed on a processor of this model, with as many cores as are available now, count. The nearest in size is
taken, because a small model reaches a smaller part of a processor than a large one.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

from marin.errors import MarinError
from marin.history.runs import History
from marin.kinds.known import type_of
from marin.provenance.environment import available_cores
from marin.provenance.processor import processor
from marin.recipe.cost import START_SECONDS, Work, work_of
from marin.recipe.schema import from_plain
from marin.record.events import RunStarted, StepCompleted

NEWEST = 500
"""Results that are looked at: the newest; a machine may have changed since the others."""
SIMILAR = 1.25
"""Bytes and FLOPs this near to each other are the same work."""


@dataclass(frozen=True)
class Measurement:
    """One execution: what it did, and how long it took."""

    run: str
    work: Work
    seconds: float


@dataclass
class MeasuredThroughput:
    """:class:`marin.recipe.cost.Throughput` by what the ledger holds."""

    by_step: dict[str, list[Measurement]] = field(default_factory=dict)

    def add(self, step: str, measurement: Measurement) -> None:
        """Take in one execution, the oldest first."""
        self.by_step.setdefault(step, []).append(measurement)

    def seconds(self, step: str, work: Work, assumed: Callable[[Work], float | None]) -> tuple[float, str] | None:
        """How long ``work`` should take, from the execution nearest in size; the newest of equals.

        An execution that was mostly the start of a process (imports, compilation) says how long that takes and nothing
        of the speed; what goes beyond it is then ``assumed``.
        """
        known = self.by_step.get(step, [])
        if not work.known:
            recent = [item.seconds for item in known[-5:]]
            said = "measured once" if len(recent) == 1 else f"measured {len(recent)} times"
            return (median(recent), said) if recent else None
        comparable = [
            item for item in known if item.work.known and item.work.dtype == work.dtype and _amount(item.work) > 0
        ]
        if not comparable or _amount(work) <= 0:
            return None
        nearest = min(reversed(comparable), key=lambda item: _distance(item.work, work))
        if _distance(nearest.work, work) < math.log(SIMILAR):
            return nearest.seconds, f"measured in run {nearest.run}"
        usual = START_SECONDS.get(step, 0.0)
        alone, wanted = assumed(nearest.work), assumed(work)
        if alone is not None and wanted is not None and alone < usual and _amount(work) > _amount(nearest.work):
            return max(0.0, nearest.seconds - alone) + wanted, f"started as run {nearest.run}, then by the table"
        start = min(usual, nearest.seconds / 2)
        scaled = start + (nearest.seconds - start) * _amount(work) / _amount(nearest.work)
        return scaled, f"scaled from run {nearest.run}"


def measurements(history: History) -> MeasuredThroughput:
    """What the newest executions on this processor took; a run that cannot be read any more is left out."""
    here, cores = processor().model, available_cores()
    recipes = {}
    for _, event in history.events(type=type_of(RunStarted)):
        body = event.body
        if _is_here(body.get("environment"), here, cores):
            recipes[body.get("run")] = body.get("recipe")
    found = MeasuredThroughput()
    for event in deque((event for _, event in history.events(type=type_of(StepCompleted))), maxlen=NEWEST):
        run, step, seconds = event.body.get("run"), event.body.get("step"), event.body.get("seconds")
        if run in recipes and isinstance(step, str) and isinstance(seconds, int | float) and seconds > 0:
            found.add(step, Measurement(str(run), _work(step, recipes[run]), float(seconds)))
    return found


def _is_here(environment: object, model: str, cores: int) -> bool:
    if not isinstance(environment, dict):
        return False
    cpu, count = environment.get("processor"), environment.get("cores")
    return (
        isinstance(cpu, dict)
        and isinstance(count, dict)
        and cpu.get("model") == model
        and count.get("available") == cores
    )


def _work(step: str, recipe: object) -> Work:
    try:
        return work_of(step, from_plain(recipe, where="an earlier run"))
    except MarinError:
        return Work.unknown()


def _amount(work: Work) -> float:
    return work.executed_flops or max(work.read_bytes, work.write_bytes)


def _distance(one: Work, other: Work) -> float:
    return abs(math.log(_amount(one) / _amount(other)))
