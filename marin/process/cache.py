"""Where caches go: the user's cache folder, never a root and never Git. Whatever is in one can be deleted."""

from __future__ import annotations

import os
from pathlib import Path

from ledger import check_own


def cache_folder() -> Path:
    """``MARIN_CACHE``, or ``marin`` in the user's cache folder (XDG base directory specification)."""
    chosen = os.environ.get("MARIN_CACHE")
    return Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "marin"


def own_folder(*names: str) -> Path:
    """A folder below the cache folder, made for this user alone.

    Raises:
        Refused: the folder, or a file in it, is another user's, or others can write it.
    """
    folder = cache_folder().joinpath(*names)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_own(folder)
    return folder


def compilation_cache() -> Path:
    """Compiled XLA programs. It is code, so it is never shared through a root: only this user's processes write it.

    Raises:
        Refused: someone else could have written a program that is there.
    """
    return own_folder("xla")
