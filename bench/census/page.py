"""The table of docs/census.md and its picture, docs/images/census.svg, from the runs of a root."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from bench.census.cell import key_of
from bench.census.changes import AS_IS, CHANGES, Change
from bench.census.judge import CellResult, judge
from bench.census.runs import Cells
from bench.census.table import TRAININGS, Training
from marin.record.root import Root

PROJECT = Path(__file__).resolve().parents[2]
DOCUMENT = PROJECT / "docs" / "census.md"
PICTURE = PROJECT / "docs" / "images" / "census.svg"
BEGIN, END = "<!-- census: begin -->", "<!-- census: end -->"
type Row = Mapping[str, CellResult | None]
"""By change; None where the cell has not been executed."""


def judged(root: Root, known: Cells) -> dict[str, Row]:
    """What every cell says."""
    found: dict[str, Row] = {}
    for training in TRAININGS:
        reference = known.get((training.name, AS_IS.name, key_of(training, AS_IS)))
        cells = {change.name: known.get((training.name, change.name, key_of(training, change))) for change in CHANGES}
        found[training.name] = {
            name: None if reference is None or cell is None else judge(root, reference, cell)
            for name, cell in cells.items()
            if name not in training.without
        }
    return found


def table(rows: Mapping[str, Row]) -> str:
    """Markdown."""
    head = ["training", *(change.title for change in CHANGES)]
    lines = [f"| {' | '.join(head)} |", f"| {' | '.join(['---'] * len(head))} |"]
    for name, row in rows.items():
        cells = [("not run" if said is None else said.short()) if c.name in row else "" for c, said in paired(row)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def paired(row: Row) -> Sequence[tuple[Change, CellResult | None]]:
    return [(change, row.get(change.name)) for change in CHANGES]


def counted(rows: Mapping[str, Row]) -> str:
    """How many cells there are of each kind."""
    cells = [said for row in rows.values() for said in row.values()]
    seen = [said for said in cells if said is not None]
    equal = sum(said.equal for said in seen)
    trained = sum(said.kind == "equal" and not said.equal for said in seen)
    fails = sum(said.kind == "fails" for said in seen)
    return (
        f"{len(rows)} trainings, {len(cells)} cells: {equal} equal, {trained} trained equally and evaluated otherwise, "
        f"{len(seen) - equal - trained - fails} different, {fails} that fail, {len(cells) - len(seen)} not run."
    )


def shade(said: CellResult | None) -> str:
    """Green where all bits are equal, from yellow to red by the distance after the last step, white where nothing ran."""
    if said is None:
        return "#ffffff"
    if said.equal:
        return "#2f9e6e"
    if said.kind == "fails":
        return "#555555"
    far = said.last if said.kind == "differs" else said.evaluation
    if not math.isfinite(far):
        return "#8b1a4a"
    level = min(max((math.log10(max(far, 1e-16)) + 16) / 16, 0.0), 1.0)
    return f"hsl({round(60 - 60 * level)} 85% {round(72 - 28 * level)}%)"


def picture(rows: Mapping[str, Row]) -> str:
    """The table as an SVG."""
    left, top, wide, high = 170, 96, 62, 22
    width, height = left + wide * len(CHANGES) + 20, top + high * len(rows) + 56
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    for place, change in enumerate(CHANGES):
        x = left + wide * place + wide // 2
        parts.append(f'<text x="{x}" y="{top - 8}" transform="rotate(-40 {x} {top - 8})">{escape(change.title)}</text>')
    for line, (name, row) in enumerate(rows.items()):
        y = top + high * line
        parts.append(f'<text x="{left - 8}" y="{y + 15}" text-anchor="end">{escape(name)}</text>')
        for place, change in enumerate(CHANGES):
            if change.name in row:
                said = row[change.name]
                title = "not run" if said is None else said.short()
                parts.append(
                    f'<rect x="{left + wide * place + 1}" y="{y + 1}" width="{wide - 2}" height="{high - 2}" '
                    f'fill="{shade(said)}" stroke="#bbb"><title>{escape(f"{name}, {change.title}: {title}")}</title></rect>'
                )
    y = top + high * len(rows) + 20
    legend = (
        ("#2f9e6e", "equal"),
        (shade(CellResult("differs", last=1e-14)), "1e-14"),
        (shade(CellResult("differs", last=1e-7)), "1e-7"),
        (shade(CellResult("differs", last=1e-2)), "1e-2"),
        ("#8b1a4a", "other tensors or texts"),
        ("#555555", "fails"),
        ("#ffffff", "not run"),
    )
    x = 20
    for fill, text in legend:
        parts.append(f'<rect x="{x}" y="{y}" width="14" height="14" fill="{fill}" stroke="#bbb"/>')
        parts.append(f'<text x="{x + 20}" y="{y + 12}">{text}</text>')
        x += 40 + 7 * len(text)
    return "\n".join([*parts, "</svg>", ""])


def reasons(trainings: Sequence[Training] = TRAININGS) -> str:
    """Why cells are not there."""
    by: dict[str, list[str]] = {}
    for training in trainings:
        for change, reason in training.without.items():
            title = next(each.title for each in CHANGES if each.name == change)
            by.setdefault(f"{title}, {reason}", []).append(training.name)
    return "; ".join(f"{reason}: {', '.join(names)}" for reason, names in sorted(by.items()))


def write(root: Root, known: Cells) -> None:
    """Put the table into the document, and the picture beside it."""
    rows = judged(root, known)
    text = DOCUMENT.read_text(encoding="utf-8")
    made = f"{BEGIN}\n{table(rows)}\n\n{counted(rows)}\n\nEmpty cells: {reasons()}.\n{END}"
    DOCUMENT.write_text(re.sub(f"{BEGIN}.*{END}", lambda _: made, text, flags=re.DOTALL), encoding="utf-8")
    PICTURE.write_text(picture(rows), encoding="utf-8")
