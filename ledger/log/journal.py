"""The journal: where an append is committed, by one synced write, before tiles are made of it.

``log/journal`` is a row of records, each at a multiple of 4,096 bytes, so that a torn write never touches the
record before it:

    8   magic "MLJOURN1"
    8   size of the tree before, big-endian
    4   number of entries
    4   length of the note
    8   length of the bundle
    32  SHA-256 over the 32 bytes above, the note and the bundle
    …   the log checkpoint after these entries, as a signed note
    …   the entries, as in an entry bundle

A record counts if it is whole and continues where the one before it ended. Whatever does not is the end of
the journal: an append that was never acknowledged, or the leavings of an earlier round, for once its records
are published as tiles the file is written again from its beginning. So the writer needs one fdatasync for an
append, into space that exists already.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ledger.errors import Malformed, NotFound
from ledger.format.bundle import pack_entries, unpack_entries
from ledger.storage.port import Storage

ALIGNMENT = 4096
_MAGIC = b"MLJOURN1"
_HEAD = struct.Struct(">8sQIIQ")
_PREFIX = _HEAD.size + hashlib.sha256().digest_size
_GROWTH = 64 << 10
_MAX_GROWTH = 1 << 20


@dataclass(frozen=True)
class Record:
    """One committed batch: the entries after ``old_size``, and the signed note that covers them."""

    old_size: int
    note: bytes
    entries: tuple[bytes, ...]

    @property
    def new_size(self) -> int:
        return self.old_size + len(self.entries)

    def encode(self) -> bytes:
        bundle = pack_entries(self.entries)
        head = _HEAD.pack(_MAGIC, self.old_size, len(self.entries), len(self.note), len(bundle))
        digest = hashlib.sha256(b"".join((head, self.note, bundle))).digest()
        return b"".join((head, digest, self.note, bundle))


class JournalWriter:
    """Puts records one behind the other, and begins again at the front when told that all are published."""

    def __init__(self, storage: Storage, name: str) -> None:
        self._storage = storage
        self._name = name
        self._end = 0
        self._allocated = 0

    @property
    def used(self) -> int:
        """Bytes that records take up since the journal began anew."""
        return self._end

    def write(self, record: Record) -> None:
        """Commit ``record``. After an exception it may or may not be there."""
        data = record.encode()
        end = _aligned(self._end + len(data))
        # Growing in larger and larger steps, by zeros, keeps most syncs free of changes to the file's size.
        step = max(_GROWTH, min(self._allocated, _MAX_GROWTH))
        allocated = self._allocated if end <= self._allocated else -(-end // step) * step
        filler = (allocated if allocated > self._allocated else end) - self._end - len(data)
        self._storage.write_at(self._name, self._end, data + bytes(filler))
        self._end, self._allocated = end, allocated

    def resume(self, records: Sequence[Record]) -> None:
        """These records stand at the front already, and are not all published: the next one goes behind them."""
        self._end = self._allocated = 0
        for record in records:
            self._end = _after(self._end, record)

    def rewind(self) -> None:
        """All records are published: the next one goes to the front."""
        self._end = 0

    def remove(self) -> None:
        self._storage.remove(self._name)
        self._end = self._allocated = 0


def read_records(storage: Storage, name: str) -> Iterator[Record]:
    """The whole records from the beginning that continue one another. The file is read once, as it is now."""
    try:
        data = memoryview(storage.read(name))
    except NotFound:
        return
    offset, size = 0, None
    while record := _parse(data[offset:]):
        if size is not None and record.old_size != size:
            return
        yield record
        size = record.new_size
        offset = _after(offset, record)


def _after(offset: int, record: Record) -> int:
    return _aligned(offset + _PREFIX + len(record.note) + sum(len(entry) + 2 for entry in record.entries))


def _parse(data: memoryview) -> Record | None:
    if len(data) < _PREFIX:
        return None
    magic, old_size, count, note_size, bundle_size = _HEAD.unpack_from(data)
    end = _PREFIX + note_size + bundle_size
    if magic != _MAGIC or end > len(data) or not count:
        return None
    payload = bytes(data[_PREFIX:end])
    if hashlib.sha256(bytes(data[: _HEAD.size]) + payload).digest() != data[_HEAD.size : _PREFIX]:
        return None
    try:
        entries = unpack_entries(payload[note_size:])
    except Malformed:
        return None
    return Record(old_size, payload[:note_size], tuple(entries)) if len(entries) == count else None


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
