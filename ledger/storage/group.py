"""Many small files made durable together: one sync of the file system in place of one for each file.

A tree of 20,000 files is 20,000 fsyncs, or minutes, if each is synced by itself. Here all bytes are written below a
temporary folder, the file system is synced once, each file is linked to its name, and a second sync makes the names
last. So the promise of `Storage.ensure_many` holds: bytes are on disk before a name shows them, and names are on disk
when the call returns. After a kill some names may be there, each with all its bytes, and a temporary folder.

`syncfs(2)` is Linux; `available` says whether this system has it.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ledger.storage.port import TEMPORARY


def _find_syncfs() -> Callable[[int], int] | None:
    if not sys.platform.startswith("linux"):
        return None
    return getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)


_syncfs = _find_syncfs()


def available() -> bool:
    """Whether many files can share one sync here."""
    return _syncfs is not None


def write_group(folder: Path, items: Sequence[tuple[Path, bytes]]) -> list[Path]:
    """Give each path its bytes, durably; paths that have other bytes already are returned, and left alone."""
    differing: list[Path] = []
    folder.mkdir(parents=True, exist_ok=True)
    with _staging(folder) as (staging, descriptor):
        staged: list[tuple[str, Path, bytes]] = []
        for index, (path, data) in enumerate(items):
            found = _present(path)
            if found is None:
                temporary = f"{staging}/{index}"
                with open(temporary, "xb", buffering=0) as stream:
                    _write(stream.fileno(), data)
                staged.append((temporary, path, data))
            elif found != data:
                differing.append(path)
        _sync(descriptor)
        made: set[Path] = set()
        for temporary, path, data in staged:
            if path.parent not in made:
                path.parent.mkdir(parents=True, exist_ok=True)
                made.add(path.parent)
            try:
                os.link(temporary, path)
            except FileExistsError:
                if _present(path) != data:
                    differing.append(path)
        _sync(descriptor)
    return differing


@contextmanager
def _staging(folder: Path) -> Iterator[tuple[str, int]]:
    """A temporary folder, held by a lock so that whoever clears leftovers sees that it is in use."""
    staging = folder / f"{TEMPORARY}{secrets.token_hex(8)}"
    staging.mkdir()
    descriptor = os.open(staging, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield str(staging), descriptor
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        os.close(descriptor)


def _present(path: Path) -> bytes | None:
    try:
        with open(path, "rb", buffering=0) as stream:
            return stream.readall()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _sync(descriptor: int) -> None:
    if _syncfs is None:
        raise OSError(errno.ENOSYS, "the file system cannot be synced as a whole")
    if _syncfs(descriptor) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
