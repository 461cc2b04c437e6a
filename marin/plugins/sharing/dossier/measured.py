"""What clocks and counters say of a training: seconds, processors, energy. Measured, so nothing that a replay could establish.

Every segment's event has the seconds of a train step, how busy the processors were, and, where the machine has counters of
energy, the joules since the segment before (:mod:`marin.record.meter`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from marin.history.run import Run
from marin.kinds.known import type_of
from marin.record.events import GRAD_NORM, MetricsRecorded, read
from marin.record.meter import ENERGY, SECONDS, UTILISATION
from marin.verify.alone.proven import Proven

JOULES = 3.6e9
"""Of a megawatt hour."""
DAY = 86_400
_MONTHS = ((30.5 * DAY, "less than 1 month"), (91.5 * DAY, "1 to 3 months"), (183 * DAY, "3 to 6 months"))
"""The bands of the Model Documentation Form."""


@dataclass(frozen=True)
class Value:
    """One value, and the events that it follows from. ``measured``: a clock or a counter said it."""

    name: str
    value: object
    events: tuple[int, ...]
    measured: bool = False


@dataclass(frozen=True)
class _Lap:
    """One segment, as its event has it; ``energy``: joules, None where nothing counted them."""

    index: int
    steps: int
    seconds: float
    busy: float | None
    energy: float | None


def band(value: float, bands: Sequence[tuple[float, str]], beyond: str) -> str:
    """The name of the first band whose upper end is not below ``value``."""
    return next((name for end, name in bands if value <= end), beyond)


def measured(run: Run, proven: Proven) -> Iterator[Value]:
    """Time, machine and energy of the training, and the time of all steps."""
    began, at = run.started.index, {name: step.completed_at for name, step in run.steps.items()}
    environment = run.started.body.environment
    processor = environment.get("processor")
    if isinstance(processor, Mapping) and isinstance(kind := processor.get("model"), str):
        yield Value("training.processor", kind, (began,))
    devices = 1
    if run.training:
        first = run.training[0]
        devices = first.body.devices
        yield Value("training.devices", devices, (first.index,))
        if isinstance(kind := first.body.device.get("kind"), str):
            yield Value("training.device", kind, (first.index,))
    laps = list(_laps(run, proven))
    whole = sum(lap.steps for lap in laps) == run.recipe.trainer.num_steps
    seconds = round(sum(lap.seconds for lap in laps), 3) if whole else run.steps["train"].seconds
    events = tuple(lap.index for lap in laps) if whole else (at["train"],)
    yield Value("training.seconds", seconds, events, True)
    yield Value("training.days", seconds / DAY, events, True)
    yield Value("training.hardware_days", devices * seconds / DAY, events, True)
    yield Value("training.time_band", band(seconds, _MONTHS, "more than 6 months"), events, True)
    busy = [lap for lap in laps if lap.busy is not None]
    if busy:
        total = sum(lap.seconds for lap in busy) or 1.0
        mean = sum(lap.seconds * (lap.busy or 0.0) for lap in busy) / total
        yield Value("training.cpu_percent", round(mean, 3), tuple(lap.index for lap in busy), True)
    if whole and all(lap.energy is not None for lap in laps):
        joules = sum(lap.energy or 0.0 for lap in laps)
        yield Value("training.energy_joules", joules, events, True)
        yield Value("training.energy_mwh", joules / JOULES, events, True)
        yield Value(
            "training.energy_method",
            "measured: the counters of processor packages (RAPL) of the process that leads, "
            "read around every segment; no accelerators, no other machines, no cooling",
            events,
            True,
        )
    total = round(sum(step.seconds for step in run.steps.values()), 6)
    yield Value("run.seconds", total, tuple(sorted({*at.values()})), True)


def _laps(run: Run, proven: Proven) -> Iterator[_Lap]:
    """The segments of the training that this run executed or took over, in order, each once."""
    streams = {run.run, run.steps["train"].origin}
    found: dict[int, _Lap] = {}
    for index, event in proven.events(type=type_of(MetricsRecorded)):
        body = read(MetricsRecorded, event.body, where=f"event {index}")
        if body.run not in streams or body.step != "train":
            continue
        series = {one.key: [float.fromhex(value) for value in one.values] for one in body.series}
        steps = next((one.steps for one in body.series if one.key == GRAD_NORM), [])
        if steps and SECONDS in series:
            lap = series[SECONDS][-1] * len(steps)
            busy, energy = series.get(UTILISATION), series.get(ENERGY)
            found[steps[0]] = _Lap(index, len(steps), lap, busy[-1] if busy else None, energy[-1] if energy else None)
    yield from (found[start] for start in sorted(found))
