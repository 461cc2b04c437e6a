"""The command line with which anybody verifies a run themselves, as pages show it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from marin.history.run import Run
from marin.record.events import LOOP


def verify_command(run: Run, command: str = "") -> str:
    """``marin verify RUN``, and for a loop of its user's own the program that makes it again, quoted for a shell.

    Args:
        command: what executed it, where somebody did; else the page names what the loop says that it was started by, or
            ``COMMAND`` where it says nothing (a notebook).
    """
    if not run.is_loop:
        return f"marin verify {run.run}"
    return (
        f"marin verify {run.run} --by {shlex.quote(found) if (found := command or _loop_command(run)) else 'COMMAND'}"
    )


def _loop_command(run: Run) -> str:
    told = run.started.body.recipe.get(LOOP)
    command = told.get("command") if isinstance(told, Mapping) else None
    return command if isinstance(command, str) else ""
