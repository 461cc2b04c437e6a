"""The body of ``add-entries`` (C2SP tlog-mirror): entries of a log in packages of 256, each proven to be in a known checkpoint.

    uint16 and the origin, uint64 upload start, uint64 upload end, uint16 and a ticket; then packages:
    the entries, each behind its length as an uint16; uint8 and so many hashes

A package covers the leaves between two multiples of 256; its proof is that of the subtree from the lower multiple to the
package's end, in the tree of ``upload end`` leaves. An answer of status 202 or 409 says in three lines where to go on.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ledger.errors import Malformed
from ledger.format.bundle import pack_entries
from ledger.format.note import decode_base64
from ledger.format.tlog import HASH_SIZE, TILE_WIDTH
from ledger.witness.upload import Upload

MIRROR_INFO = "text/x.tlog.mirror-info"
MAX_PACKAGES = 32
"""How many packages a request should have at most."""
_MAX_HASHES = 63
_INFO = re.compile(r"(0|[1-9][0-9]{0,18})\n(0|[1-9][0-9]{0,18})\n([A-Za-z0-9+/]*=*)\n\Z")


@dataclass(frozen=True)
class EntriesHead:
    """What a request begins with: whose entries, from where to where, and what the mirror gave to be shown again."""

    origin: str
    start: int
    end: int
    ticket: bytes = b""

    def encode(self) -> bytes:
        origin = self.origin.encode()
        numbers = self.start.to_bytes(8) + self.end.to_bytes(8)
        return len(origin).to_bytes(2) + origin + numbers + len(self.ticket).to_bytes(2) + self.ticket

    @classmethod
    def read(cls, body: Upload) -> EntriesHead:
        """The beginning of a body; ``Malformed`` where it ends too early, or says what cannot be."""
        origin = body.exactly(int.from_bytes(body.exactly(2)))
        start, end = int.from_bytes(body.exactly(8)), int.from_bytes(body.exactly(8))
        ticket = body.exactly(int.from_bytes(body.exactly(2)))
        if start > end or end >= 1 << 63:
            raise Malformed("not a range of entries", expected="a start up to the end", found=f"{start} to {end}")
        try:
            return cls(origin.decode(), start, end, ticket)
        except UnicodeDecodeError:
            raise Malformed("not an origin", expected="UTF-8") from None


@dataclass(frozen=True)
class Package:
    """The entries [start, end), and the proof of the subtree [first, end)."""

    start: int
    end: int
    entries: tuple[bytes, ...]
    proof: tuple[bytes, ...]

    @property
    def first(self) -> int:
        """The multiple of 256 from which the proven subtree begins."""
        return self.start - self.start % TILE_WIDTH

    def encode(self) -> bytes:
        return pack_entries(self.entries) + len(self.proof).to_bytes(1) + b"".join(self.proof)

    @classmethod
    def read(cls, body: Upload, start: int, end: int) -> Package:
        """The next package of a body; ``Malformed`` where the body ends before."""
        entries = tuple(body.exactly(int.from_bytes(body.exactly(2))) for _ in range(start, end))
        count = int.from_bytes(body.exactly(1))
        if count > _MAX_HASHES:
            raise Malformed("not a proof of a package", expected=f"at most {_MAX_HASHES} hashes", found=f"{count}")
        return cls(start, end, entries, tuple(body.exactly(HASH_SIZE) for _ in range(count)))


def packages(start: int, end: int) -> Iterator[tuple[int, int]]:
    """From where to where the packages of an upload go, in their order."""
    while start < end:
        stop = min(end, start - start % TILE_WIDTH + TILE_WIDTH)
        yield start, stop
        start = stop


@dataclass(frozen=True)
class MirrorInfo:
    """Where an upload goes on: the size of a checkpoint that the mirror waits for, the next entry, and a ticket."""

    size: int
    next_entry: int
    ticket: bytes = b""

    def encode(self) -> bytes:
        return f"{self.size}\n{self.next_entry}\n{base64.b64encode(self.ticket).decode()}\n".encode()

    @classmethod
    def parse(cls, data: bytes) -> MirrorInfo:
        """What an answer says; ``Malformed`` if it is not one."""
        found = _INFO.match(data.decode("ascii", "replace"))
        if found is None:
            raise Malformed("not an answer of a mirror", expected="size, next entry and ticket on three lines")
        return cls(int(found[1]), int(found[2]), decode_base64(found[3], "ticket") if found[3] else b"")


def encode_entries(head: EntriesHead, sent: Sequence[Package]) -> bytes:
    """A whole body."""
    return head.encode() + b"".join(package.encode() for package in sent)
