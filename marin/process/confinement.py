"""A process that reads what strangers wrote shuts itself in before it does: files, network, memory, time.

Four things of the Linux kernel, none of which needs rights, and none of which can be undone by the process or by what
it starts: Landlock for files (:mod:`marin.process.landlock`), a user and network namespace with nothing but a loopback
interface (namespaces(7)), Landlock's rules for TCP where namespaces are not allowed, and resource limits
(setrlimit(2)). What a kernel or a container keeps away is said, never passed over in silence.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import signal
import socket
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from marin.process import landlock

_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
_PARENT_DEATH_SIGNAL = 1
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 1
_SYSTEM = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/opt",
    "/sys",
    "/proc",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/timezone",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/group",
    "/etc/nsswitch.conf",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/etc/fonts",
    "/etc/mime.types",
    "/etc/ssl/openssl.cnf",
    "/etc/alternatives",
    "/etc/gitconfig",
    "/etc/OpenCL",
)
"""Programs and libraries of the system, and those of its settings that they read. Not /etc, /var or /home."""
_ONLINE = ("/etc/resolv.conf", "/etc/ssl", "/etc/ca-certificates", "/etc/pki", "/run/systemd/resolve")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/dri", "/dev/kfd")


VARIABLE = "MARIN_SEALED"
"""In the environment of a process that was started confined: what it was told, as JSON."""


@dataclass(frozen=True)
class Limits:
    """``memory``: bytes of data of each process; ``seconds``: of the whole, and of each core's work; ``file``: bytes of
    each file that is written."""

    memory: int
    seconds: int
    file: int = 64 << 30


@dataclass(frozen=True)
class Confined:
    """What holds from now on, in words, and what this kernel or container keeps away."""

    holds: tuple[str, ...]
    lacks: tuple[str, ...]

    def lines(self) -> tuple[str, ...]:
        """For a report: one line each."""
        said = (f"confined: {', '.join(self.holds)}",) if self.holds else ()
        return (*said, *(f"NOT CONFINED: {line}" for line in self.lacks))


def physical_memory() -> int:
    """Bytes of memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def confine(*, read: Sequence[str], write: Sequence[str], network: bool, limits: Limits) -> Confined:
    """Shut this process in, for good. Call it before any thread is started.

    ``read`` and ``write``: paths beside the interpreter, its packages and the system's libraries. ``network``: leave it
    open.

    Raises:
        MarinError: the kernel has Landlock and refuses to use it.
    """
    holds, lacks = [], []
    for kind, bound in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_DATA, limits.memory),
        (resource.RLIMIT_FSIZE, limits.file),
        (resource.RLIMIT_CPU, limits.seconds * (os.cpu_count() or 1)),
    ):
        _limit(kind, bound)
    holds.append(f"at most {limits.memory / 2**30:.1f} GiB a process and {limits.seconds / 3600:g} h")
    separate = not network and _leave_network()
    devices = [*_DEVICES, *map(str, Path("/dev").glob("nvidia*"))]
    programs = [*sys.path, sys.prefix, sys.base_prefix, sys.exec_prefix]
    own = landlock.reach_only(
        read=[*_SYSTEM, *(_ONLINE if network else ()), *filter(None, programs), *read],
        write=[*devices, *write],
        tcp=network or separate,  # in a network of its own TCP reaches this process and its children alone
    )
    if own:
        holds.insert(0, f"files (Landlock {landlock.version()})")
    else:
        lacks.append("this kernel has no Landlock: every file that you may read can be read")
    if network:
        lacks.append("the network is open, as asked")
    elif separate:
        holds.insert(1, "no network")
    elif own and landlock.version() >= landlock.NETWORK_SINCE:
        holds.insert(1, "no TCP")
        lacks.append("this system allows no network namespace: UDP is open")
    else:
        lacks.append("this system allows no network namespace: the network is open")
    _held.append(Confined(tuple(holds), tuple(lacks)))
    return _held[-1]


def end_with(parent: int) -> None:
    """From now on this process is killed when its parent is gone, however that ended (prctl(2), PR_SET_PDEATHSIG). Call
    it after :func:`confine`: a change of the user namespace may take it back.

    Args:
        parent: the process that has to live; it may be gone already.

    Raises:
        SystemExit: it is gone.
    """
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:  # it went before the kernel was asked
        sys.exit(1)


def current_confinement() -> Confined:
    """What holds of this process since :func:`confine`; what it lacks, where that was never called."""
    return _held[-1] if _held else Confined((), ("this process was not confined",))


_held: list[Confined] = []


def _limit(kind: int, bound: int) -> None:
    _, hard = resource.getrlimit(kind)
    bound = bound if hard == resource.RLIM_INFINITY else min(bound, hard)
    resource.setrlimit(kind, (bound, bound))


def _leave_network() -> bool:
    """Into a user and a network namespace of this process's own, as the same user; False where that is not allowed."""
    user, group = os.getuid(), os.getgid()
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW_USER | _NEW_NETWORK):
        return False
    try:
        Path("/proc/self/setgroups").write_text("deny", "ascii")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1", "ascii")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1", "ascii")
        _raise_loopback()
    except OSError:
        return True  # no network is left; work that needs several processes will say that it cannot begin
    return True


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH22x", b"lo", 0)
        (flags,) = struct.unpack_from("H", fcntl.ioctl(any_socket, _GET_FLAGS, request), 16)
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH22x", b"lo", flags | _UP))
