"""Storage in memory, with faults on demand: the stage on which the append path is tried.

``fail_at(n, fault)`` makes the n-th write from now go wrong in one of the ways in which real disks do. Faults
are data, so that a test can walk the table of every write times every fault. Reads never fail.
"""

from __future__ import annotations

import enum
import io
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ledger.errors import AlreadyExists, Conflict, Locked, NotFound, Refused, StorageFailed
from ledger.storage.port import Detail, Storage, check_name, check_prefix


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


class MemoryStorage:
    """A dictionary of names, complete enough to stand for a disk. Safe for threads."""

    def __init__(self, files: dict[str, bytes] | None = None, *, readonly: bool = False) -> None:
        self.files: dict[str, bytes] = dict(files or {})
        self.times: dict[str, float] = {}
        self.writes = 0
        self._readonly = readonly
        self._faults: dict[int, Fault] = {}
        self._mutex = threading.RLock()
        self._holders: dict[str, str] = {}

    def fail_at(self, write: int, fault: Fault) -> None:
        """Let the ``write``-th write from now (0 is the next) go wrong."""
        self._faults[self.writes + write] = fault

    def forget_faults(self) -> None:
        """From now on every call does what it should."""
        self._faults.clear()

    @property
    def writable(self) -> bool:
        return not self._readonly

    def guard(self, names: Sequence[str]) -> Storage:
        return self

    def describe(self) -> str:
        return "memory"

    def local_path(self, name: str) -> Path | None:
        check_name(name)
        return None

    def read(self, name: str) -> bytes:
        with self._mutex:
            try:
                return self.files[check_name(name)]
            except KeyError:
                raise NotFound("no such file", where=name) from None

    def read_range(self, name: str, start: int, length: int) -> bytes:
        return self.read(name)[start : start + length]

    def open(self, name: str) -> BinaryIO:
        return io.BytesIO(self.read(name))

    def size(self, name: str) -> int:
        return len(self.read(name))

    def exists(self, name: str) -> bool:
        return check_name(name) in self.files

    def list(self, prefix: str = "") -> Iterator[str]:
        check_prefix(prefix)
        with self._mutex:
            names = sorted(name for name in self.files if name.startswith(prefix))
        yield from names

    def details(self, prefix: str = "") -> Iterator[Detail]:
        for name in self.list(prefix):
            if (data := self.files.get(name)) is not None:
                yield Detail(name, len(data), self.times.get(name, 0.0))

    def create(self, name: str, data: bytes) -> None:
        with self._write(name, [(name, data)]):
            if name in self.files:
                raise AlreadyExists("the name is taken", where=name)

    def ensure(self, name: str, data: bytes) -> None:
        with self._write(name, [(name, data)]):
            self._check_same(name, data)

    def ensure_many(self, items: Iterable[tuple[str, bytes]]) -> None:
        pending = list(items)
        if not pending:
            return
        half = pending[: len(pending) // 2]
        with self._write(pending[0][0], pending, torn=half):
            for name, data in pending:
                self._check_same(check_name(name), data)

    def replace(self, name: str, data: bytes) -> None:
        with self._write(name, [(name, data)]):
            pass

    def write_at(self, name: str, offset: int, data: bytes) -> None:
        present = self.files.get(check_name(name), b"")
        whole = present[:offset] + data + present[offset + len(data) :]
        half = len(data) // 2
        torn = present[:offset] + data[:half] + present[offset + half :]
        with self._write(name, [(name, whole)], torn=[(name, torn)]):
            if len(present) < offset:
                raise Conflict(
                    "a journal is shorter than its writer knows",
                    where=name,
                    expected=f"at least {offset} bytes",
                    found=f"{len(present)}",
                    cure="open the log again",
                )

    def adopt(self, name: str, path: Path, *, link: bool = False) -> None:
        del link  # memory shares nothing with a file
        try:
            data = path.read_bytes()
        except OSError as error:
            raise StorageFailed("could not read a local file", where=str(path), found=str(error)) from error
        self.ensure(name, data)

    def arrived(self, name: str, content: bytes | Path) -> bool:
        return False

    def rename(self, name: str, to: str) -> None:
        data = self.read(name)
        with self._write(name, [(to, data)]) as effective:
            if effective:
                self.files.pop(name, None)

    def remove(self, *names: str) -> None:
        with self._write(" ".join(names), []) as effective:
            if effective:
                for name in names:
                    self.files.pop(check_name(name), None)

    @contextmanager
    def lock(self, name: str, holder: str, *, wait: float = 0.0) -> Iterator[None]:
        del wait  # the holder is a thread of this process: a test that waits for it waits for itself
        self._check_writable()
        check_name(name)
        with self._mutex:
            if name in self._holders:
                raise Locked(
                    "another writer is at work",
                    where=name,
                    found=f"held by {self._holders[name]}",
                    cure="wait for it to end",
                )
            self._holders[name] = holder
        try:
            yield
        finally:
            del self._holders[name]

    def _check_writable(self) -> None:
        if self._readonly:
            raise Refused("the storage is open for reading only", where=self.describe())

    def _check_same(self, name: str, data: bytes) -> None:
        if self.files.get(name, data) != data:
            raise Conflict("other bytes are there already", where=name)

    @contextmanager
    def _write(
        self, name: str, items: Sequence[tuple[str, bytes]], *, torn: Sequence[tuple[str, bytes]] = ()
    ) -> Iterator[bool]:
        """One write: count it, let the caller check, then apply it as the fault table says."""
        self._check_writable()
        with self._mutex:
            fault = self._faults.get(self.writes)
            self.writes += 1
            for item, _ in items:
                check_name(item)
            yield fault in (None, Fault.PERSISTS, Fault.KILLED_AFTER)
            if fault in (None, Fault.PERSISTS, Fault.KILLED_AFTER):
                self.files.update(items)
                self.times.update((item, time.time()) for item, _ in items)
            elif fault in (Fault.TORN, Fault.KILLED_TORN):
                self.files.update(torn)
            if fault in (Fault.KILLED, Fault.KILLED_TORN, Fault.KILLED_AFTER):
                raise ProcessKilled(fault.value)
            if fault is not None:
                raise StorageFailed("injected fault", where=name, found=fault.value)
