"""Part hashes, and the digest of a blob: what lets a range of a large blob be verified without the rest, and names the
part that is corrupt.

Up to 8 MiB the digest of a blob is the plain sha256 of its bytes. Above, it is the sha256 of a text that names its size
and the RFC 6962 Merkle root over its 8 MiB parts (the last is shorter), so that all processors hash it at once:

    marin.blob/v1
    parts 8388608
    size 9000000
    root <64 hex>

So that no small blob has the digest of a large one, a small blob that begins with the first line of this text is hashed
behind a header of its own. Every input of sha256 then stands for one blob, whatever its size, and a digest alone names
the bytes. The plain sha256 of a large blob is a second, older name of it, and stays good wherever it was recorded.

The leaf hashes lie beside a large blob as canonical JSON:

    {"digest":"sha256:…","kind":"parts","leaves":["<64 hex>",…],"part_size":8388608,"root":"<64
    hex>","size":9000000,"version":1}

A record whose root gives the blob's digest is as good as the digest (``certified``), no matter who wrote it. Beside a blob
under its plain sha256 it is as trustworthy as the store, unless a manifest names the root.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from ledger.errors import Malformed, Tampered
from ledger.format import tlog
from ledger.format.canonical import canonical_bytes, parse_canonical
from ledger.format.digest import digest_bytes, parse_digest

PART_SIZE: Final = 8 * 1024 * 1024
"""Files above this have part hashes; the parts are this long but for the last."""
HEADER: Final = b"marin.blob/v1\n"
"""What the text begins with that is hashed in place of a large blob, or before a small one that begins so."""


def large_digest(size: int, root: str) -> str:
    """The digest of a blob above 8 MiB, from its length in bytes and the Merkle root (hex) over its parts."""
    return digest_bytes(HEADER + f"parts {PART_SIZE}\nsize {size}\nroot {root}\n".encode())


def small_digest(data: bytes | bytearray | memoryview) -> str:
    """The digest of a blob of at most 8 MiB: plain sha256 but for the few that begin as the text of a large one
    does."""
    if bytes(data[: len(HEADER)]) == HEADER:
        return digest_bytes(HEADER + b"bytes\n" + bytes(data))
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@dataclass(frozen=True, slots=True)
class PartHashes:
    """The leaf hash of every part of one blob above 8 MiB."""

    digest: str
    size: int
    leaves: tuple[bytes, ...]

    def __post_init__(self) -> None:
        parse_digest(self.digest)
        expected = -(-self.size // PART_SIZE)
        if self.size <= PART_SIZE or len(self.leaves) != expected or any(len(leaf) != 32 for leaf in self.leaves):
            raise Malformed(
                "part hashes", where=self.digest, expected=f"{expected} of 32 bytes", found=f"{len(self.leaves)}"
            )

    @property
    def root(self) -> str:
        """The Merkle root over the parts, in hex."""
        return tlog.root_of(self.leaves).hex()

    @property
    def certified(self) -> bool:
        """Whether the digest itself stands for these hashes; not so for a blob under its plain sha256."""
        return large_digest(self.size, self.root) == self.digest

    def span(self, index: int) -> tuple[int, int]:
        """Start and end of a part in the blob."""
        return index * PART_SIZE, min(self.size, (index + 1) * PART_SIZE)

    def name(self, index: int) -> str:
        """A part, in words for a message."""
        start, end = self.span(index)
        return f"part {index} (bytes {start} to {end - 1})"

    def check(self, index: int, data: bytes | bytearray | memoryview) -> None:
        """Tampered unless ``data`` is the part of that index."""
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
        """The record that these bytes hold.

        Raises:
            Malformed: these are not hashes of parts.
        """
        document = parse_canonical(data)
        try:
            if not isinstance(document, dict):
                raise ValueError("no object")
            leaves = tuple(bytes.fromhex(leaf) for leaf in document["leaves"])
            parts = cls(document["digest"], document["size"], leaves)
        except (ValueError, KeyError, TypeError) as error:
            raise Malformed("part hashes", where=where, expected="a record of version 1", found=str(error)) from error
        if parts.encode() != data:
            raise Malformed("part hashes", where=where, expected="a record that its own leaves give", found="another")
        return parts


def leaf_of(data: bytes | bytearray | memoryview) -> bytes:
    """RFC 6962's leaf hash, without copying the data behind the prefix."""
    leaf = hashlib.sha256(b"\x00")
    leaf.update(data)
    return leaf.digest()
