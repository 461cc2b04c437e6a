"""Caches are code or are believed like code: one that someone else could have written is not opened."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ledger.errors import Refused

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS_ENTER = stat.S_IXGRP | stat.S_IXOTH


def check_own(folder: Path) -> None:
    """Raise unless this cache folder and the files in it belong to this user, and nobody else can write them.

    In a folder that nobody else can enter, the modes of the files do not matter.

    Raises:
        Refused: someone else could have written what is there.
    """
    try:
        state = folder.stat()
    except FileNotFoundError:
        return
    _check_owner(folder, state, folder)
    shared = bool(state.st_mode & _OTHERS_ENTER)
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                _check_owner(Path(entry.path), entry.stat(follow_symlinks=False), folder, modes=shared)
            except FileNotFoundError:  # another process of ours cleaned up
                continue


def _check_owner(path: Path, state: os.stat_result, folder: Path, *, modes: bool = True) -> None:
    user = os.geteuid()
    if state.st_uid != user:
        raise Refused(
            "a cache belongs to another user",
            where=str(path),
            expected=f"user {user}",
            found=f"user {state.st_uid}",
            cure=f"remove {folder}, or keep the cache elsewhere; it is made again",
        )
    if modes and not stat.S_ISLNK(state.st_mode) and state.st_mode & _OTHERS_WRITE:
        raise Refused(
            "others can write a cache",
            where=str(path),
            expected="write permission for its owner alone",
            found=f"mode {stat.S_IMODE(state.st_mode):04o}",
            cure=f"remove {folder}, or if you know who wrote it: chmod -R go-w {folder}",
        )
