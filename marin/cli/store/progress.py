"""A bar over the bytes of a transfer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from marin.process.text import visible


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
