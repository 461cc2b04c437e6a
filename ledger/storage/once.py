"""A storage of which nothing is fetched twice: for one reading of a root that lies far away, by several workers.

What a name says by digest never changes, so it is asked for once, by anyone who needs it first, and read from a private
folder after that. All other names may change, and are asked for each time. Nothing is believed for having been kept:
anyone who reads verifies it, as if it had just come.
"""

from __future__ import annotations

import hashlib
import io
import shutil
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from ledger.storage.port import Detail, Storage
from ledger.storage.readonly import ReadOnly

BUDGET: Final = 4 << 30
"""Bytes that are kept; what was used longest ago is let go first, and asked for again where it is needed."""
_LOCKS: Final = 64
_LEAST: Final = 4096
"""Bytes that a file counts at least: its block."""
_SPARE: Final = 1 << 30
"""Bytes of the disk that are left to others."""


class Once(ReadOnly):
    """``storage`` with what was read of it kept in ``folder``, an empty one of the caller's. Safe in several threads.

    Args:
        settled: beginnings of names whose bytes never change.
        budget: bytes that are kept.
    """

    def __init__(self, storage: Storage, folder: Path, settled: tuple[str, ...], budget: int = BUDGET) -> None:
        self.address = storage.describe()
        self._storage, self._folder, self._settled, self._budget = storage, folder, settled, budget
        self._sizes: dict[str, int] = {}
        self._cached: OrderedDict[Path, int] = OrderedDict()
        self._total = 0
        self._book = threading.Lock()
        self._turns = [threading.Lock() for _ in range(_LOCKS)]

    def read(self, name: str) -> bytes:
        return self._once(name, "", lambda: self._storage.read(name))

    def read_range(self, name: str, start: int, length: int) -> bytes:
        return self._once(name, f"{start}+{length}", lambda: self._storage.read_range(name, start, length))

    def open(self, name: str) -> BinaryIO:
        return io.BytesIO(self.read(name))

    def size(self, name: str) -> int:
        if not name.startswith(self._settled):
            return self._storage.size(name)
        with self._turn(name):
            if name not in self._sizes:
                self._sizes[name] = self._storage.size(name)
            return self._sizes[name]

    def exists(self, name: str) -> bool:
        return name in self._sizes or self._storage.exists(name)

    def list(self, prefix: str = "") -> Iterator[str]:
        return self._storage.list(prefix)

    def details(self, prefix: str = "") -> Iterator[Detail]:
        return self._storage.details(prefix)

    def _once(self, name: str, part: str, fetch: Callable[[], bytes]) -> bytes:
        if not name.startswith(self._settled):
            return fetch()
        path = self._folder / hashlib.sha256(f"{name}\n{part}".encode()).hexdigest()
        with self._turn(name):  # a second worker that asks for it waits for the first
            if (data := self._had(path)) is not None:
                return data
            data = fetch()
            if not part:
                self._sizes[name] = len(data)
            with suppress(OSError):  # a full disk: what is not kept is asked for again
                self._keep(path, data)
            return data

    def _had(self, path: Path) -> bytes | None:
        with self._book:
            if path not in self._cached:
                return None
            self._cached.move_to_end(path)
        try:
            return path.read_bytes()
        except FileNotFoundError:  # let go meanwhile
            return None

    def _keep(self, path: Path, data: bytes) -> None:
        size = max(len(data), _LEAST)
        with self._book:  # the room is made before it is used, so that all writers together stay within the budget
            if size > self._budget or shutil.disk_usage(self._folder).free < size + _SPARE:
                return
            while self._total + size > self._budget:
                if not self._cached:
                    return  # others write into all that is left
                oldest, gone = self._cached.popitem(last=False)
                self._total -= gone
                oldest.unlink(missing_ok=True)
            self._total += size
        try:
            path.write_bytes(data)
        except OSError:
            path.unlink(missing_ok=True)
            with self._book:
                self._total -= size
            raise
        with self._book:
            self._cached[path] = size

    def _turn(self, name: str) -> threading.Lock:
        return self._turns[hash(name) % _LOCKS]
