"""Where tests write: in memory, where this machine has room, for they wait for a disk longer than they compute; and
folders for caches and state that end with the session.

Nothing here loses power, so what fsync means is not lost with it: what a killed process left behind is there. Tests of
what only a disk has, or of rules that know /dev/shm, ask for ``on_disk``.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sessions import new_cache

MEMORY = Path("/dev/shm")
ROOT = "PYTEST_DEBUG_TEMPROOT"
"""Pytest makes its temporary folders below this one; processes that it starts are told by the first."""
NEEDED_BYTES = 4 << 30
"""Free in both senses: what the file system may hold, and what the machine has. Sessions were seen to use a third."""


def in_memory() -> bool:
    """Whether there is room, in a place where programs can be executed."""
    try:
        place = os.statvfs(MEMORY)
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return False
    available = next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")), 0)
    refused = place.f_flag & (os.ST_NOEXEC | os.ST_RDONLY)
    free = min(place.f_bavail * place.f_frsize, available // 2)
    return not refused and free >= NEEDED_BYTES and os.access(MEMORY, os.W_OK)


def use_memory() -> None:
    """For this session, unless somebody said where."""
    if ROOT not in os.environ and "TMPDIR" not in os.environ and in_memory():
        os.environ[ROOT] = str(MEMORY)


def use_own_cache() -> None:
    """A cache folder of this session's own, unless somebody named one: views are kept by the place of a log, and the next
    session writes another log in the same place."""
    if "MARIN_CACHE" not in os.environ:
        folder = tempfile.mkdtemp(prefix="marin-test-cache-", dir=os.environ.get(ROOT))
        os.environ["MARIN_CACHE"] = str(new_cache(Path(folder).resolve() / "cache"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)


def use_own_state() -> None:
    """A state folder of this session's own, never the user's: it says where logs live, and the next session makes other logs of
    the same names and keys. Each process has its own in it (forked.py beside this one)."""
    folder = tempfile.mkdtemp(prefix="marin-test-state-", dir=os.environ.get(ROOT))
    os.environ["XDG_STATE_HOME"] = folder
    atexit.register(shutil.rmtree, folder, ignore_errors=True)


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """A folder of the test's own where the system has its temporary files."""
    folder = Path(tempfile.mkdtemp(prefix="marin-test-")).resolve()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
