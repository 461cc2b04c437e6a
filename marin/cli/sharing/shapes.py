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

MODEL = "export"
"""The step whose output is the model."""
Values = Mapping[str, Any]
"""The options of `marin export` as click gives them, by name."""


@dataclass(frozen=True)
class Written:
    """A file or folder that was written: the word for what it is, and the digest of its content. ``revision``: the name that it
    has where it was pushed to. ``note``: what else a person is told."""

    what: str
    path: Path | str
    digest: str
    revision: str = ""
    note: str = ""


def write_text(what: str, path: Path, text: str) -> Written:
    """A file of this text."""
    from ledger import digest_bytes

    path.write_text(text, "utf-8")
    return Written(what, path, digest_bytes(text.encode()))


def _nothing(values: Values) -> None:
    pass


@dataclass(frozen=True)
class Shape:
    """``option`` asks for it; ``more`` say how; ``write`` gets all options and says what it has written. ``check`` refuses
    options that do not go together, before anything is written. ``folder``: ``--card`` and ``--hub`` are of this one too."""

    option: click.Option
    write: Callable[[Root, Run, Values], Iterable[Written]]
    more: tuple[click.Option, ...] = ()
    examples: tuple[str, ...] = ()
    check: Callable[[Values], None] = _nothing
    folder: bool = False

    def wanted(self, values: Values) -> bool:
        """Whether this shape is asked for."""
        return values[self.option.name or ""] is not None
