"""Small files of the working folder, written whole or not at all.

These are the files that Git and DVC see (pointers, metrics, tables, receipts). They are views of what the ledger
says and can be written again from it. A write goes to ``.tmp-<name>`` beside the file and is renamed into place, so no
reader sees half a file. The temporary name is fixed and locked while it is used: what a killed process left there is
overwritten by the next write instead of staying in a user's `git status`.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ledger import DISK_FULL, StorageFailed


def write_whole(path: Path, data: bytes) -> None:
    """Make ``path`` hold ``data``, replacing it atomically; equal bytes are left alone.

    Raises:
        StorageFailed: the disk is full or the folder cannot be written; what was there before is still there.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _temporary(path.with_name(f".tmp-{path.name}")) as (temporary, descriptor):
            if path.is_file() and path.read_bytes() == data:
                return
            with open(descriptor, "wb", closefd=False) as file:
                file.truncate()
                file.write(data)
            os.fsync(descriptor)
            os.replace(temporary, path)
    except OSError as error:
        full = error.errno in DISK_FULL
        raise StorageFailed(
            "disk full" if full else "file not written",
            where=str(path),
            found=error.strerror or str(error),
            cure="free some space and run the same command again" if full else "check the folder's permissions",
        ) from error


@contextmanager
def _temporary(path: Path) -> Iterator[tuple[Path, int]]:
    """The file ``path``, open and locked; it is gone afterwards, renamed or removed."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if not _is(path, descriptor):
                continue  # anyone who held the lock renamed it: this is another file by now
            try:
                yield path, descriptor
            finally:
                if _is(path, descriptor):
                    path.unlink()
            return
        finally:
            os.close(descriptor)


def _is(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
