"""Numbers of a run beside those that its steps recorded: what was evaluated of it later, its speed, energy and time, and
bits per byte where they follow. Lists and comparisons know each by the same name.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from marin.history.run import Run
from marin.history.runs import History
from marin.history.table.evaluations import recorded_evaluations
from marin.history.table.machine import machine_numbers
from marin.kinds.families.measured import EvaluationMeasured, EvaluationRecorded

LAST_LOSS = "train.loss_last"
SECONDS, COST = "seconds", "core_hours"
BITS = "evaluate.bits_per_byte"


def numbers_beside(history: History, run: Run) -> dict[str, float]:
    """All of them by name: ``TASK.METRIC`` and ``SET.loss``, :data:`LAST_LOSS` of a loop of one's own, :data:`BITS`,
    :data:`SECONDS` and :data:`COST` of what was executed, and what machines measured (:mod:`marin.history.table.machine`)."""
    found = {**_evaluated(history, run.run), **machine_numbers(history, run.run)}
    if (lost := run.metrics.get("loop.loss_last")) is not None:
        found[LAST_LOSS] = lost
    if BITS not in run.metrics and (bits := run.bits_per_byte) is not None:
        found[BITS] = bits
    if executed := [step.seconds for step in run.steps.values() if not step.cached]:
        found[SECONDS] = math.fsum(executed)
        if (cost := core_hours(run, found[SECONDS])) is not None:
            found[COST] = cost
    return found


def core_hours(run: Run, seconds: float) -> float | None:
    """What so many seconds of the run's machine cost; None where its cores are not recorded."""
    cores = run.started.body.environment.get("cores")
    count = cores.get("available") if isinstance(cores, Mapping) else None
    return seconds * count / 3600 if isinstance(count, int) else None


def evaluated_numbers(body: EvaluationMeasured | EvaluationRecorded) -> dict[str, str]:
    """By ``TASK.METRIC``: the harness's filter, which it names behind a comma, only where a metric has several."""
    if not isinstance(body, EvaluationRecorded):
        return {f"{name}.{one}": value for name, of in body.sets.items() for one, value in of.numbers.items()}
    bare = {(task, name): name.partition(",")[0] for task, of in body.results.items() for name in of}
    many = Counter((task, one) for (task, _), one in bare.items())
    return {
        f"{task}.{one if many[task, one] == 1 else name.replace(',', '.')}": body.results[task][name]
        for (task, name), one in bare.items()
    }


def _evaluated(history: History, run: str) -> dict[str, float]:
    """What was evaluated of the newest state of a run, beside its steps: ``TASK.METRIC`` and ``SET.loss``."""
    newest: dict[str, tuple[int, float]] = {}
    for body in recorded_evaluations(history, run):
        for name, value in evaluated_numbers(body).items():
            if name not in newest or body.step >= newest[name][0]:
                newest[name] = (body.step, float.fromhex(value))
    return {name: value for name, (_, value) in newest.items()}
