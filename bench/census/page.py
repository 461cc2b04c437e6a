"""The table of docs/census.md and its picture, docs/images/census.svg, from the runs of a root."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from bench.census.cell import key_of
from bench.census.changes import AS_IS, CHANGES
from bench.census.judge import CellResult, judge
from bench.census.runs import Cells
from bench.census.table import TRAININGS, Training
from marin.record.root import Root

PROJECT = Path(__file__).resolve().parents[2]
DOCUMENT = PROJECT / "docs" / "census.md"
PICTURE = PROJECT / "docs" / "images" / "census.svg"
BEGIN, END = "<!-- census: begin -->", "<!-- census: end -->"
PLACES, PLACED = "<!-- places: begin -->", "<!-- places: end -->"
type Row = Mapping[str, str]
"""What each cell says, or where it begins to differ, by change."""
NOT_RUN = "not run"


def judged(root: Root, known: Cells) -> dict[str, dict[str, CellResult]]:
    """Every cell that the root has."""
    found: dict[str, dict[str, CellResult]] = {}
    for training in TRAININGS:
        reference = known.get((training.name, AS_IS.name, key_of(training, AS_IS)))
        cells = {change.name: known.get((training.name, change.name, key_of(training, change))) for change in CHANGES}
        found[training.name] = {
            name: judge(root, reference, cell)
            for name, cell in cells.items()
            if reference is not None and cell is not None and name not in training.without
        }
    return found


def written(text: str) -> dict[str, Row]:
    """What the table of a document says."""
    names = {change.title: change.name for change in CHANGES}
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    head, _, *body = lines
    if head[1:] != list(names):
        return {}
    return {row[0]: {names[title]: said for title, said in zip(head[1:], row[1:], strict=True) if said} for row in body}


def located(text: str) -> dict[str, Row]:
    """What the list of places of a document says."""
    names = {change.title: change.name for change in CHANGES}
    found: dict[str, Row] = {}
    for line in re.findall(r"^- `([^`]+)`: (.*)$", text, re.MULTILINE):
        parts = (part.partition(" from ") for part in line[1].split("; "))
        found[line[0]] = {names[title]: f"from {place}" for title, _, place in parts}
    return found


def places(judged: Mapping[str, Mapping[str, CellResult]], before: Mapping[str, Row]) -> str:
    """A line for each training some of whose tensors differ. Of a cell that the root does not have, what stood there before."""
    lines = []
    for training in TRAININGS:
        new, old = judged.get(training.name, {}), before.get(training.name, {})
        row = [(each.title, new[each.name].place() if each.name in new else old.get(each.name, "")) for each in CHANGES]
        said = "; ".join(f"{title} {place}" for title, place in row if place)
        if said:
            lines.append(f"- `{training.name}`: {said}")
    return "\n".join(lines)


def merged(judged: Mapping[str, Row], before: Mapping[str, Row]) -> dict[str, Row]:
    """A row for each training: of each cell what the root says, else what stood there before, else that it was not run."""
    return {
        training.name: {
            change.name: judged.get(training.name, {}).get(change.name)
            or before.get(training.name, {}).get(change.name)
            or NOT_RUN
            for change in CHANGES
            if change.name not in training.without
        }
        for training in TRAININGS
    }


def table(rows: Mapping[str, Row]) -> str:
    """Markdown."""
    head = ["training", *(change.title for change in CHANGES)]
    lines = [f"| {' | '.join(head)} |", f"| {' | '.join(['---'] * len(head))} |"]
    return "\n".join(
        lines + [f"| {name} | {' | '.join(row.get(each.name, '') for each in CHANGES)} |" for name, row in rows.items()]
    )


def counted(rows: Mapping[str, Row]) -> str:
    """How many cells there are of each kind."""
    cells = [said for row in rows.values() for said in row.values()]
    equal, fails, missing = (cells.count(said) for said in ("equal", "fails", NOT_RUN))
    trained = sum(said.startswith("evaluation") for said in cells)
    return (
        f"{len(rows)} trainings, {len(cells)} cells: {equal} equal, {trained} trained equally and evaluated otherwise, "
        f"{len(cells) - equal - trained - fails - missing} different, {fails} that fail, {missing} not run."
    )


def held(judged: Mapping[str, Mapping[str, CellResult]], rows: Mapping[str, Row]) -> str:
    """Of how many of these cells the root has the runs."""
    have, cells = sum(map(len, judged.values())), sum(map(len, rows.values()))
    if have == cells:
        return f"The root of this table had all {cells}, and each training as it is."
    return (
        f"The root of this table had {have} of the {cells}; the other {cells - have} stand as an earlier root had them."
    )


def shade(said: str) -> str:
    """Green where all bits are equal, from yellow to red by the distance after the last step, white where nothing ran."""
    plain = {"equal": "#2f9e6e", "fails": "#555555", NOT_RUN: "#ffffff"}
    if said in plain:
        return plain[said]
    number = said.removesuffix(" *").split()[-1]
    if number == "alone":  # the loss differs, and no tensor
        number = "0"
    if not re.fullmatch(r"[\d.]+(e[+-]\d+)?", number):
        return "#8b1a4a"
    level = min(max((math.log10(max(float(number), 1e-16)) + 16) / 16, 0.0), 1.0)
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
                parts.append(
                    f'<rect x="{left + wide * place + 1}" y="{y + 1}" width="{wide - 2}" height="{high - 2}" '
                    f'fill="{shade(said)}" stroke="#bbb"><title>{escape(f"{name}, {change.title}: {said}")}</title></rect>'
                )
    y = top + high * len(rows) + 20
    legend = (
        ("#2f9e6e", "equal"),
        *((shade(far), far) for far in ("1e-14", "1e-7", "1e-2")),
        ("#8b1a4a", "other tensors or texts"),
        ("#555555", "fails"),
        ("#ffffff", NOT_RUN),
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


def compared(root: Root, known: Cells) -> list[str]:
    """A line for each cell of the root that says something else than the table of the document, and how many there are."""
    rows = written(DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0])
    here = {(row, name): cell for row, cells in judged(root, known).items() for name, cell in cells.items()}
    other = {at: cell for at, cell in here.items() if cell.short() != rows.get(at[0], {}).get(at[1])}
    lines = [
        f"{row:22} {name:12} {rows.get(row, {}).get(name, NOT_RUN):24} here {cell.short():24} {cell.place()} {cell.reason}"
        for (row, name), cell in other.items()
    ]
    return [*map(str.rstrip, lines), f"{len(here)} cells of the root, {len(other)} of them other than in the table"]


def write(root: Root, known: Cells) -> None:
    """Put the table into the document, and the picture beside it. A cell that the root does not have stays as it is there."""
    text = DOCUMENT.read_text(encoding="utf-8")
    results = judged(root, known)
    said = {name: {change: cell.short() for change, cell in row.items()} for name, row in results.items()}
    rows = merged(said, written(text.partition(BEGIN)[2].partition(END)[0]))
    listed = places(results, located(text.partition(PLACES)[2].partition(PLACED)[0]))
    text = re.sub(f"{PLACES}.*{PLACED}", lambda _: f"{PLACES}\n{listed}\n{PLACED}", text, flags=re.DOTALL)
    made = f"{BEGIN}\n{table(rows)}\n\n{counted(rows)} {held(results, rows)}\n\nEmpty cells: {reasons()}.\n{END}"
    DOCUMENT.write_text(re.sub(f"{BEGIN}.*{END}", lambda _: made, text, flags=re.DOTALL), encoding="utf-8")
    PICTURE.write_text(picture(rows), encoding="utf-8")
