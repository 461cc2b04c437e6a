"""Regular files only: what a root holds is opened where no link leads, and never waits for a writer.

Anyone who publishes a root chooses what lies in it: a link to ``~/.ssh/id_ed25519``, a FIFO that nobody writes to, a
device that answers for ever. So the last part of a name is opened with ``O_NOFOLLOW`` and ``O_NONBLOCK`` and has to be
a regular file, and the folders above it have to be folders. The topmost folder of a root (``log``, ``store``) may be a
link to another disk: that is how people lay out roots, and what lies behind it is held to the same rules.

Each folder is looked at once for a storage. An attacker who swaps folders while they are read is not
kept out by that: anyone who reads a stranger's root does it in a process that reaches nothing else.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

from ledger.errors import Malformed

FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""For opening what may be anything; O_NONBLOCK says nothing to a regular file."""

DEEPEST: Final = 64
"""Folders below each other; the formats of this project have six."""

_KINDS: Final = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISDIR, "a folder"),
)


class PlainFiles:
    """The regular files below one folder, by names that were checked (``ledger.storage.port.check_name``)."""

    def __init__(self, root: Path) -> None:
        self._root = f"{root}{os.sep}"
        self._folders: set[str] = set()

    def look(self, name: str) -> os.stat_result | None:
        """What the system says of a file; None where there is none.

        Raises:
            Malformed: it, or a folder above it, is a link, a device or the like.
            IsADirectoryError: a folder has the name.
        """
        try:
            self._check_folders(name)
            status = os.lstat(self._root + name)
        except (FileNotFoundError, NotADirectoryError):
            return None
        check_plain(status.st_mode, name)
        return status

    def open(self, name: str) -> int:
        """A descriptor of the file, for reading.

        Raises:
            Malformed, IsADirectoryError: as ``look``.
            OSError: what the system says.
        """
        self._check_folders(name)
        return open_plain(self._root + name, name)

    def _check_folders(self, name: str) -> None:
        folder = name.rpartition("/")[0]
        if folder in self._folders:
            return
        if folder.count("/") >= DEEPEST:
            raise too_deep(name)
        at = folder.partition("/")[0]
        while at != folder:
            at = folder[: (folder + "/").find("/", len(at) + 1)]
            if at not in self._folders:
                mode = os.lstat(self._root + at).st_mode
                if stat.S_ISREG(mode):  # nothing is below a file: missing, as the system itself says
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), at)
                if not stat.S_ISDIR(mode):
                    raise _not_plain(at, mode, "a folder, not reached through a link")
                self._folders.add(at)


def open_plain(path: str, name: str = "") -> int:
    """A descriptor of the regular file at ``path``, for reading; a link is not followed, a FIFO not waited for.

    Raises:
        Malformed: it is not a regular file.
        OSError: what the system says.
    """
    try:
        descriptor = os.open(path, FLAGS)
    except OSError:
        mode = os.lstat(path).st_mode  # a link answers ELOOP, a socket ENXIO; anything else says its own error again
        check_plain(mode, name or path)
        raise
    try:
        check_plain(os.fstat(descriptor).st_mode, name or path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def check_plain(mode: int, name: str) -> None:
    """Malformed (IsADirectoryError for a folder) unless this mode is a regular file's."""
    if stat.S_ISREG(mode):
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(name)
    raise _not_plain(name, mode, "a regular file, not reached through a link")


def too_deep(name: str) -> Malformed:
    """Folders that are nested further than any format here nests them."""
    return Malformed("folders too deep", where=f"{name[:60]}…", expected=f"at most {DEEPEST}", found="more")


def _not_plain(name: str, mode: int, expected: str) -> Malformed:
    kind = next((word for test, word in _KINDS if test(mode)), "something else")
    return Malformed(
        "not a plain file",
        where=name,
        expected=expected,
        found=kind,
        cure="nothing was opened; put the file itself there",
    )


def names_in(folder: str) -> frozenset[str]:
    """What stands in a folder; nothing where there is none."""
    try:
        return frozenset(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return frozenset()
