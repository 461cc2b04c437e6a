"""A stored tree as a folder that is read where it lies: any range of any file, and no copy of the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import BinaryIO

from ledger.store.trees.manifest import Manifest, ManifestEntry

Open = Callable[[ManifestEntry], BinaryIO]
"""A seekable stream over a file that gives out verified bytes only."""


class _Streams:
    """One for each file that was read, with the part of 8 MiB that it verified last."""

    def __init__(self, manifest: Manifest, open_file: Open) -> None:
        self.sizes = {entry.path: entry.size for entry in manifest}
        self._manifest, self._open = manifest, open_file
        self._opened: dict[str, tuple[Lock, BinaryIO]] = {}
        self._opening = Lock()

    def read(self, path: str, start: int, length: int) -> bytes:
        with self._opening:
            if path not in self._opened:
                self._opened[path] = Lock(), self._open(self._manifest.entry(path))
            lock, stream = self._opened[path]
        with lock:
            stream.seek(start)
            return stream.read(length)


@dataclass(frozen=True)
class StoredFolder:
    """A stored tree, or a folder in one, under whose names more of them are found as with a ``Path``. Any thread may read."""

    streams: _Streams = field(repr=False)
    path: str = ""

    @classmethod
    def of(cls, manifest: Manifest, open_file: Open) -> StoredFolder:
        """The whole tree."""
        return cls(_Streams(manifest, open_file))

    def __truediv__(self, name: str) -> StoredFolder:
        return StoredFolder(self.streams, self._within(name))

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rpartition("/")[2]

    @property
    def sizes(self) -> dict[str, int]:
        """How many bytes each file in it has, by its path from here."""
        start = self._within("")
        return {path.removeprefix(start): size for path, size in self.streams.sizes.items() if path.startswith(start)}

    def size(self, file: str) -> int | None:
        """Bytes of a file in it; None where there is none."""
        return self.streams.sizes.get(self._within(file))

    def read(self, file: str, start: int = 0, length: int = -1) -> bytes:
        """Bytes of a file from ``start`` on, all or ``length`` of them; fewer where it ends before.

        Raises:
            NotFound: no such file is in the tree, or its bytes are not here.
            Tampered: what was read does not match its digest.
        """
        return self.streams.read(self._within(file), start, length)

    def _within(self, name: str) -> str:
        return f"{self.path}/{name}" if self.path else name
