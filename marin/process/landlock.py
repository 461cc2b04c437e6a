"""Landlock (landlock(7), Linux 5.13 and later): the kernel refuses a thread, and whatever it starts, to write or to
read elsewhere.

No rights are needed, nothing is left behind, and there is no way back: it is for a process that does one thing. It does
not cover what a path says without being opened (names, sizes, times, modes), nor changing those. Three system calls,
whose numbers are the same on all architectures that Python's wheels are for; the layout of their arguments is that of
linux/landlock.h.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable
from functools import cache

from marin.errors import MarinError

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION, _PATH_BENEATH, _NO_NEW_PRIVILEGES = 1, 1, 38

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REFER, _TRUNCATE, _IOCTL = 1 << 13, 1 << 14, 1 << 15
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL
"""The rights that a rule for a single file may give."""
_TCP = 1 << 0 | 1 << 1
"""To bind and to connect, from version 4 on."""
_SCOPES = 1 << 0 | 1 << 1
"""Abstract sockets and signals of processes outside, from version 6 on."""
_MAKE_AND_REMOVE = sum(1 << bit for bit in range(4, 13))
"""Folders and files removed; devices, folders, files, sockets, pipes and links made."""
SINCE = {_REFER: 2, _TRUNCATE: 3, _IOCTL: 5}
"""Rights by the version of the interface that brought them: links and moves between folders, cutting a file short, and
commands to devices."""
NETWORK_SINCE, SCOPES_SINCE = 4, 6


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


@cache
def version() -> int:
    """The version of the kernel's Landlock; 0 where there is none, or where a container keeps it away."""
    if sys.platform != "linux":
        return 0
    return max(0, int(_libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION))))


def write_only_below(folders: Iterable[str]) -> bool:
    """From here on this thread, the threads that it makes and the processes that they start write below ``folders``
    only. Those that do not exist stay closed. False where the kernel has no Landlock: then nothing has changed.

    Raises:
        MarinError: the kernel has it and refuses to.
    """
    if not version():
        return False
    rights = _known(_WRITE_FILE | _MAKE_AND_REMOVE | _REFER | _TRUNCATE)
    _restrict(_Ruleset(rights, 0, 0), [(folder, rights) for folder in folders if os.path.isdir(folder)])
    return True


def reach_only(*, read: Iterable[str], write: Iterable[str], tcp: bool) -> bool:
    """From here on this thread, the threads that it makes and the processes that they start open for reading (and
    executing) what is at or below ``read``, for writing too what is at or below ``write``, and nothing else. Without
    ``tcp`` they make no TCP connection and accept none (version 4). They send no signal to, and reach no abstract
    socket of, processes outside (version 6). Paths that do not exist stay closed.

    False where the kernel has no Landlock: then nothing has changed.

    Raises:
        MarinError: the kernel has it and refuses to.
    """
    if not version():
        return False
    everything = _known(_READ | _WRITE_FILE | _MAKE_AND_REMOVE | _REFER | _TRUNCATE | _IOCTL)
    handled = _Ruleset(
        everything, _TCP if version() >= NETWORK_SINCE and not tcp else 0, _SCOPES if version() >= SCOPES_SINCE else 0
    )
    _restrict(handled, [*((path, _READ) for path in read), *((path, everything) for path in write)])
    return True


def _known(rights: int) -> int:
    return rights & ~sum(right for right, since in SINCE.items() if version() < since)


def _restrict(handled: _Ruleset, rules: Iterable[tuple[str, int]]) -> None:
    # Kernels refuse fields that they do not know, so the structure is as long as their version has it.
    fields = 3 if version() >= SCOPES_SINCE else 2 if version() >= NETWORK_SINCE else 1
    ruleset = _checked(
        _libc().syscall(_CREATE_RULESET, ctypes.byref(handled), ctypes.c_size_t(8 * fields), ctypes.c_uint32(0))
    )
    try:
        for path, rights in rules:
            if os.path.exists(path):
                _allow(ruleset, path, rights if os.path.isdir(path) else rights & _FILE)
        _checked(_libc().prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
        _checked(_libc().syscall(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0)))
    finally:
        os.close(ruleset)


def _allow(ruleset: int, folder: str, rights: int) -> None:
    descriptor = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = _PathBeneath(rights, descriptor)
        _checked(
            _libc().syscall(
                _ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_PATH_BENEATH), ctypes.byref(rule), ctypes.c_uint32(0)
            )
        )
    finally:
        os.close(descriptor)


def _checked(answer: int) -> int:
    if answer < 0:
        raise MarinError(
            "the kernel refuses to confine a step",
            where="landlock",
            expected=f"version {version()} at work",
            found=os.strerror(ctypes.get_errno()),
            cure="tell what kernel and container this is",
        )
    return answer


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
