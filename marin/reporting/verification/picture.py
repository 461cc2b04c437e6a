"""The picture that a link to a verification shows where it is shared: the seal, the run, its verdicts, its loss.

A PNG of 1200 by 630, which is what link previews ask for (ogp.me), the same bytes for the same report: no clock, no
display, no version in it.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from marin.process.text import visible
from marin.reporting.fonts import use_font_cache

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH, HEIGHT, DPI = 1200, 630, 100
INK, SOFT, GROUND, CARD, LINE = "#1f2328", "#59636e", "#ffffff", "#f6f8fa", "#d1d9e0"
COLOURS = {"good": "#116329", "mid": "#7d4e00", "bad": "#a40e26"}
MARKS = {
    "good": ((-0.42, -0.02), (-0.12, -0.34), (0.46, 0.32)),
    "mid": ((-0.42, 0.0), (0.42, 0.0)),
    "bad": ((-0.34, 0.34), (0.34, -0.34), (math.nan, math.nan), (0.34, 0.34), (-0.34, -0.34)),
}


def picture(
    kind: str,
    says: str,
    name: str,
    lines: Sequence[str],
    verdicts: Sequence[tuple[str, str]],
    losses: Mapping[int, float],
) -> bytes:
    """The PNG. ``kind`` is good, mid or bad; ``says`` the sentence of the seal; ``lines`` say by whom and when, what a card
    of the page says; ``verdicts`` are names and words."""
    use_font_cache()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH / DPI, HEIGHT / DPI), dpi=DPI, facecolor=GROUND)
    canvas = FigureCanvasAgg(figure)
    page: Any = figure.add_axes((0, 0, 1, 1))
    page.set_xlim(0, WIDTH)
    page.set_ylim(HEIGHT, 0)
    page.axis("off")
    colour = COLOURS[kind]
    _box(page, (36, 36), WIDTH - 72, HEIGHT - 72, 24, fc=CARD, ec=colour, lw=4)
    _mark(page, kind, 132, 128, 52)
    _write_line(page, 216, 104, says, 30, colour, weight="bold")
    _write_line(page, 216, 154, name, 19, INK, weight="bold")
    for at, line in enumerate(lines[:2]):
        _write_line(page, 84, 208 + 32 * at, line, 14, INK if at == 0 else SOFT)
    x = 84.0
    for verdict, word in verdicts:
        x = _chip(page, x, 290, verdict, word)
    _curve(figure, losses)
    _write_line(page, 84, 566, "Marin: every step in a signed log, so that anybody can make it again", 12, SOFT)
    data = io.BytesIO()
    canvas.print_png(data, metadata={"Software": None})  # type: ignore[no-untyped-call]
    return data.getvalue()


def _box(page: Any, place: tuple[float, float], wide: float, high: float, corner: int, **style: Any) -> None:
    from matplotlib.patches import FancyBboxPatch

    page.add_patch(FancyBboxPatch(place, wide, high, boxstyle=f"round,pad=0,rounding_size={corner}", **style))


def _mark(page: Any, kind: str, x: float, y: float, radius: float) -> None:
    from matplotlib.patches import Circle

    page.add_patch(Circle((x, y), radius, fill=False, ec=COLOURS[kind], lw=6))
    page.plot(
        [x + radius * a for a, _ in MARKS[kind]],
        [y - radius * b for _, b in MARKS[kind]],
        color=COLOURS[kind],
        linewidth=7,
        solid_capstyle="round",
        solid_joinstyle="round",
    )


def _write_line(page: Any, x: float, y: float, text: str, size: float, colour: str, weight: str = "normal") -> None:
    shown = visible(text)
    shown = shown if len(shown) <= 108 else shown[:107] + "…"
    page.text(x, y, shown, fontsize=size, color=colour, weight=weight, va="center", parse_math=False)


def _chip(page: Any, x: float, y: float, name: str, word: str) -> float:
    kind = {"PASS": "good", "FAIL": "bad"}.get(word, "mid")
    wide = 11.5 * len(name) + 14.0 * len(word) + 46
    _box(page, (x, y - 20), wide, 40, 20, fc=GROUND, ec=LINE, lw=1.5)
    page.text(x + 18, y, name, fontsize=13, color=INK, va="center", parse_math=False)
    page.text(
        x + wide - 18,
        y,
        word,
        fontsize=13,
        color=COLOURS[kind],
        weight="bold",
        va="center",
        ha="right",
        parse_math=False,
    )
    return x + wide + 12


def _curve(figure: Figure, losses: Mapping[int, float]) -> None:
    steps = [step for step in sorted(losses) if math.isfinite(losses[step])]
    if len(steps) < 2:
        return
    axes: Any = figure.add_axes((100 / WIDTH, 0.175, 1 - 184 / WIDTH, 0.26), facecolor="none")
    axes.plot(steps, [losses[step] for step in steps], color="#0969da", linewidth=2.2)
    axes.set_xlim(steps[0], steps[-1])
    axes.tick_params(labelsize=11, colors=SOFT, length=0)
    axes.grid(visible=True, axis="y", color=LINE)
    axes.spines[:].set_visible(False)
    axes.set_title(
        f"loss {losses[steps[0]]:.3f} to {losses[steps[-1]]:.3f} over {len(losses)} train steps",
        loc="left",
        fontsize=13,
        color=SOFT,
        parse_math=False,
    )
