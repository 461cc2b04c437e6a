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

from marin.record.events import MetricsRecorded, Series


@dataclass
class Meter:
    """Runs from the end of one segment to the end of the next. Reading it takes microseconds."""

    _wall: float = field(default_factory=time.perf_counter)
    _cpu: float = field(default_factory=time.process_time)

    def lap(self, steps: int, tokens: int) -> dict[str, float]:
        """What the machine did since the last lap, in which so many train steps with so many tokens were executed."""
        wall, cpu = time.perf_counter(), time.process_time()
        took, busy = max(wall - self._wall, 1e-9), cpu - self._cpu
        self._wall, self._cpu = wall, cpu
        cores = len(os.sched_getaffinity(0))
        return {
            "system/seconds_per_step": took / max(steps, 1),
            "system/tokens_per_second": tokens / took,
            "system/cpu_utilization_percentage": 100 * busy / took / cores,
            "system/peak_memory_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }


def recorded(
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
