"""Which of many blobs are in a store: folders are listed once, and only what is not in them is looked for by itself."""

from __future__ import annotations

from collections.abc import Callable

from ledger.storage.plain import names_in
from ledger.store.blobs.blobs import Blobs
from ledger.store.layout import BLOBS


def presence(blobs: Blobs) -> Callable[[str], bool]:
    """``Blobs.has`` for many digests in a row. No evidence about bytes."""
    folder = blobs.folder
    if folder is None:
        return blobs.has
    listed: dict[str, frozenset[str]] = {}
    packed: list[frozenset[bytes]] = []

    def present(digest: str) -> bool:
        raw = bytes.fromhex(digest[7:])
        if any(raw in members for members in packed):
            return True
        first = digest[7:9]
        names = listed.get(first)
        if names is None:
            names = listed[first] = names_in(f"{folder}{BLOBS}{first}")
        if digest[9:] in names:
            return True
        held = blobs.packfiles.holding([raw])
        packed.extend(index.digests() for index in held)
        return bool(held) or blobs.has(digest)

    return present


def all_present(blobs: Blobs, digests: bytes) -> bool:
    """Whether all of these blobs (32 bytes of digest each, one after the other) are there."""
    present = presence(blobs)
    spread = digests.hex()
    return all(present(f"sha256:{spread[start : start + 64]}") for start in range(0, len(spread), 64))
