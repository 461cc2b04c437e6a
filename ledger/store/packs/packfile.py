"""Packfiles: thousands of small blobs in one file, for a tree of small files costs its names and not its bytes.

    store/packfiles/<64 hex>        "marin.packfile/1", the bytes of the blobs one after the other, the index, the tail
    store/packfiles.txt             the names of all packfiles, for anyone who can read a store and not list it

The index has 44 bytes for each blob, in the order of the digests: its sha256, its offset in the file (8 bytes) and its
length (4 bytes), big-endian; the tail the number of blobs (8 bytes) and "marin.packfile/1" again. The sha256 of index
and tail is the name of the packfile, so that a name vouches for digests, and each digest for bytes. An index is no
evidence: anyone who reads a blob hashes it. A blob that is also kept whole is read from there.

A packfile is written once, by ``ledger.store.workers.fileworker``, and lives as long as one of its blobs is kept
(``ledger.store.collect.gc``).
"""

from __future__ import annotations

import logging
import os
import threading
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from typing import Final

from ledger.errors import Malformed, NotFound, Unavailable
from ledger.format.digest import digest_bytes, parse_digest
from ledger.storage.plain import open_plain
from ledger.storage.port import Storage
from ledger.store.layout import PACKFILE_LIST, PACKFILES, packfile_digest
from ledger.store.workers.fileworker import ENTRY, MAGIC, TAIL, index_of

_log = logging.getLogger(__name__)
_FAR_SECONDS: Final = 60.0
"""How long a listing of packfiles that are far away is believed."""
_TRIES: Final = 8
_GAP_BYTES: Final = 64 * 1024
_REQUEST_BYTES: Final = 8 * 1024 * 1024
_AGAIN_SECONDS: Final = 1.0
"""Within which they are not listed again for each blob that is not found."""
_TICK_NANOSECONDS: Final = 100_000_000
"""A folder that changed less than this ago may change again without its time showing it."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Where a blob lies: ``size`` bytes from ``start`` of a packfile, by its name in the storage."""

    packfile: str
    start: int
    size: int


class Index:
    """The blobs of one packfile, looked up in its own sorted bytes."""

    def __init__(self, packfile: str, data: bytes, size: int) -> None:
        self.packfile = packfile
        self._table = data[: -TAIL.size]
        self._end = size - len(data)

    def __len__(self) -> int:
        return len(self._table) // ENTRY.size

    def __iter__(self) -> Iterator[tuple[str, Slice]]:
        for digest, start, size in ENTRY.iter_unpack(self._table):
            if self._holds(start, size):
                yield f"sha256:{digest.hex()}", Slice(self.packfile, start, size)

    def check(self) -> None:
        """Malformed where an entry lies outside of the packfile, or not behind the one before it."""
        digests = [digest for digest, _, _ in ENTRY.iter_unpack(self._table)]
        if any(left >= right for left, right in pairwise(digests)) or sum(1 for _ in self) != len(self):
            raise Malformed(
                "index of a packfile",
                where=self.packfile,
                expected="blobs inside the packfile, sorted by digest",
                found="others",
            )

    @property
    def size(self) -> int:
        """How many bytes the index has."""
        return len(self._table)

    def digests(self) -> frozenset[bytes]:
        """The sha256 of every blob, 32 bytes each."""
        return frozenset([digest for digest, _, _ in ENTRY.iter_unpack(self._table)])

    def find(self, digest: bytes) -> Slice | None:
        """Where the blob of this sha256 lies, if it is in this packfile."""
        at = bisect_left(range(len(self)), digest, key=self._digest)
        if at == len(self) or self._digest(at) != digest:
            return None
        _, start, size = ENTRY.unpack_from(self._table, at * ENTRY.size)
        return Slice(self.packfile, start, size) if self._holds(start, size) else None

    def _holds(self, start: int, size: int) -> bool:
        return len(MAGIC) <= start <= start + size <= self._end

    def _digest(self, number: int) -> bytes:
        return self._table[number * ENTRY.size : number * ENTRY.size + 32]


def read_index(storage: Storage, name: str, where: str = "") -> Index:
    """The index of the packfile ``name``, which lies at ``where`` if it was set aside.

    Raises:
        Malformed: it has none, or one that is not that of its name.
    """
    lies = where or name
    try:
        size = storage.size(lies)
        data = index_of(partial(storage.read_range, lies), size)
    except ValueError as error:
        raise Malformed("packfile", where=lies, expected="an index at its end", found=str(error)) from error
    if (found := digest_bytes(data)) != packfile_digest(name):
        raise Malformed("index of a packfile", where=lies, expected=packfile_digest(name), found=found)
    return Index(name, data, size)


def check_packfile(storage: Storage, name: str) -> Index:
    """The index of a packfile, every entry looked at. Malformed as in ``read_index`` and ``Index.check``, and without its
    mark."""
    index = read_index(storage, name)
    index.check()
    if (found := storage.read_range(name, 0, len(MAGIC))) != MAGIC:
        raise Malformed("packfile", where=name, expected=repr(MAGIC), found=repr(found))
    return index


class Packfiles:
    """The packfiles of one storage. What cannot be read is as if it were not there; ``Store.verify_all`` says so."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        folder = storage.local_path(PACKFILES.rstrip("/"))
        self._folder = None if folder is None else os.fspath(folder)
        self._set_aside: dict[str, Index] = {}
        self._indexes: Mapping[str, Index | None] = {}
        self._readable: list[Index] = []
        self._state: int | None = None
        self._looked_again = -_AGAIN_SECONDS
        self._mutex = threading.Lock()

    def names(self) -> list[str]:
        """All packfiles, by their names in the storage; where a storage cannot be listed, those that its list names."""
        try:
            return list(self._storage.list(PACKFILES))
        except Unavailable:
            lines = self._list().decode("ascii", "replace").split("\n")
            return [PACKFILES + line for line in lines if _is_name(PACKFILES + line)]

    def indexes(self) -> list[Index]:
        """The index of each packfile that has one."""
        with self._mutex:
            state = self._look()
            if state is None or state != self._state:
                known = self._indexes
                self._indexes = {name: known.get(name) or self._index(name) for name in self.names()}
                self._readable = [index for index in self._indexes.values() if index is not None]
                self._state = state
            return self._readable

    def look_again(self) -> bool:
        """Believe no listing that was made before; False where the last one is young and was far to get."""
        now = time.monotonic()
        if self._folder is None and now - self._looked_again < _AGAIN_SECONDS:
            return False
        self._looked_again = now
        self._state = None
        return True

    def find(self, digest: str) -> Slice | None:
        """Where a blob lies, if it is in a packfile."""
        return next(self.places(digest), None)

    def places(self, digest: str) -> Iterator[Slice]:
        """Every packfile that has this blob."""
        wanted = parse_digest(digest)
        found = (index.find(wanted) for index in self.indexes())
        return (place for place in found if place is not None)

    def read(self, place: Slice) -> bytes:
        """The bytes of a blob, not verified; fewer where the packfile is cut."""
        if self._folder is not None:
            with suppress(OSError):  # the storage says what is wrong
                descriptor = open_plain(f"{self._folder}/{place.packfile.removeprefix(PACKFILES)}", place.packfile)
                try:
                    return os.pread(descriptor, place.size, place.start)
                finally:
                    os.close(descriptor)
        return self._storage.read_range(place.packfile, place.start, place.size)

    def read_many(self, digests: Iterable[str]) -> dict[str, bytes]:
        """The bytes, not verified, of those of these blobs that are in packfiles: neighbours by one request."""
        wanted = [(place, digest) for digest in digests if (place := self.find(digest)) is not None]
        wanted.sort(key=lambda pair: (pair[0].packfile, pair[0].start))
        found: dict[str, bytes] = {}
        at = 0
        while at < len(wanted):
            first, end, last = wanted[at][0], wanted[at][0].start + wanted[at][0].size, at + 1
            while last < len(wanted) and _is_near(wanted[last][0], first, end):
                end = max(end, wanted[last][0].start + wanted[last][0].size)
                last += 1
            data = b""
            with suppress(NotFound):  # set aside or taken out meanwhile: who asks for one of them finds where it is
                data = self.read(Slice(first.packfile, first.start, end - first.start))
            for place, digest in wanted[at:last]:
                found[digest] = data[place.start - first.start : place.start - first.start + place.size]
            at = last
        return found

    def holding(self, digests: Iterable[bytes]) -> list[Index]:
        """Packfiles that have what there is of these blobs (by sha256), between them."""
        indexes = self.indexes()
        held: list[Index] = []
        for digest in digests if indexes else ():
            if all(index.find(digest) is None for index in held):
                held.extend(islice((index for index in indexes if index.find(digest) is not None), 1))
        return held

    def latest(self, most_bytes: int) -> list[Index]:
        """The youngest packfiles on a local disk, as many as have indexes of so many bytes together."""
        taken: list[Index] = []
        for index in sorted(self.indexes(), key=self._modified, reverse=True):
            most_bytes -= index.size
            if most_bytes < 0:
                break
            taken.append(index)
        return taken

    def path(self, index: Index) -> str:
        """Where a packfile lies on a local disk."""
        return f"{self._folder}/{index.packfile.removeprefix(PACKFILES)}"

    def aside(self, digest: str, lying: Iterable[tuple[str, str]]) -> str | None:
        """The name of a packfile that has this blob, among those that were set aside: names, and where they lie now."""
        wanted = parse_digest(digest)
        for name, where in lying:
            with suppress(Malformed, NotFound):
                if where not in self._set_aside:
                    self._set_aside[where] = read_index(self._storage, name, where)
                if self._set_aside[where].find(wanted) is not None:
                    return name
        return None

    def publish(self) -> None:
        """Write the list of all packfiles, if it is another; of several who do so, the last one has seen what all of
        them did."""
        for _ in range(_TRIES):
            self._state = None
            names = "".join(f"{name.removeprefix(PACKFILES)}\n" for name in self.names()).encode()
            if names == self._list():
                return
            self._storage.replace(PACKFILE_LIST, names)

    # The parts

    def _list(self) -> bytes:
        try:
            return self._storage.read(PACKFILE_LIST)
        except NotFound:
            return b""

    def _index(self, name: str) -> Index | None:
        try:
            return read_index(self._storage, name)
        except NotFound:
            return None
        except Malformed as error:
            _log.warning("what is in it is not found: %s", error)
            return None

    def _modified(self, index: Index) -> float:
        with suppress(OSError):
            return os.stat(self.path(index)).st_mtime
        return 0.0

    def _look(self) -> int | None:
        """What changes when there are other packfiles than those that are known; None if that cannot be told now."""
        if self._folder is None:
            bad = len(self._readable) != len(self._indexes)  # it may have been the transport
            return int(time.monotonic() // (_AGAIN_SECONDS if bad else _FAR_SECONDS))
        try:
            changed = os.stat(self._folder).st_mtime_ns
        except FileNotFoundError:
            return 0
        return changed if time.time_ns() - changed > _TICK_NANOSECONDS else None


def _is_near(place: Slice, first: Slice, end: int) -> bool:
    """Whether to read on from ``first``, of which the bytes up to ``end`` are read, as far as this one."""
    if place.packfile != first.packfile or place.start - end > _GAP_BYTES:
        return False
    return place.start + place.size - first.start <= _REQUEST_BYTES


def _is_name(name: str) -> bool:
    try:
        packfile_digest(name)
    except Malformed:
        return False
    return True
