"""The one room that prints: one JSON object per line for machines, lines and aligned columns for people.

Whatever is printed may hold text that others wrote, so all of it goes through :func:`marin.process.text.visible` here, and no
other file of the command line writes to stdout or stderr (tests/test_architecture.py). A line that is given is one line
that is printed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

import click

from marin.process.text import mark_output, visible, visible_json


def say(*lines: str, err: bool = False, mark: tuple[str, str] | None = None) -> None:
    """Print lines, or an empty one. ``mark``: a word of ours and its colour, in front of the first."""
    front = click.style(mark[0], fg=mark[1]) if mark else ""
    for line in lines or ("",):
        click.echo(front + visible(line), err=err)
        front = ""
    mark_output()


def agree(question: str) -> bool:
    """Whether the user says yes, on stderr; ``click.Abort`` without an answer."""
    return click.confirm(visible(question, keep="\n"), err=True)


def print_bytes(parts: Iterable[bytes]) -> None:
    """Bytes as they are, for a file or a pipe; a terminal gets them as visible lines."""
    out = sys.stdout
    if out.isatty():
        for line in b"".join(parts).decode("utf-8", "backslashreplace").removesuffix("\n").split("\n"):
            say(line)
        return
    out.flush()
    for part in parts:
        out.buffer.write(part)
    out.buffer.flush()


def print_json(value: object, indent: int | None = None) -> None:
    """``value`` as one line of JSON, or laid out with ``indent``."""
    click.echo(visible_json(value, indent))
    mark_output()


def on_terminal() -> bool:
    """Whether stdout is a terminal."""
    return sys.stdout.isatty()


def print_drawn(drawn: Callable[[int], object]) -> None:
    """Print what rich draws, for a terminal of so many columns."""
    from rich.console import Console  # only where a table is drawn: 60 ms

    console = Console(soft_wrap=False)
    console.print(drawn(console.width))
    mark_output()
