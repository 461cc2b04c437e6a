"""Packed blobs: bytes that are kept as a record of how to make them, and not as they are.

Opt-in, for what repeats itself without being the same. A blob keeps its digest; only the way
in which they are kept differs, and anyone who reads gets bytes that were hashed. Two ways:

    chunks   the blob is cut, and the pieces are blobs of their own. Where content decides the cuts (``cut_by_content``),
             an edited corpus shares all pieces but those that were touched; where they lie at every 8 MiB
             (``cut_by_size``), an upload that broke off goes on with the pieces that are missing. One chunk is the
             whole under another name: a large blob that is also to be found by its plain sha256.
    planes   XOR with another blob of the same length (the previous training checkpoint's tensor, say), the bytes
             regrouped by their place in the number (all first bytes, all second bytes, …), compressed by zstd. Equal
             signs and exponents become long runs of zeros. Restored exactly; ``MAX_DEPTH`` bounds how many records in a
             row must be undone to read one blob.

The record, canonical JSON in ``store/packed/sha256/ab/cdef…``, is not evidence: what it gives must have the digest.

    {"chunks":[["sha256:…",65536],…],"digest":"sha256:…","how":"chunks","kind":"packed","size":N,"version":1}
    {"base":"sha256:…","depth":1,"digest":"sha256:…","how":"planes","kind":"packed","planes":"sha256:…","size":N,
     "version":1,"width":4}

Sources: FastCDC (Xia et al., USENIX ATC 2016; the 2020 revision), by pyfastcdc; zstd, RFC 8878.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from ledger.errors import LedgerError, Malformed, Tampered, Unavailable
from ledger.format.canonical import canonical_bytes, parse_canonical
from ledger.format.digest import parse_digest
from ledger.store.parts import PART_SIZE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_DEPTH: Final = 8
"""Records in a row, from a blob to one that is kept whole or without a base."""
CHUNK_MIN: Final = 64 * 1024
CHUNK_AVERAGE: Final = 256 * 1024
CHUNK_MAX: Final = 1024 * 1024
CHUNK_SEED: Final = 0
CHUNK_NORMALISATION: Final = 1
"""With these the cuts are the same everywhere and for ever; others would be as readable, and share nothing with
these."""
ZSTD_LEVEL: Final = 3
_BLOCK: Final = 1024 * 1024

Read = Callable[[str], bytes]
"""The verified bytes of a small blob."""
Open = Callable[[str], BinaryIO]
"""A stream over the bytes of any blob, not verified."""


@dataclass(frozen=True, slots=True)
class Chunks:
    """A blob made of others, one after the other: (digest, size) of each."""

    digest: str
    size: int
    chunks: tuple[tuple[str, int], ...]

    def __post_init__(self) -> None:
        parse_digest(self.digest)
        if any(size <= 0 for _, size in self.chunks) or sum(size for _, size in self.chunks) != self.size:
            raise _malformed(self.digest, f"chunks of {self.size} bytes together")

    @property
    def ingredients(self) -> tuple[str, ...]:
        """Blobs that it is made from."""
        return tuple(dict.fromkeys(digest for digest, _ in self.chunks))

    def encode(self) -> bytes:
        """The canonical bytes of the record."""
        return canonical_bytes(
            {
                "chunks": [list(chunk) for chunk in self.chunks],
                "digest": self.digest,
                "how": "chunks",
                "kind": "packed",
                "size": self.size,
                "version": 1,
            }
        )


@dataclass(frozen=True, slots=True)
class Planes:
    """A blob as compressed byte planes, of itself or (with a base) of what differs. ``width``: bytes of a number."""

    digest: str
    size: int
    planes: str
    width: int
    base: str | None = None
    depth: int = 0

    def __post_init__(self) -> None:
        parse_digest(self.digest)
        if self.size <= 0 or not 1 <= self.width <= 16 or not 0 <= self.depth <= MAX_DEPTH:
            raise _malformed(self.digest, f"a size, 1 to 16 bytes in a number, at most {MAX_DEPTH} records in a row")
        if (self.base is None) != (self.depth == 0):
            raise _malformed(self.digest, "a depth of 0 for what has no base, and of 1 or more for what has one")

    @property
    def ingredients(self) -> tuple[str, ...]:
        """Blobs that it is made from."""
        return (self.planes,) if self.base is None else (self.planes, self.base)

    def encode(self) -> bytes:
        """The canonical bytes of the record."""
        return canonical_bytes(
            {
                "base": self.base,
                "depth": self.depth,
                "digest": self.digest,
                "how": "planes",
                "kind": "packed",
                "planes": self.planes,
                "size": self.size,
                "version": 1,
                "width": self.width,
            }
        )


Packed = Chunks | Planes


def parse_packed(data: bytes, *, where: str) -> Packed:
    """The record that these bytes hold; Malformed if they hold none."""
    try:
        fields = parse_canonical(data)
        packed: Packed
        if fields["how"] == "chunks":
            packed = Chunks(
                fields["digest"], fields["size"], tuple((digest, size) for digest, size in fields["chunks"])
            )
        else:
            packed = Planes(
                fields["digest"], fields["size"], fields["planes"], fields["width"], fields["base"], fields["depth"]
            )
        for ingredient in packed.ingredients:
            parse_digest(ingredient)
        if packed.encode() != data:
            raise ValueError("other fields")
    except (LedgerError, ValueError, KeyError, TypeError) as error:
        raise Malformed(
            "record of a packed blob", where=where, expected="a record of version 1", found=str(error)
        ) from error
    return packed


# Cutting


def cut_by_content(stream: BinaryIO) -> Iterator[bytes]:
    """The chunks of a stream, by its content: FastCDC with the parameters above."""
    for chunk in _fastcdc().cut_stream(stream):
        yield bytes(chunk.data)


# Planes


def compress_planes(data: memoryview, width: int, base: BinaryIO | None = None) -> bytes:
    """zstd frames, one for each 8 MiB of ``data``: its byte planes, after XOR with ``base`` if there is one.

    In a block the bytes 0, width, 2 width, … come first, then 1, width + 1, …; a rest that fills no number comes last.
    """
    compressor = _zstandard().ZstdCompressor(level=ZSTD_LEVEL, write_checksum=False)
    frames = []
    for start in range(0, len(data), PART_SIZE):
        block = _xor(data[start : start + PART_SIZE], base)
        whole = len(block) // width * width
        planes = block[:whole].reshape(-1, width).T.tobytes() + block[whole:].tobytes()
        frames.append(compressor.compress(planes))
    return b"".join(frames)


def restored(packed: Planes, frames: BinaryIO, base: BinaryIO | None) -> Iterator[bytes]:
    """The blocks of the blob that ``compress_planes`` was given.

    Raises:
        Tampered: the frames are not such, or need a larger window than a block has bytes.
    """
    import numpy as np

    zstandard = _zstandard()
    left = packed.size
    unpacker = zstandard.ZstdDecompressor(max_window_size=PART_SIZE)
    try:
        with unpacker.stream_reader(frames, read_across_frames=True, closefd=False) as planes:
            while left:
                block = np.frombuffer(exactly(planes, min(left, PART_SIZE)), dtype=np.uint8)
                if len(block) != min(left, PART_SIZE):
                    break
                whole = len(block) // packed.width * packed.width
                numbers = block[:whole].reshape(packed.width, -1).T.reshape(-1)
                out = np.concatenate([numbers, block[whole:]])
                yield _xor(memoryview(out), base).tobytes()
                left -= len(block)
    except zstandard.ZstdError as error:
        raise _broken(packed, str(error)) from error
    if left:
        raise _broken(packed, f"{packed.size - left} bytes of {packed.size}")


def expand(packed: Packed, read: Read, open_blob: Open) -> Iterator[bytes]:
    """The bytes of a packed blob in pieces. Small chunks are verified one by one; the whole is for the caller to
    hash."""
    if isinstance(packed, Chunks):
        for digest, size in packed.chunks:
            if size > PART_SIZE:
                yield from _blocks(packed, size, open_blob(digest))
                continue
            chunk = read(digest)
            if len(chunk) != size:
                raise _broken(packed, f"a chunk of {len(chunk)} bytes for {size}")
            yield chunk
        return
    with open_blob(packed.planes) as frames:
        if packed.base is None:
            yield from restored(packed, frames, None)
            return
        with open_blob(packed.base) as base:
            yield from restored(packed, frames, base)


def _blocks(packed: Packed, size: int, chunk: BinaryIO) -> Iterator[bytes]:
    """A chunk that is too large for memory: the whole under another name, say. Not verified here."""
    with chunk:
        while block := chunk.read(min(_BLOCK, size + 1)):
            size -= len(block)
            if size < 0:
                break
            yield block
    if size:
        raise _broken(packed, "a chunk of another length")


class PieceStream(io.RawIOBase):
    """Pieces of bytes as a stream, forwards only."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        super().__init__()
        self._pieces = pieces
        self._held = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object, /) -> int:
        target = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        while not self._held and (piece := next(self._pieces, None)) is not None:
            self._held = memoryview(piece)
        count = min(len(target), len(self._held))
        target[:count] = self._held[:count]
        self._held = self._held[count:]
        return count


def _xor(data: memoryview, base: BinaryIO | None) -> NDArray[np.uint8]:
    import numpy as np

    block = np.frombuffer(data, dtype=np.uint8)
    if base is None:
        return block
    other = np.frombuffer(exactly(base, len(block)), dtype=np.uint8)
    if len(other) != len(block):
        raise Tampered(
            "the base of a packed blob is too short",
            expected=f"{len(block)} bytes more",
            found=f"{len(other)}",
            cure="verify the store",
        )
    return block ^ other


def exactly(stream: BinaryIO, count: int) -> bytes:
    """Up to ``count`` bytes, fewer only at the end."""
    pieces = []
    while count and (piece := stream.read(count)):
        pieces.append(piece)
        count -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _fastcdc() -> Any:
    try:
        from pyfastcdc import FastCDC  # only cutting needs it
    except ImportError as error:
        raise Unavailable("cutting by content needs pyfastcdc", found=str(error), cure="install pyfastcdc") from error
    return FastCDC(
        avg_size=CHUNK_AVERAGE,
        min_size=CHUNK_MIN,
        max_size=CHUNK_MAX,
        normalized_chunking=CHUNK_NORMALISATION,
        seed=CHUNK_SEED,
    )


def _zstandard() -> Any:
    try:
        import zstandard  # only packing of planes needs it
    except ImportError as error:
        raise Unavailable("packed blobs need zstandard", found=str(error), cure="install zstandard") from error
    return zstandard


def _malformed(digest: str, expected: str) -> Malformed:
    return Malformed("record of a packed blob", where=digest, expected=expected, found="another")


def _broken(packed: Packed, found: str) -> Tampered:
    return Tampered(
        "a packed blob cannot be made again",
        where=packed.digest,
        expected=f"{packed.size} bytes",
        found=found,
        cure="put the original again or pull it from a remote",
    )
