"""A step writes to its own folders: anything else that it opens for writing, makes, moves or removes is refused.

A step whose result depends on a file that it left somewhere, or that overwrites what another step reads, would be
recorded as something that it is not. The check is an audit hook of the interpreter (PEP 578), so it sees what Python
does in this process: files, folders, links, through any library that goes through :mod:`os` or :func:`open`. It does not
see what a child process or a C library writes by itself. It is there against mistakes, not against malice.

Temporary files and caches are nobody's output: the folder of temporary files, the user's cache folder, ``__pycache__`` and
devices are allowed.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from marin.cache import cache_folder
from marin.errors import StepFailed

_MAKING = {"os.mkdir": 1, "os.remove": 1, "os.rmdir": 1, "os.rename": 2, "os.link": 2, "os.symlink": 2, "os.truncate": 1,
           "shutil.rmtree": 1, "os.chmod": 1}
"""Events of the audit hook, and which of their first arguments are paths that change."""
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class WritesOutside(StepFailed):
    """A step tried to write somewhere else than into its folders."""


class _Allowance(threading.local):
    folders: tuple[str, ...] | None = None
    address: str = ""


_here = _Allowance()
_installed = False


@contextmanager
def confined(address: str, folders: Sequence[str | Path]) -> Iterator[None]:
    """While entered, this thread may write below ``folders`` only.

    Raises:
        StepFailed: it tried to write elsewhere; the file was not opened.
    """
    _install()
    caches = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    allowed = [*folders, Path(tempfile.gettempdir()), cache_folder(), caches]
    _here.folders, _here.address = tuple(os.path.realpath(folder) for folder in allowed), address
    try:
        yield
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


def _check(path: Any) -> None:
    folders, _here.folders = _here.folders, None  # what is done here is not the step's doing
    try:
        if not isinstance(path, str | bytes | os.PathLike):
            return  # a descriptor: it was opened before
        shown = os.path.realpath(os.fsdecode(path))
        if shown.startswith("/dev/") or "__pycache__" in shown:
            return
        if not any(shown == folder or shown.startswith(folder + os.sep) for folder in folders or ()):
            raise WritesOutside("the step writes outside its output", where=f"step {_here.address}: {shown}",
                                expected="files below context.out or context.scratch", found="another place",
                                cure="write below context.out: that is what the step is recorded to have made")
    finally:
        _here.folders = folders
