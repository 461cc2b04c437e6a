"""Entry bundles (C2SP tlog-tiles): entries one after the other, each behind its length as a big-endian uint16."""

from __future__ import annotations

from collections.abc import Iterable

from ledger.errors import Malformed, Refused

MAX_ENTRY_BYTES = 65_535


def pack_entries(entries: Iterable[bytes]) -> bytes:
    """The bundle of these entries.

    Raises:
        Refused: an entry is too large.
    """
    parts: list[bytes] = []
    for entry in entries:
        if len(entry) > MAX_ENTRY_BYTES:
            raise Refused("an entry is too large", expected=f"at most {MAX_ENTRY_BYTES} bytes", found=f"{len(entry)}")
        parts += (len(entry).to_bytes(2), entry)
    return b"".join(parts)


def unpack_entries(data: bytes) -> list[bytes]:
    """The entries of a bundle; ``Malformed`` if it ends within one."""
    entries: list[bytes] = []
    at = 0
    while at < len(data):
        start = at + 2
        end = start + int.from_bytes(data[at:start])
        if end > len(data) or start > len(data):
            raise Malformed(
                "an entry bundle is cut short",
                where=f"entry {len(entries)}",
                expected=f"{end} bytes",
                found=f"{len(data)}",
            )
        entries.append(data[start:end])
        at = end
    return entries
