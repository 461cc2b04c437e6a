"""Arrays in memory are stored as slices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ledger.store.packs.packing import Planes
from ledger.store.store import Artifact, Store
from ledger.tensors.slices import SlicedForm, publish_slices, put_slice, slice_bytes
from ledger.tensors.tensors import describe_state


def put_slices(
    store: Store,
    arrays: Mapping[str, Any],
    slices: int = 1,
    leads: Mapping[str, int] | None = None,
    *,
    pack: bool = False,
    base: str | None = None,
) -> Artifact:
    """Keep a whole state in slices. ``pack``: as planes of bytes (``statepack``), against the tree ``base`` where that is a
    state in the same form. One slice is copied at a time."""
    form, state = SlicedForm(slices, leads or {}), describe_state(arrays)
    entries = [
        put_slice(store, number, memoryview(slice_bytes(state, form, arrays, number)), pack=pack, base=base)
        for number in range(slices)
    ]
    return publish_slices(store, state, form, entries)


def packed_size(store: Store, tree: str) -> int:
    """Bytes that the files of a tree take in the store as they are kept, each blob once, without what they rest on."""
    seen: set[str] = set()
    total = 0
    for entry in store.manifest(tree):
        if entry.digest in seen:
            continue
        seen.add(entry.digest)
        packed = store.blobs.packed(entry.digest)
        if isinstance(packed, Planes):
            total += store.blobs.size(packed.planes) + len(packed.encode())
        elif packed is not None:
            total += sum(dict(packed.chunks).values()) + len(packed.encode())
        else:
            total += entry.size
    return total
