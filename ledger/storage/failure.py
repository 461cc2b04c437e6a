"""What the operating system says, as one of the ledger's errors, with what to do about it."""

from __future__ import annotations

import errno
from typing import Final

from ledger.errors import StorageFailed

_CURES: Final = {
    errno.ENOSPC: "the disk is full: free some space and repeat; nothing that was there is lost",
    errno.EDQUOT: "the quota is used up: free some space and repeat; nothing that was there is lost",
    errno.EFBIG: "the file is larger than this system allows: raise the limit, then repeat",
    errno.EACCES: "give this user the rights, or name another place",
    errno.EPERM: "give this user the rights, or name another place",
    errno.EROFS: "the file system is mounted read-only: name another place",
    errno.EMFILE: "too many files are open: raise the limit (ulimit -n), then repeat",
}

DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Numbers of the errors that say so. Only a writer is told: of two files that one call names, the one that is
written is meant."""


def storage_failed(what: str, where: str, error: OSError) -> StorageFailed:
    """The error for a call that the operating system refused."""
    cure = _CURES.get(error.errno or 0, "check the disk, then repeat")
    return StorageFailed(what, where=where, found=error.strerror or str(error), cure=cure)
