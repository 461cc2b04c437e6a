"""Storage in memory: what most tests of the log and the store write to."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ledger.errors import AlreadyExists, Conflict, Locked, NotFound, Refused, StorageFailed
from ledger.storage.port import Detail, Storage, check_name, check_prefix


class MemoryStorage:
    """A dictionary of names, complete enough to stand for a disk. Safe for threads."""

    def __init__(self, files: dict[str, bytes] | None = None, *, readonly: bool = False) -> None:
        self.files: dict[str, bytes] = dict(files or {})
        self.times: dict[str, float] = {}
        self._readonly = readonly
        self._mutex = threading.RLock()
        self._holders: dict[str, str] = {}

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
        with self.change(name, [(name, data)]):
            if name in self.files:
                raise AlreadyExists("the name is taken", where=name)

    def ensure(self, name: str, data: bytes) -> None:
        with self.change(name, [(name, data)]):
            self._check_same(name, data)

    def ensure_many(self, items: Iterable[tuple[str, bytes]]) -> None:
        pending = list(items)
        if not pending:
            return
        half = pending[: len(pending) // 2]
        with self.change(pending[0][0], pending, torn=half):
            for name, data in pending:
                self._check_same(check_name(name), data)

    def replace(self, name: str, data: bytes) -> None:
        with self.change(name, [(name, data)]):
            pass

    def write_at(self, name: str, offset: int, data: bytes) -> None:
        present = self.files.get(check_name(name), b"")
        whole = present[:offset] + data + present[offset + len(data) :]
        half = len(data) // 2
        torn = present[:offset] + data[:half] + present[offset + half :]
        with self.change(name, [(name, whole)], torn=[(name, torn)]):
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
        with self.change(name, [(to, data)]) as effective:
            if effective:
                self.files.pop(name, None)

    def remove(self, *names: str) -> None:
        with self.change(" ".join(names), []) as effective:
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
    def change(
        self, name: str, items: Sequence[tuple[str, bytes]], *, torn: Sequence[tuple[str, bytes]] = ()
    ) -> Iterator[bool]:
        """One write: let the caller check, then apply it. ``torn``: what there would be if the process died within; the value:
        whether it takes place."""
        self._check_writable()
        with self._mutex:
            for item, _ in items:
                check_name(item)
            yield True
            self.files.update(items)
            self.times.update((item, time.time()) for item, _ in items)
