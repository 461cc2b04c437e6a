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

_CHUNK = 1 << 20


def _find_syncfs() -> Callable[[int], int] | None:
    if not sys.platform.startswith("linux"):
        return None
    return getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)


_syncfs = _find_syncfs()


def available() -> bool:
    """Whether many files can share one sync here."""
    return _syncfs is not None


def write_group(folder: Path, items: Sequence[tuple[str, bytes]]) -> list[str]:
    """Give each path its bytes, durably; paths that have other bytes already are returned, and left alone."""
    differing: list[str] = []
    folder.mkdir(parents=True, exist_ok=True)
    with _staging(folder) as (staging, descriptor):
        staged: list[tuple[str, str, bytes]] = []
        for index, (path, data) in enumerate(items):
            found = _present(path)
            if found is None:
                temporary = f"{staging}/{index}"
                _write(temporary, data)
                staged.append((temporary, path, data))
            elif found != data:
                differing.append(path)
        _sync(descriptor)
        made: set[str] = set()
        for temporary, path, data in staged:
            parent = path.rpartition("/")[0]
            if parent not in made:
                os.makedirs(parent, exist_ok=True)
                made.add(parent)
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


# Plain descriptors below: for a file of a kilobyte a stream object costs more than the file.


def _present(path: str) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        pieces = []
        while piece := os.read(descriptor, _CHUNK):
            pieces.append(piece)
        return b"".join(pieces)
    finally:
        os.close(descriptor)


def _write(path: str, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
    finally:
        os.close(descriptor)


def _sync(descriptor: int) -> None:
    if _syncfs is None:
        raise OSError(errno.ENOSYS, "the file system cannot be synced as a whole")
    if _syncfs(descriptor) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
