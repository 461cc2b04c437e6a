"""Hashing blobs as fast as the machine allows: the parts of a large one by as many threads as there are processors.

    hash_bytes(data)      what is in memory
    hash_file(stream)     a regular file: each thread reads a part of its own; and, where that is asked for, of a copy
                          of it that is made meanwhile
    hash_stream(stream)   anything else: one thread reads, the others hash

``plain`` asks for the plain sha256 of a large blob as well. That is sequential, and about half as fast on two
processors. ``ledger.store.parts`` says what the hashes are.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import BinaryIO, Final

from ledger.store.parts import HEADER, PART_SIZE, PartHashes, large_digest, leaf_of, small_digest

MOST_THREADS: Final = 16
_STREAM_THREADS: Final = 6
"""Each holds a part in memory, and no stream is faster than these."""
_HEAD: Final = 64 * 1024
_SYNCED: Final = 128 * 1024 * 1024
"""So much of a copy is written before the disk is told to begin."""
_BLOCK: Final = 256 * 1024
"""What a thread reads at once: little enough to be in its processor's cache when it is hashed."""

Plain = bool | Callable[[], bool]
"""Whether the plain sha256 is wanted too; asked only for a blob above 8 MiB."""


@dataclass(frozen=True, slots=True)
class Hashed:
    """What one pass over some bytes gives; ``plain`` their plain sha256, where that is another and was asked for."""

    digest: str
    size: int
    parts: PartHashes | None
    plain: str | None = None

    def under(self, digest: str) -> Hashed:
        """The same under the name that it is asked for by, if that is one of the two it has; unchanged if not."""
        if digest != self.plain or self.parts is None:
            return self
        return Hashed(digest, self.size, replace(self.parts, digest=digest), digest)


class _Changed(Exception):
    """A file has another length than a moment ago."""


def threads() -> int:
    """How many threads hash one blob: one for each processor that this process may use."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(MOST_THREADS, count))


def hash_bytes(data: bytes | memoryview, *, plain: Plain = False) -> Hashed:
    """Digest, and part hashes above 8 MiB, of bytes in memory."""
    view = memoryview(data)
    if len(view) <= PART_SIZE:
        return Hashed(small_digest(data), len(view), None)
    pieces = (view[start : start + PART_SIZE] for start in range(0, len(view), PART_SIZE))
    with ThreadPoolExecutor(threads()) as pool:
        whole = pool.submit(hashlib.sha256, view) if _wanted(plain, view) else None
        leaves = tuple(pool.map(leaf_of, pieces))
        return _large(len(view), leaves, whole.result().hexdigest() if whole else None)


def hash_file(stream: BinaryIO, *, into: BinaryIO | None = None, plain: Plain = False) -> Hashed:
    """Digest, and part hashes above 8 MiB, of a regular file from its beginning.

    With ``into``, open for reading and writing, its bytes are copied there, and it is the copy that is hashed: whatever
    becomes of the file meanwhile, the digest is that of the copy.
    """
    source = stream.fileno()
    size = os.fstat(source).st_size
    if size > PART_SIZE and not _wanted(plain, os.pread(source, len(HEADER), 0)):
        try:
            leaves = _hash_parts(source, size) if into is None else _copy_parts(source, size, into.fileno())
            return _large(size, leaves, None)
        except _Changed:
            pass  # another process writes to it, or the system cannot copy by itself: take it as it comes
    stream.seek(0)
    if into is not None:
        into.seek(0)
        into.truncate()
    return hash_stream(stream, None if into is None else into.write, plain=plain)


def hash_stream(
    source: BinaryIO, sink: Callable[[memoryview], object] | None = None, *, plain: Plain = False
) -> Hashed:
    """Digest, and part hashes above 8 MiB, of what ``source`` still holds; each piece is shown to ``sink`` as well."""
    head = bytearray(_HEAD)  # most files are small: for them no buffer of a whole part is made
    filled = _fill(source, memoryview(head))
    first = head
    if filled == _HEAD:
        first = bytearray(PART_SIZE)
        first[:_HEAD] = head
        filled = _HEAD + _fill(source, memoryview(first)[_HEAD:])
        if filled == PART_SIZE:
            return _hash_large(source, first, sink, plain)
    view = memoryview(first)[:filled]
    if sink is not None:
        sink(view)
    return Hashed(small_digest(view), filled, None)


def _hash_parts(source: int, size: int) -> tuple[bytes, ...]:
    """The leaf hash of each part of a file; every thread takes the next part that nobody has."""
    count = -(-size // PART_SIZE)
    leaves: list[bytes] = [b""] * count
    following = itertools.count()
    failed = False

    def work() -> None:
        nonlocal failed
        buffer = memoryview(bytearray(_BLOCK))
        try:
            while not failed and (index := next(following)) < count:
                end = min(size, (index + 1) * PART_SIZE)
                leaves[index] = _hash_span(source, index * PART_SIZE, end, buffer)
        except BaseException:
            failed = True  # the others need not finish
            raise

    with ThreadPoolExecutor(min(threads(), count)) as pool:
        for job in [pool.submit(work) for _ in range(min(threads(), count))]:
            job.result()
    if os.fstat(source).st_size != size:
        raise _Changed
    return tuple(leaves)


def _copy_parts(source: int, size: int, into: int) -> tuple[bytes, ...]:
    """Copy a file within the kernel, hash each part of the copy once it is there, and let the disk begin meanwhile."""
    os.ftruncate(into, 0)
    os.lseek(into, 0, os.SEEK_SET)
    leaves: list[Future[bytes]] = []
    writing: Future[None] | None = None
    with ThreadPoolExecutor(1) as disk, ThreadPoolExecutor(threads()) as pool:
        for start in range(0, size, PART_SIZE):
            end = min(size, start + PART_SIZE)
            _send(source, into, start, end)
            leaves.append(pool.submit(_hash_copied, into, start, end))
            if start % _SYNCED == 0 and start and (writing is None or writing.done()):
                writing = disk.submit(_begin_writing, into)
        hashes = tuple(leaf.result() for leaf in leaves)
    if os.fstat(source).st_size != size:
        raise _Changed
    return hashes


def _send(source: int, into: int, start: int, end: int) -> None:
    while start < end:
        try:
            count = os.sendfile(into, source, start, end - start)
        except OSError as error:
            if start == 0 and error.errno in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSOCK):
                raise _Changed from error
            raise
        if not count:
            raise _Changed
        start += count


def _hash_copied(copy: int, start: int, end: int) -> bytes:
    return _hash_span(copy, start, end, memoryview(bytearray(_BLOCK)))


def _begin_writing(descriptor: int) -> None:
    """An early sync, so that the last one finds little to do; that one decides, and says what is wrong."""
    with suppress(OSError):
        getattr(os, "fdatasync", os.fsync)(descriptor)


def _hash_span(source: int, start: int, end: int, buffer: memoryview) -> bytes:
    leaf = hashlib.sha256(b"\x00")
    while start < end:
        count = os.preadv(source, [buffer[: min(_BLOCK, end - start)]], start)
        if not count:
            raise _Changed
        leaf.update(buffer[:count])
        start += count
    return leaf.digest()


def _hash_large(
    source: BinaryIO, first: bytearray, sink: Callable[[memoryview], object] | None, plain: Plain
) -> Hashed:
    """A part in each buffer: read here, hashed by the pool, and filled again when all are done with it."""
    following = _Reader(source)
    filled = PART_SIZE
    more = following.byte()  # exactly one part is a small blob
    if not more:
        view = memoryview(first)
        if sink is not None:
            sink(view)
        return Hashed(small_digest(view), PART_SIZE, None)
    whole = hashlib.sha256() if _wanted(plain, memoryview(first)) else None
    workers = min(threads(), _STREAM_THREADS)
    free = deque([bytearray(PART_SIZE) for _ in range(workers)])
    used: deque[tuple[bytearray, Future[bytes], Future[None] | None]] = deque()
    leaves: list[Future[bytes]] = []
    size, buffer = 0, first
    # The plain digest is sequential, so it has a thread of its own.
    with ThreadPoolExecutor(1) as sequential, ThreadPoolExecutor(workers) as parallel:
        while filled:
            view = memoryview(buffer)[:filled]
            leaf = parallel.submit(leaf_of, view)
            used.append((buffer, leaf, sequential.submit(whole.update, view) if whole else None))
            leaves.append(leaf)
            size += filled
            if sink is not None:
                sink(view)
            if not free:
                done, first_leaf, update = used.popleft()
                first_leaf.result()
                if update is not None:
                    update.result()
                free.append(done)
            buffer = free.popleft()
            filled = following.fill(memoryview(buffer))
        hashes = tuple(leaf.result() for leaf in leaves)
    return _large(size, hashes, whole.hexdigest() if whole else None)


class _Reader:
    """A stream that can be asked whether there is more."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._ahead = bytearray()

    def byte(self) -> bool:
        ahead = bytearray(1)
        self._ahead = ahead[: _fill(self._source, memoryview(ahead))]
        return bool(self._ahead)

    def fill(self, view: memoryview) -> int:
        ahead = len(self._ahead)
        view[:ahead] = self._ahead
        self._ahead = bytearray()
        return ahead + _fill(self._source, view[ahead:])


def _large(size: int, leaves: tuple[bytes, ...], plain: str | None) -> Hashed:
    unnamed = PartHashes(f"sha256:{'0' * 64}", size, leaves)
    digest = large_digest(size, unnamed.root)
    return Hashed(digest, size, replace(unnamed, digest=digest), f"sha256:{plain}" if plain else None)


def _wanted(plain: Plain, start: bytes | memoryview) -> bool:
    """Whether to take the plain sha256. It never names a large blob that begins as the text of one does."""
    if bytes(start[: len(HEADER)]) == HEADER:
        return False
    return plain() if callable(plain) else plain


def _fill(source: BinaryIO, view: memoryview) -> int:
    """Read until the buffer is full or the source is at its end."""
    filled = 0
    while filled < len(view):
        count = source.readinto(view[filled:])  # type: ignore[attr-defined]
        if not count:
            break
        filled += count
    return filled
