"""What a command takes, as the fields of one frozen structure: each option is written once, beside its help.

    @dataclass(frozen=True)
    class Sampling:
        run: str = argument("RUN")
        tokens: int = option("N", "How many tokens are drawn.", least=1, default=64)
        as_json: bool = flag("Print one JSON object.", "--json")

    @click.command()
    @takes(Sampling)
    def sample(options: Sampling) -> None: ...

A field's own name is the option's, unless names follow the help. What several commands share is a structure too, and a field of
theirs by :func:`group`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import Field, field, fields
from functools import wraps
from pathlib import Path
from typing import Any

import click

FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)
THERE = click.Path(path_type=Path, dir_okay=False, exists=True)
"""A file that is there already."""
FOLDER_THERE = click.Path(path_type=Path, file_okay=False, exists=True)
"""A folder that is there already."""

_DECORATOR, _GROUP = "decorator", "group"


def option(metavar: str | None, help: str, *names: str, least: int | None = None, **more: Any) -> Any:
    """A field that an option fills: with ``least`` a whole number from there on; ``more`` as :func:`click.option` takes it."""
    if least is not None:
        more["type"] = click.IntRange(min=least)
    return _field(
        lambda name: click.option(*(names or [f"--{name.replace('_', '-')}"]), name, metavar=metavar, help=help, **more)
    )


def flag(help: str, *names: str, **more: Any) -> Any:
    """A field that is true where its option stands on the command line."""
    return option(None, help, *names, is_flag=True, **more)


def argument(metavar: str | None = None, **more: Any) -> Any:
    """A field that a word of the command line fills, by its place."""
    return _field(lambda name: click.argument(name, metavar=metavar, **more))


def group(structure: type[Any]) -> Any:
    """A field whose value is one of ``structure``, filled by the options of that, which stand in its place."""
    return field(metadata={_GROUP: structure})


def _field(decorator: Callable[[str], Any]) -> Any:
    return field(metadata={_DECORATOR: decorator})


def takes[O](structure: type[O]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options that are the fields of ``structure``: it gets one of that, and what else it takes."""

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def called(*others: Any, **values: Any) -> None:
            command(*others, _structure_of(structure, values), **values)

        for item in reversed([*_flat(structure)]):  # click lists the decorator that stands above another one first
            called = item.metadata[_DECORATOR](item.name)(called)
        return called

    return decorated


def _flat(structure: type[Any]) -> Iterator[Field[Any]]:
    for item in fields(structure):
        if inner := item.metadata.get(_GROUP):
            yield from _flat(inner)
        else:
            yield item


def _structure_of[O](structure: type[O], values: dict[str, Any]) -> O:
    parts = {item.name: item.metadata.get(_GROUP) for item in fields(structure)}  # type: ignore[arg-type]
    return structure(
        **{name: _structure_of(inner, values) if inner else values.pop(name) for name, inner in parts.items()}
    )
