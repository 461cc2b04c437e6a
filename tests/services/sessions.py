"""What processes share: in a session, folders that the first one to ask fills, while the others wait; in all sessions of
a user, compiled programs."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from forked import VARIABLE

from marin.process.cache import cache_folder


def session_folder(factory: pytest.TempPathFactory) -> Path:
    """A temporary folder of the session; its processes have theirs inside it."""
    base = factory.getbasetemp()
    return base.parent if VARIABLE in os.environ else base


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """The folder ``name`` with what ``make`` leaves in it. Where making fails, the next to ask tries again."""
    place = session_folder(factory) / name
    place.mkdir(exist_ok=True)
    with (place / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        tries = sorted(place.glob("try-*"))
        if not (place / "made").exists():
            made = place / f"try-{len(tries)}"
            made.mkdir()
            make(made)
            (place / "made").write_text(made.name, encoding="utf-8")
        return place / (place / "made").read_text(encoding="utf-8")


@contextmanager
def made_meanwhile(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Iterator[None]:
    """Begin :func:`made_once` in a fork, now. Who asks for the folder waits for it, and makes it where the fork failed. The
    fork ends with the block, done or not."""
    factory.getbasetemp()  # before the fork: each process would make its own
    if (child := os.fork()) == 0:
        try:
            os.setpgid(0, 0)
            made_once(factory, name, make)
        finally:
            os._exit(0)
    with suppress(PermissionError, ProcessLookupError):  # it did so itself, or has ended
        os.setpgid(child, child)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)


def new_cache(folder: Path) -> Path:
    """A cache folder of a test's own. Compiled programs, answers of train steps and MLflow's empty database alone are the user's:
    they are kept by all that decides them."""
    folder.mkdir(mode=0o700, parents=True)
    for name in ("xla", "answers", "mlflow"):
        shared = cache_folder() / name
        shared.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / name).symlink_to(shared.resolve())
    return folder
