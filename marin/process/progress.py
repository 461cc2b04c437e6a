"""Progress of long work on stderr: a bar on a terminal, a line in ten seconds elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from marin.process.text import visible
from marin.process.waiting import AGAIN, so_far

logger = logging.getLogger(__name__)

Report = Callable[[int, str], None]
"""Called with how much is done and a short note."""


@contextmanager
def bar(name: str, total: int, done: int = 0) -> Iterator[Report]:
    """A progress bar with rate and remaining time, which ``rich`` draws. ``total`` 0: nobody knows."""
    if not sys.stderr.isatty():
        yield _report_to_log(name, total)
        return
    from rich import progress as bars
    from rich.console import Console
    from rich.text import Text

    class Left(bars.ProgressColumn):
        """The time that remains; the seconds of a wait while there is one, or of the bar itself where nobody knows."""

        def __init__(self) -> None:
            super().__init__()
            self._remaining = bars.TimeRemainingColumn()

        def render(self, task: bars.Task) -> Text:
            passed = so_far()
            if passed is None and task.time_remaining is None:
                passed = task.elapsed
            if passed is None:
                return self._remaining.render(task)
            return Text(f"{passed:.0f} s so far", style="progress.elapsed")

    class Rate(bars.ProgressColumn):
        """How many of them a second, or how long one takes."""

        def render(self, task: bars.Task) -> Text:
            speed = task.speed or 0.0
            return Text(
                "" if not speed else f"{speed:,.1f}/s" if speed >= 1 else f"{1 / speed:,.1f} s each", style="dim"
            )

    console = Console(file=sys.stderr)  # of now: what a library writes meanwhile may be led elsewhere
    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        Rate(),
        Left(),
        bars.TextColumn("{task.fields[note]}", markup=False),
    )
    with bars.Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(visible(name), total=total or None, completed=done, note="")
        yield lambda completed, note: progress.update(task, completed=completed, note=visible(note))


def _report_to_log(name: str, total: int) -> Report:
    said = time.monotonic()

    def report(completed: int, note: str) -> None:
        nonlocal said
        if time.monotonic() - said < AGAIN:
            return
        said = time.monotonic()
        of = f" of {total:,}" if total else ""
        logger.info("%s: %s", visible(name), f"{completed:,}{of}" + (f", {visible(note)}" if note else ""))

    return report
