"""A file on its way into the store: linked or held while it is hashed, noticed when it changes meanwhile."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from ledger.errors import Conflict, NotFound
from ledger.storage.failure import storage_failed


def state_of(stream: BinaryIO) -> tuple[int, ...]:
    """What the system says of an open file; another answer later means that somebody wrote to it."""
    status = os.fstat(stream.fileno())
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def changed(path: Path) -> Conflict:
    """The error for a file that changed while it was hashed."""
    return Conflict(
        "a file changed while it was being put",
        where=str(path),
        cure="put it again once nothing writes to it",
    )


def try_link(path: Path, staged: Path) -> bool:
    """Give a file a second name; False where the file system cannot."""
    try:
        os.link(path, staged, follow_symlinks=True)
    except OSError as error:
        if error.errno in (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.EACCES):
            return False
        raise
    return True


@contextmanager
def held(path: Path) -> Iterator[BinaryIO]:
    """Open for reading, under the lock that keeps clearing of leftovers away."""
    with open(path, "rb") as stream:
        with suppress(BlockingIOError):
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield stream


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """What the system refuses while a file is put, as one of the ledger's errors."""
    try:
        yield
    except (FileNotFoundError, IsADirectoryError) as error:
        raise NotFound(
            "file to put", where=str(path), expected="a regular file", cure="check the path"
        ) from error
    except OSError as error:
        where = f"{path} ({error.filename})" if error.filename and error.filename != str(path) else str(path)
        raise storage_failed("could not put a file", where, error) from error
