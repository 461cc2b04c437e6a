"""Part hashes: what lets a range of a large blob be verified without the rest, and names the part that is
corrupt.

A blob is addressed by the plain sha256 of its bytes, whatever its size, so that `sha256sum` and every other
tool agree. Above 8 MiB it has part hashes too: the RFC 6962 leaf hash of each 8 MiB part (the last is
shorter), and the Merkle root over them. They lie beside the blob as canonical JSON:

    {"digest":"sha256:…","kind":"parts","leaves":["<64 hex>",…],"part_size":8388608,"root":"<64 hex>","size":9000000,"version":1}

A tree's manifest holds the root of each of its large files, so there the ranges hang on the digest of the
tree. For a blob by itself the record beside it is as trustworthy as the store: it shows damage, not a forger
who owns the disk.

`hash_stream` makes both hashes in one pass over the bytes, one thread each while a third reads.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import BinaryIO, Final

from ledger import tlog
from ledger.canonical import canonical_bytes, parse_canonical
from ledger.digest import parse_digest
from ledger.errors import Malformed, Tampered
from ledger.manifest import PART_SIZE

_BUFFERS: Final = 3
_HEAD: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class PartHashes:
    """The leaf hash of every part of one blob above 8 MiB."""

    digest: str
    size: int
    leaves: tuple[bytes, ...]

    def __post_init__(self) -> None:
        parse_digest(self.digest)
        expected = -(-self.size // PART_SIZE)
        if (
            self.size <= PART_SIZE
            or len(self.leaves) != expected
            or any(len(leaf) != 32 for leaf in self.leaves)
        ):
            raise Malformed(
                "part hashes",
                where=self.digest,
                expected=f"{expected} of 32 bytes",
                found=f"{len(self.leaves)}",
            )

    @property
    def root(self) -> str:
        """The Merkle root over the parts, in hex."""
        return tlog.root_of(self.leaves).hex()

    def span(self, index: int) -> tuple[int, int]:
        """Start and end of a part in the blob."""
        return index * PART_SIZE, min(self.size, (index + 1) * PART_SIZE)

    def name(self, index: int) -> str:
        """A part, in words for a message."""
        start, end = self.span(index)
        return f"part {index} (bytes {start} to {end - 1})"

    def check(self, index: int, data: bytes | bytearray | memoryview) -> None:
        """Tampered unless `data` is the part of that index."""
        found = leaf_of(data)
        if found != self.leaves[index]:
            raise Tampered(
                "a part of a blob differs from its hash",
                where=f"{self.digest}, {self.name(index)}",
                expected=self.leaves[index].hex(),
                found=found.hex(),
                cure="restore the blob: put it again, or pull it from a remote",
            )

    def differing(self, other: PartHashes) -> list[int]:
        """Which parts of two blobs of one size are not the same."""
        pairs = enumerate(zip(self.leaves, other.leaves, strict=True))
        return [index for index, (mine, theirs) in pairs if mine != theirs]

    def encode(self) -> bytes:
        """The canonical bytes of the record."""
        return canonical_bytes(
            {
                "digest": self.digest,
                "kind": "parts",
                "leaves": [leaf.hex() for leaf in self.leaves],
                "part_size": PART_SIZE,
                "root": self.root,
                "size": self.size,
                "version": 1,
            }
        )

    @classmethod
    def parse(cls, data: bytes, *, where: str = "") -> PartHashes:
        """The record that these bytes hold."""
        document = parse_canonical(data)
        try:
            if not isinstance(document, dict):
                raise ValueError("no object")
            leaves = tuple(bytes.fromhex(leaf) for leaf in document["leaves"])
            parts = cls(document["digest"], document["size"], leaves)
        except (ValueError, KeyError, TypeError) as error:
            raise Malformed(
                "part hashes", where=where, expected="a record of version 1", found=str(error)
            ) from error
        if parts.encode() != data:
            raise Malformed(
                "part hashes", where=where, expected="a record that its own leaves give", found="another"
            )
        return parts


@dataclass(frozen=True, slots=True)
class Hashed:
    """What one pass over some bytes gives."""

    digest: str
    size: int
    parts: PartHashes | None


def leaf_of(data: bytes | bytearray | memoryview) -> bytes:
    """RFC 6962's leaf hash, without copying the data behind the prefix."""
    leaf = hashlib.sha256(b"\x00")
    leaf.update(data)
    return leaf.digest()


def hash_bytes(data: bytes) -> Hashed:
    """Digest, and part hashes above 8 MiB, of bytes in memory."""
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    if len(data) <= PART_SIZE:
        return Hashed(digest, len(data), None)
    view = memoryview(data)
    leaves = tuple(leaf_of(view[start : start + PART_SIZE]) for start in range(0, len(data), PART_SIZE))
    return Hashed(digest, len(data), PartHashes(digest, len(data), leaves))


def hash_stream(source: BinaryIO, sink: Callable[[memoryview], object] | None = None) -> Hashed:
    """Digest, and part hashes above 8 MiB, of what `source` still holds; each piece is shown to `sink` as well."""
    head = bytearray(_HEAD)  # most files are small: for them no buffer of a whole part is made
    filled = _fill(source, memoryview(head))
    if filled < _HEAD:
        view = memoryview(head)[:filled]
        if sink is not None:
            sink(view)
        return Hashed(f"sha256:{hashlib.sha256(view).hexdigest()}", filled, None)
    first = bytearray(PART_SIZE)
    first[:_HEAD] = head
    filled = _HEAD + _fill(source, memoryview(first)[_HEAD:])
    if filled < PART_SIZE:
        view = memoryview(first)[:filled]
        if sink is not None:
            sink(view)
        return Hashed(f"sha256:{hashlib.sha256(view).hexdigest()}", filled, None)
    return _hash_large(source, first, sink)


def _hash_large(source: BinaryIO, first: bytearray, sink: Callable[[memoryview], object] | None) -> Hashed:
    whole = hashlib.sha256()
    leaves: list[Future[bytes]] = []
    buffers = [first, *(bytearray(PART_SIZE) for _ in range(_BUFFERS - 1))]
    users: list[tuple[Future[None], Future[bytes]] | None] = [None] * _BUFFERS
    size, turn, filled = 0, 0, PART_SIZE
    # The whole digest is sequential, so it has a thread of its own; the leaves have the other.
    with ThreadPoolExecutor(1) as sequential, ThreadPoolExecutor(1) as parallel:
        while filled:
            view = memoryview(buffers[turn])[:filled]
            leaf = parallel.submit(leaf_of, view)
            users[turn] = (sequential.submit(whole.update, view), leaf)
            leaves.append(leaf)
            size += filled
            if sink is not None:
                sink(view)
            turn = (turn + 1) % _BUFFERS
            waiting = users[turn]
            if waiting is not None:  # its buffer is filled again only when both are done with it
                waiting[0].result()
                waiting[1].result()
            filled = _fill(source, memoryview(buffers[turn]))
    digest = f"sha256:{whole.hexdigest()}"
    parts = PartHashes(digest, size, tuple(leaf.result() for leaf in leaves)) if size > PART_SIZE else None
    return Hashed(digest, size, parts)


def _fill(source: BinaryIO, view: memoryview) -> int:
    """Read until the buffer is full or the source is at its end."""
    filled = 0
    while filled < len(view):
        count = source.readinto(view[filled:])  # type: ignore[attr-defined]
        if not count:
            break
        filled += count
    return filled
