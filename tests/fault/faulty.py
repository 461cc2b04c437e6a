"""Storage in memory, with faults on demand: the stage on which the append path is tried.

``fail_at(n, fault)`` makes the n-th write from now go wrong in one of the ways in which real disks do. Faults
are data, so that a test can walk the table of every write times every fault. Reads never fail.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ledger import StorageFailed
from tests.ledger.memory import MemoryStorage


class Fault(enum.Enum):
    """What happens to one write."""

    FAILS = "fails"
    """An error, and nothing was written."""
    PERSISTS = "fails but persists"
    """An error, and yet everything was written."""
    TORN = "torn"
    """An error, and a part was written, where the verb allows parts."""
    KILLED = "killed before"
    """The process ends; nothing was written."""
    KILLED_TORN = "killed within"
    """The process ends; a part was written, where the verb allows parts."""
    KILLED_AFTER = "killed after"
    """The process ends; everything was written."""


class ProcessKilled(BaseException):
    """Stands for the end of the process: not an ``Exception``, so that no handler survives it."""


class FaultyStorage(MemoryStorage):
    """Counts its writes, and lets some of them go wrong."""

    def __init__(self, *given: Any, **settings: Any) -> None:
        super().__init__(*given, **settings)
        self.writes = 0
        self._faults: dict[int, Fault] = {}

    def fail_at(self, write: int, fault: Fault) -> None:
        """Let the ``write``-th write from now (0 is the next) go wrong."""
        self._faults[self.writes + write] = fault

    def forget_faults(self) -> None:
        """From now on every call does what it should."""
        self._faults.clear()

    @contextmanager
    def change(
        self, name: str, items: Sequence[tuple[str, bytes]], *, torn: Sequence[tuple[str, bytes]] = ()
    ) -> Iterator[bool]:
        self._check_writable()
        with self._mutex:
            fault = self._faults.get(self.writes)
            self.writes += 1
            whole = fault in (None, Fault.PERSISTS, Fault.KILLED_AFTER)
            if whole:
                with super().change(name, items):
                    yield True
            else:
                yield False
                self.files.update(torn if fault in (Fault.TORN, Fault.KILLED_TORN) else ())
            if fault in (Fault.KILLED, Fault.KILLED_TORN, Fault.KILLED_AFTER):
                raise ProcessKilled(fault.value)
            if fault is not None:
                raise StorageFailed("injected fault", where=name, found=fault.value)
