"""Sharing a file's blocks with another file, copy on write, where the file system can (btrfs, xfs, bcachefs).

Linux ``ioctl_ficlonerange(2)``. Elsewhere, and on ext4, ``clone`` says False and nothing has happened.
"""

from __future__ import annotations

import errno
import fcntl
import sys
from typing import BinaryIO, Final

_FICLONE: Final = 0x40049409
_CANNOT: Final = frozenset(
    {errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EPERM, errno.EISDIR}
)


def clone(source: BinaryIO, target: BinaryIO) -> bool:
    """Make the empty ``target`` share all blocks of ``source``; False where that is not possible."""
    if sys.platform != "linux":
        return False
    try:
        fcntl.ioctl(target.fileno(), _FICLONE, source.fileno())
    except OSError as error:
        if error.errno in _CANNOT:
            return False
        raise
    return True
