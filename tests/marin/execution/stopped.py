"""Processes that are stopped (SIGSTOP) where they hold nothing that others need."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from marin.record.root import Root


def stop(root: Root, *numbers: int) -> None:
    """Stop these processes between two appends. Stopped within one, a process holds the log's lock until it goes on, and who
    appends meanwhile is refused after a minute."""
    with root.log(wait=60):
        for number in numbers:
            os.kill(number, signal.SIGSTOP)
        while not all(_is_stopped(number) for number in numbers):
            pass


def _is_stopped(number: int) -> bool:
    return Path(f"/proc/{number}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] == "T"
