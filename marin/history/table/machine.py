"""What was measured of a training beside the evidence: speed, load, memory, energy, rewards."""

from __future__ import annotations

import math
from statistics import median

from marin.history.runs import History, facts, stream_of
from marin.record.events import MetricsRecorded

SPEED, ENERGY = "tokens_per_second", "energy_joules"
PREFIX, REWARD = "system/", "rl/reward"


def laps(history: History, run: str) -> dict[str, list[float]]:
    """Every measurement of the run's training by name, in the order in which it was taken."""
    found: dict[str, list[float]] = {}
    for fact in facts(history, MetricsRecorded, stream=stream_of(run)):
        for series in fact.body.series:
            if series.key.startswith(PREFIX) or series.key == SPEED:  # a loop of one's own may say how fast it is
                values = [float.fromhex(value) for value in series.values]
                found.setdefault(series.key.removeprefix(PREFIX), []).extend(filter(math.isfinite, values))
    return found


def rewards(history: History, run: str) -> list[float]:
    """The mean reward of each update that drew completions, as the run tells it."""
    series = [one for fact in facts(history, MetricsRecorded, stream=stream_of(run)) for one in fact.body.series]
    values = {
        step: value for one in series if one.key == REWARD for step, value in zip(one.steps, one.values, strict=False)
    }
    return [float.fromhex(values[step]) for step in sorted(values)]


def machine_numbers(history: History, run: str) -> dict[str, float]:
    """Speed as the median of the laps, the first of which has compilation in it; energy as their sum."""
    found = laps(history, run)
    numbers = {}
    if speeds := found.get(SPEED):
        numbers[SPEED] = median(speeds[1:] or speeds)
    if energy := found.get(ENERGY):
        numbers[ENERGY] = math.fsum(energy)
    return numbers
