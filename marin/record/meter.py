"""Measurements beside the evidence: how fast, how much memory, how busy, for each segment of training.

What is measured depends on machine and moment. It goes into the ledger as ``metrics.recorded/v1``, one event a segment,
so that MLflow can show it over the loss; nothing of it enters an identity, a verdict or a comparison of bits. The keys
begin with ``system/`` as MLflow's own system metrics do.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from marin.provenance.plugins import points
from marin.record.events import MetricsRecorded, Series

SECONDS, UTILISATION = "system/seconds_per_step", "system/cpu_utilization_percentage"
SPEED = "system/tokens_per_second"
ENERGY = "system/energy_joules"
"""Since the segment before, of all processor packages of this machine, no matter who used them."""
COUNTERS = Path("/sys/class/powercap")
"""Where Linux has the counters of energy (RAPL, kernel documentation power/powercap): microjoules that wrap around."""


class EnergyCounters:
    """The counters of the processor packages (``intel-rapl:N``, on AMD too), as far as this user may read them; what is in
    a package (``intel-rapl:N:M``) is counted with it."""

    def __init__(self, folder: Path = COUNTERS) -> None:
        zones = sorted(folder.glob("*-rapl:*")) if folder.is_dir() else []
        self._zones = [
            zone for zone in zones if zone.name.count(":") == 1 and _integer_of_file(zone / "energy_uj") is not None
        ]
        self._last = self._read()

    def _read(self) -> list[int | None]:
        return [_integer_of_file(zone / "energy_uj") for zone in self._zones]

    def lap(self) -> float | None:
        """Joules since the last lap; None where there is no counter, or one could not be read."""
        before, self._last = self._last, self._read()
        total = 0
        for zone, one, other in zip(self._zones, before, self._last, strict=True):
            if one is None or other is None:
                return None
            whole = _integer_of_file(zone / "max_energy_range_uj") or 0
            total += other - one if other >= one else other - one + whole + 1
        return total / 1e6 if self._zones else None


def _integer_of_file(file: Path) -> int | None:
    try:
        return int(file.read_text("ascii"))
    except (OSError, ValueError):
        return None


@dataclass
class Meter:
    """Runs from the end of one segment to the end of the next. Reading it takes microseconds."""

    _wall: float = field(default_factory=time.perf_counter)
    _cpu: float = field(default_factory=time.process_time)
    _energy: EnergyCounters = field(default_factory=EnergyCounters)
    _devices: list[Any] = field(default_factory=lambda: [point.load()() for point in points("marin.meters").values()])

    def lap(self, steps: int, tokens: int) -> dict[str, float]:
        """What the machine did since the last lap, in which so many train steps with so many tokens were executed."""
        wall, cpu = time.perf_counter(), time.process_time()
        took, busy = max(wall - self._wall, 1e-9), cpu - self._cpu
        self._wall, self._cpu = wall, cpu
        cores = len(os.sched_getaffinity(0))
        joules = self._energy.lap()
        return {
            SECONDS: took / max(steps, 1),
            SPEED: tokens / took,
            UTILISATION: 100 * busy / took / cores,
            "system/peak_memory_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            **({ENERGY: joules} if joules is not None else {}),
            **{key: value for device in self._devices for key, value in device.lap().items()},
        }


def segment_metrics(
    run: str, step: str, start: int, curves: Mapping[str, Sequence[float]], last: Mapping[str, float]
) -> MetricsRecorded:
    """The event of one segment: ``curves`` have a value for every train step from ``start`` on, ``last`` one at its
    end."""
    length = max(map(len, curves.values()), default=1)
    series = [
        Series(key=key, steps=list(range(start, start + len(values))), values=[float(value).hex() for value in values])
        for key, values in curves.items()
    ]
    series += [
        Series(key=key, steps=[start + max(length, 1) - 1], values=[float(value).hex()]) for key, value in last.items()
    ]
    return MetricsRecorded(run=run, step=step, series=series)
