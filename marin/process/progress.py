"""Progress of long work on stderr: a bar on a terminal, silence elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from marin.process.text import visible

Report = Callable[[int, str], None]
"""Called with how much is done and a short note."""


@contextmanager
def bar(name: str, total: int, done: int = 0) -> Iterator[Report]:
    """A progress bar with rate and remaining time; ``rich`` draws it."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        """How many of them a second, or how long one takes."""

        def render(self, task: Task) -> Text:
            speed = task.speed or 0.0
            return Text(
                "" if not speed else f"{speed:,.1f}/s" if speed >= 1 else f"{1 / speed:,.1f} s each", style="dim"
            )

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        Rate(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(visible(name), total=total, completed=done, note="")
        yield lambda completed, note: progress.update(task, completed=completed, note=visible(note))


@contextmanager
def byte_bar(name: str) -> Iterator[Callable[[int, int, str], None]]:
    """A bar over bytes with speed and remaining time; called with bytes done, bytes in all and a short note."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(visible(name), total=None, note="")
        yield lambda done, total, note: progress.update(task, completed=done, total=total, note=visible(note))
