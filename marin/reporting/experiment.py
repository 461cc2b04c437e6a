"""What an experiment shows at its end: one table and one plot, in a folder that is an artifact like any other.

table.csv     the numbers, one row for each case, floats in the shortest form that reads back equal
plot.png      the same bytes for the same numbers
report.md     question, hypothesis, table: for a pull request
report.html   all of it in one file, nothing loaded from anywhere
"""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from marin.graph.execution.guard import unconfined
from marin.reporting.fonts import use_font_cache
from marin.reporting.template import render

Cell = str | int | float


@dataclass(frozen=True)
class Plot:
    """Points by series. ``means`` draws a line through the mean of the points that share an x."""

    title: str
    x_label: str
    y_label: str
    series: Mapping[str, Sequence[tuple[float, float]]]
    log_x: bool = False
    means: bool = True
    marks: Sequence[float] = ()


@dataclass(frozen=True)
class Report:
    """A finished experiment for people."""

    title: str
    question: str
    findings: Sequence[str]
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    plot: Plot

    def write(self, folder: Path) -> None:
        """All four files."""
        picture = draw(self.plot)
        (folder / "table.csv").write_text(self._csv(), encoding="utf-8")
        (folder / "plot.png").write_bytes(picture)
        (folder / "report.md").write_text(self._markdown(), encoding="utf-8")
        (folder / "report.html").write_bytes(
            render("experiment.html.j2", report=self, picture=base64.b64encode(picture).decode())
        )

    def _csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([repr(cell) if isinstance(cell, float) else cell for cell in row] for row in self.rows)
        return text.getvalue()

    def _markdown(self) -> str:
        lines = [
            f"# {self.title}",
            "",
            self.question,
            "",
            *(f"- {finding}" for finding in self.findings),
            "",
            f"| {' | '.join(self.columns)} |",
            f"|{'---|' * len(self.columns)}",
            *(f"| {' | '.join(_drawn_cell(cell) for cell in row)} |" for row in self.rows),
            "",
            "![plot](plot.png)",
            "",
        ]
        return "\n".join(lines)


COLOURS = ("#0969da", "#cf222e", "#1a7f37", "#8250df", "#bf8700", "#0a7ea4")
MARKERS = ("o", "s", "^", "D", "v", "P")


def draw(plot: Plot) -> bytes:
    """The plot as a PNG without clock, version or display in it."""
    use_font_cache()
    with unconfined():  # the first import on a machine lists its fonts, by a program
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 4.5), dpi=100, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for number, (name, points) in enumerate(plot.series.items()):
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        few = len(points) <= 40
        if few:
            axes.plot([x for x, _ in points], [y for _, y in points], marker, color=colour, alpha=0.5, label=name)
        if plot.means:
            means = _means(points)
            axes.plot(
                [x for x, _ in means], [y for _, y in means], color=colour, linewidth=1.6, label=None if few else name
            )
    for mark in plot.marks:
        axes.axvline(mark, color="#24292f", alpha=0.3, linewidth=1.0, linestyle="--")
    if plot.log_x:
        axes.set_xscale("log")
    axes.set_xlabel(plot.x_label)
    axes.set_ylabel(plot.y_label)
    axes.set_title(plot.title, fontsize=11, loc="left", parse_math=False)
    axes.grid(visible=True, alpha=0.2)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    data = io.BytesIO()
    canvas.print_png(data, metadata={"Software": None})  # type: ignore[no-untyped-call]
    return data.getvalue()


def _means(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    groups: dict[float, list[float]] = {}
    for x, y in points:
        groups.setdefault(x, []).append(y)
    return [(x, sum(values) / len(values)) for x, values in sorted(groups.items())]


def _drawn_cell(cell: Cell) -> str:
    return f"{cell:.4f}" if isinstance(cell, float) else str(cell)
