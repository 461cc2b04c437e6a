"""Many small files made durable together: one sync of the file system in place of one for each file.

A tree of 20,000 files is 20,000 fsyncs, or minutes, if each is synced by itself. Here all bytes are written below a
temporary folder, the file system is synced once, each file is renamed to its name, and a second sync makes the names
last. So the promise of ``Storage.ensure_many`` holds: bytes are on disk before a name shows them, and names are on disk
when the call returns. After a kill some names may be there, each with all its bytes, and a temporary folder.

Several threads share the work, since most of it is the kernel's. ``syncfs(2)`` is Linux; ``available`` says whether this
system has it.
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
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from ledger.storage.port import TEMPORARY

_CHUNK = 1 << 20
_THREADS: Final = max(1, min(8, os.cpu_count() or 1))
_AT_FDCWD: Final = -100
_NOREPLACE: Final = 1  # RENAME_NOREPLACE of renameat2(2)
_NO_RENAME: Final = (errno.ENOSYS, errno.EINVAL)


def _of_linux(name: str) -> Callable[..., int] | None:
    if not sys.platform.startswith("linux"):
        return None
    return getattr(ctypes.CDLL(None, use_errno=True), name, None)


_syncfs = _of_linux("syncfs")
_renameat2 = _of_linux("renameat2")


def available() -> bool:
    """Whether many files can share one sync here."""
    return _syncfs is not None


def sync_all(folder: Path) -> None:
    """Make everything durable that was written to the file system of a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def write_group(folder: Path, items: Sequence[tuple[str, bytes]]) -> list[str]:
    """Give each path its bytes, durably; paths that have other bytes already are returned, and left alone."""
    folder.mkdir(parents=True, exist_ok=True)
    with staging(folder) as (made, descriptor), ThreadPoolExecutor(_THREADS) as pool:
        slices = [items[start::_THREADS] for start in range(_THREADS)]
        written = list(pool.map(partial(_write_slice, made), range(_THREADS), slices))
        sync(descriptor)
        for parent in {path.rpartition("/")[0] for staged, _ in written for _, path, _ in staged}:
            os.makedirs(parent, exist_ok=True)
        named = list(pool.map(_name_slice, [staged for staged, _ in written]))
        sync(descriptor)
    return [path for _, differing in written for path in differing] + [path for paths in named for path in paths]


def _write_slice(
    staging: str, number: int, items: Sequence[tuple[str, bytes]]
) -> tuple[list[tuple[str, str, bytes]], list[str]]:
    """Write what is not there yet below a folder of this thread alone; and the paths that have other bytes."""
    folder = f"{staging}/{number}"
    os.mkdir(folder)
    staged: list[tuple[str, str, bytes]] = []
    differing: list[str] = []
    for index, (path, data) in enumerate(items):
        found = _present(path)
        if found is None:
            temporary = f"{folder}/{index}"
            _write_new(temporary, data)
            staged.append((temporary, path, data))
        elif found != data:
            differing.append(path)
    return staged, differing


def _name_slice(staged: Sequence[tuple[str, str, bytes]]) -> list[str]:
    """Give written files their names; the paths that another writer took meanwhile, with other bytes."""
    differing = []
    for temporary, path, data in staged:
        try:
            _name(temporary, path)
        except FileExistsError:
            if _present(path) != data:
                differing.append(path)
    return differing


@contextmanager
def staging(folder: Path) -> Iterator[tuple[str, int]]:
    """A temporary folder, held by a lock so that anyone who clears leftovers sees that it is in use."""
    made = folder / f"{TEMPORARY}{secrets.token_hex(8)}"
    made.mkdir()
    descriptor = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield str(made), descriptor
    finally:
        shutil.rmtree(made, ignore_errors=True)
        os.close(descriptor)


def _name(temporary: str, path: str) -> None:
    """Rename to a name that is free, FileExistsError where it is not; by a link where the system cannot."""
    if _renameat2 is not None:
        done = _renameat2(_AT_FDCWD, os.fsencode(temporary), _AT_FDCWD, os.fsencode(path), _NOREPLACE)
        if done == 0:
            return
        number = ctypes.get_errno()
        if number not in _NO_RENAME:
            raise OSError(number, os.strerror(number), path)
    os.link(temporary, path)


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


def _write_new(path: str, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
    finally:
        os.close(descriptor)


def sync(descriptor: int) -> None:
    """Make everything durable that was written to the file system of an open folder."""
    if _syncfs is None:
        raise OSError(errno.ENOSYS, "the file system cannot be synced as a whole")
    if _syncfs(descriptor) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
