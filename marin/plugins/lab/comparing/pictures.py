"""Runs side by side as pictures, by matplotlib: their curves, a number over each key, and all keys at once.

The same numbers give the same bytes of SVG: there is no clock, no version and no chance in them. Colours go from the lowest to
the highest value of the key that varies, in one scale that colour-blind people read too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from marin.history.table.varied import short_value
from marin.plugins.lab.comparing.compared import Compared, called, rank
from marin.plugins.lab.comparing.text import mean_curve
from marin.plugins.lab.report import PAINTED, svg
from marin.process.text import visible
from marin.reporting.fonts import use_font_cache

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SCALE = "viridis"
DARKEST, LIGHTEST = 0.05, 0.85
"""Of the scale: its last tenth is too light to be seen on white."""
MOST_NAMES, MOST_KEYS = 10, 6
GROUND = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.0}
"""Behind a word that lines cross."""

WIDE, NARROW = 8.0, 4.3
"""Inches of a picture on a desk, and on a telephone, where it is as tall as it has to be."""


def pictures(found: Compared, width: float = WIDE) -> list[tuple[str, bytes]]:
    """What each shows, in words, and its SVG; only those that have something to show."""
    use_font_cache()
    import matplotlib  # a second; only where a page is drawn

    drawn: list[tuple[str, bytes]] = []
    with matplotlib.rc_context(PAINTED):
        if any(found.losses.values()):
            drawn.append(
                (
                    "train loss by train step, a thin line for each run, a thick one for the mean over seeds",
                    _curves(found, width),
                )
            )
        keys = list(found.varied.without_seed[:MOST_KEYS])
        metric = found.metrics[0]
        if keys and any(metric in values for values in found.values.values()):
            drawn.append(
                (f"{called(metric)} by {', '.join(keys)}, a dot for each run", _scatter(found, keys, metric, width))
            )
            if len(keys) > 1:
                drawn.append(
                    (
                        f"each run as a line through {', '.join(keys)} to {called(metric)}: the darker, the lower",
                        _parallel(found, keys, metric, width),
                    )
                )
    return drawn


def _curves(found: Compared, width: float) -> bytes:
    from matplotlib.ticker import MaxNLocator

    named, columns = len(found.groups) <= MOST_NAMES, 1 if width < WIDE else 2
    figure, axes = _figure(width, 3.4 + (0.2 * -(-len(found.groups) // columns) if named else 0))
    for group, colour in zip(found.groups, _colours(found), strict=True):
        for run in group.runs if len(group.runs) > 1 else ():
            _curve_in(axes, found.losses[run], colour, width=0.6, strength=0.45)
        _curve_in(axes, mean_curve(found, group), colour, width=2.0, strength=1.0)
        axes.plot([], [], color=colour, linewidth=2.0, label=_legend(group.name))
    axes.set_xlabel("train step")
    axes.set_ylabel("train loss")
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    if named:  # of more, the table beside it has them all
        for text in figure.legend(loc="outside lower left", ncols=columns, frameon=False, fontsize=9).get_texts():
            text.set_parse_math(False)
    return svg(figure, "train loss by train step")


def _curve_in(axes: Axes, curve: Mapping[int, float], colour: Any, *, width: float, strength: float) -> None:
    steps = [step for step in sorted(curve) if math.isfinite(curve[step])]
    dots = "o" if len(steps) < 3 else None
    axes.plot(
        steps, [curve[step] for step in steps], color=colour, linewidth=width, alpha=strength, marker=dots, markersize=3
    )


def _scatter(found: Compared, keys: Sequence[str], metric: str, width: float) -> bytes:
    side_by_side = width >= WIDE
    figure, _ = _figure(width, 3.2 if side_by_side else 2.4 * len(keys), empty=True)
    colours = dict(zip((group.name for group in found.groups), _colours(found), strict=True))
    for place, key in enumerate(keys):
        axes = figure.add_subplot(*((1, len(keys)) if side_by_side else (len(keys), 1)), place + 1)
        numbers, names = _axis([group.values.get(key, "") for group in found.groups])
        for group, x in zip(found.groups, numbers, strict=True):
            values = [found.values[run][metric] for run in group.runs if metric in found.values[run]]
            axes.plot([x] * len(values), values, "o", color=colours[group.name], markersize=5, alpha=0.8)
            if len(values) > 1:
                axes.plot([x], [math.fsum(values) / len(values)], "_", color="#24292f", markersize=16)
        if names is None and min(numbers) > 0 and max(numbers) > 8 * min(numbers):
            axes.set_xscale("log")
        if names is not None:
            axes.set_xticks(range(len(names)), [_legend(name, 14) for name in names], parse_math=False)
        elif len(set(numbers)) <= 5:
            axes.set_xticks(sorted(set(numbers)), [f"{one:g}" for one in sorted(set(numbers))])
            axes.minorticks_off()
        axes.set_xlabel(found.varied.titles[key], parse_math=False)
        axes.margins(x=0.12)
        if place == 0 or not side_by_side:
            axes.set_ylabel(called(metric), parse_math=False)
        else:
            axes.tick_params(labelleft=False)
        _quiet(axes)
    return svg(figure, f"{called(metric)} by key")


def _parallel(found: Compared, keys: Sequence[str], metric: str, width: float) -> bytes:
    figure, axes = _figure(width, 3.6)
    columns: list[list[float]] = []
    ticks: list[list[tuple[float, str]]] = []
    runs = [(group, run) for group in found.groups for run in group.runs if metric in found.values[run]]
    for key in keys:
        numbers, names = _axis([group.values.get(key, "") for group, _ in runs])
        places = _between(numbers)
        columns.append(places)
        shown = {
            at: short_value(group.values.get(key, "")) or "none" for at, (group, _) in zip(places, runs, strict=True)
        }
        ticks.append(_few(sorted(shown.items()), named=names is not None))
    ends = [found.values[run][metric] for _, run in runs]
    columns.append(_between(ends))
    ticks.append([(0.0, f"{min(ends):.5g}"), (1.0, f"{max(ends):.5g}")])
    colours = _scale(columns[-1])
    for i in range(len(runs)):
        axes.plot(range(len(columns)), [column[i] for column in columns], color=colours[i], linewidth=1.2, alpha=0.75)
    for x, marks in enumerate(ticks):
        axes.axvline(x, color="#24292f", linewidth=0.8)
        for y, text in marks:
            axes.text(x + 0.03, y, _legend(text, 12), fontsize=8, va="center", parse_math=False, bbox=GROUND)
    names = [*(found.varied.titles[key] for key in keys), called(metric)]
    lines = ["\n" * (x % 2) + name for x, name in enumerate(names)]  # two that are long stand on two lines
    axes.set_xticks(range(len(columns)), lines, parse_math=False)
    axes.set_yticks([])
    axes.set_xlim(-0.3, len(columns) - 0.6)
    axes.spines[["top", "right", "left", "bottom"]].set_visible(False)
    return svg(figure, "all keys")


def _few(marks: list[tuple[float, str]], *, named: bool) -> list[tuple[float, str]]:
    most = 8 if named else 5
    return marks if len(marks) <= most else [marks[round(i * (len(marks) - 1) / (most - 1))] for i in range(most)]


def _axis(values: Sequence[str]) -> tuple[list[float], list[str] | None]:
    """Places of these values on an axis; names where they are not numbers."""
    try:
        numbers = [float(value) for value in values]
    except ValueError:
        numbers = [math.inf]
    if all(map(math.isfinite, numbers)):
        return numbers, None
    names = list(dict.fromkeys(values))
    return [float(names.index(value)) for value in values], [name or "none" for name in names]


def _between(numbers: Sequence[float]) -> list[float]:
    """From 0 to 1; by the logarithm where they span a power of ten."""
    if min(numbers) > 0 and max(numbers) > 8 * min(numbers):
        numbers = [math.log(one) for one in numbers]
    low, high = min(numbers), max(numbers)
    return [0.5 if high == low else (one - low) / (high - low) for one in numbers]


def _colours(found: Compared) -> list[Any]:
    """One for each group, by the rank of its values: two that are near each other have to be told apart too."""
    keys, count = found.varied.without_seed, len(found.groups)
    order = sorted(range(count), key=lambda i: [rank(found.groups[i].values[key]) for key in keys])
    return _scale(_between([float(order.index(i)) for i in range(count)]))


def _scale(places: Sequence[float]) -> list[Any]:
    import matplotlib

    scale = matplotlib.colormaps[SCALE]
    return [scale(DARKEST + (LIGHTEST - DARKEST) * place) for place in places]


def _figure(width: float, height: float, *, empty: bool = False) -> tuple[Figure, Any]:
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasSVG(figure)
    if empty:
        return figure, None
    axes = figure.add_subplot()
    _quiet(axes)
    return figure, axes


def _quiet(axes: Axes) -> None:
    axes.grid(axis="y", linewidth=0.4)
    axes.spines[["top", "right"]].set_visible(False)


def _legend(name: str, most: int = 44) -> str:
    name = visible(name)
    return name if len(name) <= most else f"{name[: most - 1]}…"
