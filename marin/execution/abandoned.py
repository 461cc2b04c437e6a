"""Folders of executions that nobody is at work in any more: what a collection of garbage removes."""

from __future__ import annotations

import stat
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ledger import Locked
from marin.execution.workspace import Workspace, locked_folder, remove_folder


@dataclass(frozen=True)
class Abandoned:
    """A workspace that nobody came back to."""

    folder: Path
    size: int
    idle: float


def sweep_abandoned(
    local: Path, min_age: float, *, leased: Collection[str] = (), dry_run: bool = False, now: float | None = None
) -> list[Abandoned]:
    """Delete workspaces of ``local`` in which nothing changed for ``min_age`` seconds and where no process is at work: none
    has the folder's lock, and no living executor a lease on the step (``leased``, by identity).

    Their outputs are in the store or were never made; what is lost is the head start of an attempt that would resume.
    Events that wait to be delivered (``work/spool``) are not a workspace and stay.
    """
    swept, busy = [], {Workspace.tail(identity) for identity in leased}
    for folder in sorted((local / "work").glob("*-" + "[0-9a-f]" * 32)):
        if folder.name[-32:] in busy:
            continue
        with suppress(Locked), locked_folder(folder, "sweep of abandoned attempts"):
            found = _measure(folder, time.time() if now is None else now)
            if found.idle >= min_age:
                swept.append(found)
                if not dry_run:
                    remove_folder(folder)
    return swept


def _measure(folder: Path, now: float) -> Abandoned:
    """Size, counting what the store has under another name as nothing, and how long nothing in it has changed."""
    size, newest = 0, folder.stat().st_ctime
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            status = path.lstat()
            if stat.S_ISDIR(status.st_mode):
                newest = max(newest, status.st_mtime)
            elif status.st_nlink == 1:
                size += status.st_size
                newest = max(newest, status.st_mtime)
    return Abandoned(folder, size, now - newest)
