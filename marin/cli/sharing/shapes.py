"""A shape in which `marin export` writes a run: its options, what they ask for, and who writes it. Plugins add shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from marin.history.run import Run
    from marin.record.root import Root

Values = Mapping[str, Any]
"""The options of `marin export` as click gives them, by name."""


@dataclass(frozen=True)
class Written:
    """A file or folder that was written: the word for what it is, and the digest of its content."""

    what: str
    path: Path
    digest: str


@dataclass(frozen=True)
class Shape:
    """``option`` asks for it; ``more`` say how; ``write`` gets all options and says what it has written."""

    option: click.Option
    write: Callable[[Root, Run, Values], Iterable[Written]]
    more: tuple[click.Option, ...] = ()
    examples: tuple[str, ...] = ()

    def wanted(self, values: Values) -> bool:
        """Whether this shape is asked for."""
        return values[self.option.name or ""] is not None
