"""Tables, trees and fields for people. On a terminal tables are drawn by rich (which respects NO_COLOR); in a pipe they are plain
columns."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from marin.cli.output import on_terminal, print_drawn, print_json, say
from marin.process.text import visible

if TYPE_CHECKING:
    from ledger import Finding
    from marin.record.trust.evidence import DatedEvidence

LONGEST_WORD, SHORTEST = 12, 16
_DIGEST = re.compile(r"(sha256:[0-9a-f]{12})[0-9a-f]{52}")


@dataclass
class Branch:
    """A line with the lines that hang below it."""

    line: str
    below: list[Branch] = field(default_factory=list)

    def add(self, line: str) -> Branch:
        """Hang one more line below; returns it."""
        self.below.append(Branch(line))
        return self.below[-1]


def print_tree(top: Branch) -> None:
    """A tree of lines. None is ever cut: a terminal shows digests by their first twelve digits, which every command takes,
    and what is still too long goes on below, between the guides."""
    for front, under, line in _limbs(top):
        if not on_terminal():
            say(front + line)
            continue
        folded = _folded(shortened(line), columns_here() - len(front))
        say(*(guide + part for guide, part in zip([front, *[under] * len(folded)], folded, strict=False)))


def _limbs(branch: Branch, front: str = "", under: str = "") -> Iterator[tuple[str, str, str]]:
    """(what stands before a line, what before the rest of it, the line) of a branch and of all below it."""
    yield front, under + ("│   " if branch.below else "    "), branch.line
    for one in branch.below:
        last = one is branch.below[-1]
        yield from _limbs(one, under + ("└── " if last else "├── "), under + ("    " if last else "│   "))


def say_folded(line: str) -> None:
    """Print one line, which a terminal has in several where it is wider, broken between words."""
    say(*(_folded(line, columns_here()) if on_terminal() else [line]))


def _folded(line: str, room: int) -> list[str]:
    return textwrap.wrap(visible(line), max(room, SHORTEST), break_on_hyphens=False) or [""]


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, empty: str, expendable: Sequence[str] = ()
) -> None:
    """Rows under their column names; ``empty`` goes to stderr where there are none. On a terminal too narrow for them
    digests are shown by their first twelve digits, which every command takes; where that is not enough it goes without
    columns that are ``expendable``, the first of them first. In a pipe all are there, and whole."""
    if not rows:
        say(empty, err=True)
        return
    rows = [[visible(cell) for cell in row] for row in rows]
    columns = [visible(name) for name in columns]
    if on_terminal():
        if sum(max(map(len, column)) + 1 for column in zip(columns, *rows, strict=True)) > columns_here():
            rows = [[shortened(cell) for cell in row] for row in rows]
        kept = fitting(columns, rows, columns_here(), expendable)
        _draw([columns[i] for i in kept], [[row[i] for i in kept] for row in rows])
        return
    widths = [max(len(row[i]) for row in (columns, *rows)) for i in range(len(columns))]
    for row in (columns, *rows):
        say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def shortened(line: str) -> str:
    """``line`` with its digests by their first twelve digits, which every command takes."""
    return _DIGEST.sub(r"\1", line)


def fitting(columns: Sequence[str], rows: Sequence[Sequence[str]], room: int, expendable: Sequence[str]) -> list[int]:
    """The places of the columns that stand side by side in ``room`` letters without a cell being folded; of
    ``expendable`` as few as need be are left out."""
    widths = [max(map(len, column)) + 1 for column in zip(columns, *rows, strict=True)]
    kept = list(range(len(columns)))
    for name in expendable:
        if sum(widths[i] for i in kept) <= room:
            break
        kept = [i for i in kept if columns[i] != name]
    return kept


def _draw(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.table import Table  # only where one is drawn
    from rich.text import Text

    def drawn(room: int) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
        for column, width in zip(columns, _widths([columns, *rows], room), strict=True):
            table.add_column(column, overflow="fold", width=width)
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        return table

    print_drawn(drawn)


def _widths(rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """How wide columns are drawn so that they fit side by side: the widest give way first, and words stay whole as long
    as that is possible (digests, which are long words, are folded)."""
    cells = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in cells]
    words = [max((len(word) for cell in column for word in cell.split()), default=0) for column in cells]
    words = [length if length <= LONGEST_WORD else min(length, SHORTEST) for length in words]
    heads = [max(map(len, column[0].split()), default=1) for column in cells]
    leasts = ([*map(max, words, heads)], heads, words, [1] * len(cells))
    least = next((one for one in leasts if sum(one) + len(one) <= room), leasts[-1])
    while sum(widths) + len(widths) > room and any(map(int.__gt__, widths, least)):
        widths[max(range(len(widths)), key=lambda i: (widths[i] > least[i], widths[i]))] -= 1
    return widths


def print_fields(fields: Sequence[tuple[str, str]]) -> None:
    """Name and value, one pair a line; closer together where a terminal is just too narrow."""
    fields = [(visible(name), visible(value)) for name, value in fields]
    width = max(len(name) for name, _ in fields)
    gap = 2
    if on_terminal() and any(len(value) + width + gap > columns_here() for _, value in fields):
        gap = 1
    for name, value in fields:
        say(f"{name.ljust(width)}{' ' * gap}{value}".rstrip())


def columns_here() -> int:
    """How many columns the terminal has."""
    return shutil.get_terminal_size().columns


def fitted(line: str) -> str:
    """A line as a terminal shows it: cut where it is wider, with a mark. In a pipe it stays whole."""
    line = visible(line)
    if not on_terminal() or len(line) <= (width := columns_here()):
        return line
    return line[: width - 1] + "…"


def describe_finding(finding: Finding) -> dict[str, str]:
    """A finding as JSON shows it."""
    return {"what": finding.what, "where": finding.where, "expected": finding.expected, "found": finding.found}


def report_findings(findings: Iterable[Finding], *, as_json: bool) -> int:
    """Print each finding on a line as it is found, and return their number."""
    count = 0
    for finding in findings:
        count += 1
        if as_json:
            print_json(describe_finding(finding))
        else:
            say(str(finding))
    return count


def describe_vouched(vouched: DatedEvidence) -> dict[str, object]:
    """What somebody vouches for, as JSON shows it."""
    return {"kind": vouched.kind, "size": vouched.size, "time": vouched.time, "by": vouched.by}
