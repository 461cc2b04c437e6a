"""How results reach stdout: one JSON object per line for machines, aligned columns for people.

On a terminal tables are drawn by rich (which respects NO_COLOR); in a pipe they are plain columns.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import click

from ledger import Finding


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

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console(soft_wrap=False).print(table)


def print_fields(fields: Sequence[tuple[str, str]]) -> None:
    """Name and value, one pair a line."""
    width = max(len(name) for name, _ in fields)
    for name, value in fields:
        click.echo(f"{name.ljust(width)}  {value}".rstrip())


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
