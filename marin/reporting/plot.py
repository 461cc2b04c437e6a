"""Losses by train step as a picture in a page: SVG whose colours follow the page's, light or dark."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

WIDTH, HEIGHT = 800, 260
LEFT, RIGHT, TOP, BOTTOM = 56, 8, 8, 26
"""Room for the numbers on the axes."""
NUMBERS = 5
"""About so many on each axis."""


@dataclass(frozen=True)
class LossPlot:
    """What ``plot`` of ``parts.html.j2`` draws: places in the picture, as text. ``lines`` are (class, points)."""

    lines: list[tuple[str, str]]
    down: list[tuple[str, str]]
    """Numbers beside the axis of losses, with their place."""
    across: list[tuple[str, str]]
    """Numbers below the axis of train steps."""
    seams: list[str]
    """Where the whole state was recorded."""
    parted: str | None
    validation: tuple[str, str] | None
    label: str
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    floor: int = HEIGHT - BOTTOM


def loss_plot(
    recorded: Mapping[int, float],
    label: str,
    *,
    found: Mapping[int, float] | None = None,
    seams: Iterable[int] = (),
    parted: int | None = None,
    validation: float | None = None,
) -> LossPlot | None:
    """The recorded losses, and over them what was found (``found``); a gap where a step has none. ``parted`` is the train
    step of the first difference. None where fewer than two losses are numbers."""
    values = [value for value in (*recorded.values(), *(found or {}).values()) if math.isfinite(value)]
    if len(recorded) < 2 or not values:
        return None
    if validation is not None and math.isfinite(validation):
        values.append(validation)
    low, high, first, last = min(values), max(values), min(recorded), max(recorded)
    span = (high - low) or 1.0

    def across(step: int) -> str:
        return f"{LEFT + (step - first) * (WIDTH - LEFT - RIGHT) / max(1, last - first):.1f}"

    def down(loss: float) -> str:
        return f"{TOP + (HEIGHT - TOP - BOTTOM) * (high - loss) / span:.1f}"

    def lines(losses: Mapping[int, float], kind: str) -> list[tuple[str, str]]:
        steps = sorted(step for step, loss in losses.items() if math.isfinite(loss) and first <= step <= last)
        pieces: list[list[int]] = [[steps[0]]] if steps else []
        for before, step in pairwise(steps):
            pieces[-1].append(step) if step == before + 1 else pieces.append([step])
        return [(kind, " ".join(f"{across(step)},{down(losses[step])}" for step in piece)) for piece in pieces]

    return LossPlot(
        lines=lines(recorded, "recorded") + lines(found or {}, "found"),
        down=[(down(number), f"{number:g}") for number in _round_numbers(low, high)],
        across=[
            (across(int(number)), f"{int(number)}") for number in _round_numbers(first, last) if number == int(number)
        ],
        seams=[across(step) for step in seams if first < step < last],
        parted=across(parted) if parted is not None and first <= parted <= last else None,
        validation=(down(validation), f"validation {validation:.4f}")
        if validation is not None and math.isfinite(validation)
        else None,
        label=label,
    )


def _round_numbers(low: float, high: float) -> list[float]:
    """Round numbers from ``low`` to ``high``: multiples of 1, 2 or 5 times a power of ten."""
    if not high > low:
        return [low]
    power = 10.0 ** math.floor(math.log10((high - low) / NUMBERS))
    width = next(power * factor for factor in (1, 2, 5, 10) if (high - low) / (power * factor) <= NUMBERS)
    return [round(width * n, 10) for n in range(math.ceil(low / width), math.floor(high / width) + 1)]
