"""A file on its way into the store: linked or held while it is hashed, noticed when it changes meanwhile."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from ledger.errors import Conflict, NotFound
from ledger.storage.failure import DISK_FULL, storage_failed
from ledger.storage.port import TEMPORARY
from ledger.store.blobs.hashing import Hashed, hash_file
from ledger.store.blobs.reflink import clone

READ_ONLY: Final = 0o444


@contextmanager
def stage_file(path: Path, folder: Path, *, link: bool, plain: bool) -> Iterator[tuple[Path, Hashed]]:
    """A private file in ``folder`` with the bytes of ``path`` (or, for ``link``, sharing them), and what they hash to.

    Raises:
        Conflict: another process wrote to the file meanwhile.
    """
    folder.mkdir(parents=True, exist_ok=True)
    private = folder / f"{TEMPORARY}{secrets.token_hex(8)}"
    try:
        with open(path, "rb") as source:
            before = state_of(source)
            if link and _try_link(path, private):
                with _held(private) as stream:
                    hashed = hash_file(stream, plain=plain)
                    os.fchmod(stream.fileno(), READ_ONLY)
                    _check_unchanged(path, source, before)
                    yield private, hashed
                return
            with open(private, "x+b") as sink:
                fcntl.flock(sink, fcntl.LOCK_EX)
                if clone(source, sink):
                    hashed = hash_file(sink, plain=plain)
                else:
                    hashed = hash_file(source, into=sink, plain=plain)
                sink.flush()
                os.fchmod(sink.fileno(), READ_ONLY)
                _check_unchanged(path, source, before)
                yield private, hashed
    finally:
        with suppress(FileNotFoundError):
            os.unlink(private)


def _check_unchanged(path: Path, source: BinaryIO, before: tuple[int, ...]) -> None:
    if state_of(source) != before:
        raise changed(path)


def state_of(stream: BinaryIO) -> tuple[int, ...]:
    """What the system says of an open file; another answer later means that another process wrote to it."""
    status = os.fstat(stream.fileno())
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def changed(path: Path) -> Conflict:
    """The error for a file that changed while it was hashed."""
    return Conflict(
        "a file changed while it was being put", where=str(path), cure="put it again once nothing writes to it"
    )


def _try_link(path: Path, staged: Path) -> bool:
    """Give a file a second name; False where the file system cannot."""
    try:
        os.link(path, staged, follow_symlinks=True)
    except OSError as error:
        if error.errno in (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.EACCES):
            return False
        raise
    return True


@contextmanager
def _held(path: Path) -> Iterator[BinaryIO]:
    """Open for reading, under the lock that keeps clearing of leftovers away."""
    with open(path, "rb") as stream:
        with suppress(BlockingIOError):
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield stream


@contextmanager
def explained(path: Path, into: str) -> Iterator[None]:
    """What the system refuses while a file is put into the store at ``into``, as one of the ledger's errors.

    Raises:
        NotFound: there is no such file.
    """
    try:
        yield
    except (FileNotFoundError, IsADirectoryError) as error:
        raise NotFound("file to put", where=str(path), expected="a regular file", cure="check the path") from error
    except OSError as error:
        where = f"{path} ({error.filename})" if error.filename and error.filename != str(path) else str(path)
        where = f"the store in {into}, for {path}" if error.errno in DISK_FULL else where
        raise storage_failed("could not put a file", where, error) from error
