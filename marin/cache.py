"""Where caches go: the user's cache folder, never a root and never Git. Whatever is in one can be deleted."""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

logger = logging.getLogger(__name__)


def cache_folder() -> Path:
    """``MARIN_CACHE``, or ``marin`` in the user's cache folder (XDG base directory specification)."""
    chosen = os.environ.get("MARIN_CACHE")
    return Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "marin"


def compilation_cache() -> Path:
    """Compiled XLA programs. It is code, so it is never shared through a root: only this user's processes write it."""
    folder = cache_folder() / "xla"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


@contextmanager
def compiling(name: str) -> Iterator[None]:
    """While entered, the only process of this user on this machine that compiles what is called ``name``. Of several that
    begin together one compiles, on all cores, and the others then find its programs."""
    folder = cache_folder() / "compiling"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / name).open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logger.info("waiting for another process, which compiles the same programs")
            fcntl.flock(held, fcntl.LOCK_EX)
        yield
