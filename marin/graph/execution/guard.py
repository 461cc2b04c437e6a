"""A step writes to its own folders: anything else that it opens for writing, makes, moves or removes is refused.

A step whose result depends on a file that it left somewhere, or that overwrites what another step reads, would be
recorded as something that it is not. There are two guards, against mistakes and not against malice.

* An audit hook of the interpreter (PEP 578) sees what Python does in this process: files, folders, links, through any
  library that goes through :mod:`os` or :func:`open`. Its error names the path.
* In a process of its own the step is confined by the kernel as well (:mod:`marin.process.landlock`), with everything that
  it starts: child processes and C libraries get "permission denied". Where the kernel cannot, only the hook is there,
  and `marin doctor` says so.

A function that is called in the executor's own process is not confined by the kernel, so it may not start processes.

Temporary files and caches are nobody's output: the folder of temporary files, the user's cache folder, ``__pycache__``
and devices are allowed.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from marin.errors import StepFailed
from marin.process import landlock
from marin.process.cache import cache_folder

_MAKING = {
    "os.mkdir": 1,
    "os.remove": 1,
    "os.rmdir": 1,
    "os.rename": 2,
    "os.link": 2,
    "os.symlink": 2,
    "os.truncate": 1,
    "shutil.rmtree": 1,
    "os.chmod": 1,
}
"""Events of the audit hook, and which of their first arguments are paths that change."""
_STARTING = frozenset(
    {"subprocess.Popen", "os.system", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.spawn", "pty.spawn"}
)
"""Events of the audit hook that begin another process."""
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class WritesOutside(StepFailed):
    """A step tried to write somewhere else than into its folders."""


class _Allowance(threading.local):
    folders: tuple[str, ...] | None = None
    address: str = ""
    alone: bool = False


_here = _Allowance()
_installed = False


@contextmanager
def confined(address: str, folders: Sequence[str | Path], *, alone: bool = False) -> Iterator[None]:
    """While entered, this thread may write below ``folders`` only. ``alone``: this process has nothing else to do, so
    the kernel confines this thread too, for good.

    Raises:
        StepFailed: it tried to write elsewhere, and nothing was opened; or to start a process without being ``alone``.
    """
    _install()
    caches = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    allowed = [*folders, Path(tempfile.gettempdir()), cache_folder(), caches]
    own = tuple(os.path.realpath(folder) for folder in allowed)
    if alone:
        for cache in (caches, cache_folder()):  # what does not exist yet could not be made later
            with suppress(OSError):
                cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        landlock.write_only_below([*own, "/dev", "/proc"])
    _here.folders, _here.address, _here.alone = own, address, alone
    try:
        yield
    except OSError as error:
        if (
            error.errno in (errno.EACCES, errno.EXDEV)
            and alone
            and error.filename is not None
            and not _allowed(error.filename)
        ):
            raise _writes_outside(address, os.path.realpath(os.fsdecode(error.filename))) from error
        raise
    except subprocess.CalledProcessError as error:
        raise _process_failed(address, error) from error
    finally:
        _here.folders = None


@contextmanager
def unconfined() -> Iterator[None]:
    """For what the executor does on the step's behalf: taking an input out of the store."""
    folders, _here.folders = _here.folders, None
    try:
        yield
    finally:
        _here.folders = folders


def _install() -> None:
    global _installed
    if not _installed:
        sys.addaudithook(_hook)  # there is no way back: outside of `confined` it looks at one variable and returns
        _installed = True


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _here.folders is None:
        return
    if event == "open":
        path, mode, flags = arguments
        writing = any(letter in mode for letter in "wax+") if isinstance(mode, str) else bool((flags or 0) & _WRITING)
        if writing:
            _check(path)
    elif event in _MAKING:
        for path in arguments[: _MAKING[event]]:
            _check(path)
    elif event in _STARTING and not _here.alone:
        raise WritesOutside(
            "a step that is called in the executor's process starts another one",
            where=f"step {_here.address}",
            expected="a process of its own, where the kernel watches what such a process writes",
            found=event,
            cure="leave in_process=True out; steps of a notebook belong into a file for that",
        )


def _check(path: Any) -> None:
    folders, _here.folders = _here.folders, None  # what is done here is not the step's doing
    try:
        if not isinstance(path, str | bytes | os.PathLike):
            return  # a descriptor: it was opened before
        if not _allowed(path, folders):
            raise _writes_outside(_here.address, os.path.realpath(os.fsdecode(path)))
    finally:
        _here.folders = folders


def _allowed(path: str | bytes | os.PathLike[str] | os.PathLike[bytes], folders: Sequence[str] | None = None) -> bool:
    shown = os.path.realpath(os.fsdecode(path))
    if shown.startswith("/dev/") or "__pycache__" in shown:
        return True
    return any(shown == folder or shown.startswith(folder + os.sep) for folder in (folders or _here.folders or ()))


def _writes_outside(address: str, path: str) -> WritesOutside:
    return WritesOutside(
        "the step writes outside its output",
        where=f"step {address}: {path}",
        expected="files below context.out or context.scratch",
        found="another place",
        cure="write below context.out: that is what the step is recorded to have made",
    )


def _process_failed(address: str, error: subprocess.CalledProcessError) -> StepFailed:
    """A child process that the kernel kept from writing says so in its own words, if they were kept."""
    told = error.stderr or error.output or b""
    words = (told if isinstance(told, str) else os.fsdecode(told)).strip()
    command = error.cmd if isinstance(error.cmd, str) else " ".join(os.fsdecode(part) for part in error.cmd)
    if os.strerror(errno.EACCES).lower() in words.lower():
        return WritesOutside(
            "the step writes outside its output",
            where=f"step {address}: {command[:200]}",
            expected="files below context.out or context.scratch, from its child processes too",
            found=words.splitlines()[-1][:300],
            cure="name a path below context.out in the command",
        )
    return StepFailed(
        "a process of the step failed",
        where=f"step {address}: {command[:200]}",
        expected="exit status 0",
        found=f"{error.returncode}{': ' if words else ''}{words.splitlines()[-1][:300] if words else ''}",
        cure="see what it said above; it may write below context.out and context.scratch only",
    )
