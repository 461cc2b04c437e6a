"""Small files of the working folder, written whole or not at all.

These are the files that Git and DVC see (pointers, metrics, tables, receipts). They are views of what the ledger
says and can be written again from it, so a rename into place is enough: no reader sees half a file.
"""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

from ledger import StorageFailed


def write_whole(path: Path, data: bytes) -> None:
    """Make ``path`` hold ``data``, replacing it atomically; equal bytes are left alone.

    Raises:
        StorageFailed: the disk is full or the folder cannot be written; what was there before is still there.
    """
    temporary: str | None = None
    try:
        if path.is_file() and path.read_bytes() == data:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=".tmp-", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise StorageFailed(
            "disk full" if full else "file not written",
            where=str(path),
            found=error.strerror or str(error),
            cure="free some space and run the same command again" if full else "check the folder's permissions",
        ) from error


def _umask() -> int:
    # The mask can only be read by setting it; this process has one thread at that point, or a stable mask.
    mask = os.umask(0)
    os.umask(mask)
    return mask
