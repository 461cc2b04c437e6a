"""One measured figure, and how a call is timed: the best of several, because noise only ever adds."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """What was measured, and the value in its unit."""

    what: str
    value: float
    unit: str

    def __str__(self) -> str:
        return f"{self.what:<64} {self.value:>12.4g} {self.unit}"


def best_seconds(call: Callable[[], object], *, rounds: int = 5) -> float:
    """Seconds of the fastest of `rounds` calls."""
    return min(seconds(call) for _ in range(rounds))


def seconds(call: Callable[[], object]) -> float:
    """Seconds of one call."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
