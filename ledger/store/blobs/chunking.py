"""A file kept as chunks that its content cuts (``packs.packing``): an edited one shares all but those that were touched."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ledger.store.blobs.blobs import Blobs
from ledger.store.blobs.hashing import Hashed, hash_stream
from ledger.store.blobs.staging import changed, explained, state_of
from ledger.store.packs.packing import Chunks, PieceStream, cut_by_content
from ledger.store.parts import small_digest

_BATCH: Final = 64
_STREAM: Final = 1024 * 1024


def put_chunked(blobs: Blobs, path: Path) -> Hashed:
    """Keep the bytes of a local file as chunks; those that are here already are not written.

    Raises:
        Conflict: another process wrote to the file meanwhile.
    """
    blobs.check_writable()
    with explained(path, blobs.where), open(path, "rb") as source:
        before = state_of(source)
        chunks: list[tuple[str, int]] = []

        def kept() -> Iterator[bytes]:
            batch: dict[str, bytes] = {}
            for chunk in cut_by_content(source):
                digest = small_digest(chunk)
                chunks.append((digest, len(chunk)))
                if not blobs.renew(digest):
                    batch[digest] = chunk
                if len(batch) >= _BATCH:
                    blobs.put_many(batch)
                    batch = {}
                yield chunk
            blobs.put_many(batch)

        hashed = hash_stream(io.BufferedReader(PieceStream(kept()), _STREAM))
        if state_of(source) != before:
            raise changed(path)
    blobs.put_packed(Chunks(hashed.digest, hashed.size, tuple(chunks)))
    if hashed.parts is not None:
        blobs.put_parts(hashed.parts)
    return hashed
