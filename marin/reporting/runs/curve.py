"""The loss curve of a run as a PNG: the same bytes for the same numbers (no clock, no version, no display in it)."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping

from marin.process.text import visible
from marin.reporting.fonts import use_font_cache

INK, LINE, MARK = "#24292f", "#0969da", "#cf222e"
WIDTH_INCHES, HEIGHT_INCHES, DPI = 8.0, 4.5, 100


def loss_curve(losses: Mapping[int, float], *, title: str, validation: float | None = None, seams: list[int]) -> bytes:
    """Loss by train step. ``seams`` are the steps at which the whole state was recorded; values that are not finite are
    marked on the axis instead of being left out in silence."""
    use_font_cache()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_INCHES, HEIGHT_INCHES), dpi=DPI, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    steps = sorted(losses)
    finite = [step for step in steps if math.isfinite(losses[step])]
    for seam in seams:
        axes.axvline(seam, color=INK, alpha=0.15, linewidth=0.8)
    axes.plot(
        finite,
        [losses[step] for step in finite],
        color=LINE,
        linewidth=1.6,
        label="train loss",
        marker="o" if len(finite) < 3 else None,
    )
    if broken := [step for step in steps if not math.isfinite(losses[step])]:
        axes.plot(broken, [axes.get_ylim()[0]] * len(broken), "x", color=MARK, label="not finite")
    if validation is not None and math.isfinite(validation):
        axes.axhline(validation, color=MARK, linewidth=1.2, linestyle="--", label=f"validation {validation:.4f}")
    axes.set_xlabel("train step", color=INK)
    axes.set_ylabel("loss", color=INK)
    axes.set_title(visible(title), color=INK, fontsize=11, loc="left", parse_math=False)
    axes.grid(visible=True, alpha=0.2)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    data = io.BytesIO()
    canvas.print_png(data, metadata={"Software": None})  # type: ignore[no-untyped-call]
    return data.getvalue()
