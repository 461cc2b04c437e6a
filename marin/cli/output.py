"""How results reach stdout: one JSON object per line for machines, aligned columns for people.

On a terminal tables are drawn by rich (which respects NO_COLOR); in a pipe they are plain columns.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence

import click

from ledger import Finding

LONGEST_WORD, SHORTEST = 12, 16


def print_json(value: object) -> None:
    """`value` as one line of JSON."""
    click.echo(json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(", ", ": ")))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, empty: str) -> None:
    """Rows under their column names; `empty` goes to stderr where there are none."""
    if not rows:
        click.echo(empty, err=True)
        return
    if sys.stdout.isatty():
        _draw(columns, rows)
        return
    widths = [max(len(row[i]) for row in (columns, *rows)) for i in range(len(columns))]
    for row in (columns, *rows):
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _draw(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console  # only where a table is drawn: 60 ms
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    console = Console(soft_wrap=False)
    for column, width in zip(columns, _widths([columns, *rows], console.width), strict=True):
        table.add_column(column, overflow="fold", width=width)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def _widths(rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """How wide columns are drawn so that they fit side by side: the widest give way first, and words stay whole as long as
    that is possible (digests, which are long words, are folded)."""
    cells = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in cells]
    words = [max((len(word) for cell in column for word in cell.split()), default=0) for column in cells]
    for least in ([length if length <= LONGEST_WORD else SHORTEST for length in words], [1] * len(cells)):
        while sum(widths) + len(widths) > room:
            place = max(range(len(widths)), key=lambda i: (widths[i] > least[i], widths[i]))
            if widths[place] <= least[place]:
                break
            widths[place] -= 1
    return widths


def print_fields(fields: Sequence[tuple[str, str]]) -> None:
    """Name and value, one pair a line; closer together where a terminal is just too narrow."""
    width = max(len(name) for name, _ in fields)
    gap = 2
    if sys.stdout.isatty() and any(len(value) + width + gap > columns_here() for _, value in fields):
        gap = 1
    for name, value in fields:
        click.echo(f"{name.ljust(width)}{' ' * gap}{value}".rstrip())


def columns_here() -> int:
    """How many columns the terminal has."""
    return shutil.get_terminal_size().columns


def fitted(line: str) -> str:
    """A line as a terminal shows it: cut where it is wider, with a mark. In a pipe it stays whole."""
    if not sys.stdout.isatty() or len(line) <= (width := columns_here()):
        return line
    return line[:width - 1] + "…"


def human_size(count: int) -> str:
    """A number of bytes for people: 1.9 MB."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{int(value)} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def describe_finding(finding: Finding) -> dict[str, str]:
    """A finding as JSON shows it."""
    return {"what": finding.what, "where": finding.where, "expected": finding.expected, "found": finding.found}
