"""Bytes kept as planes against others, and the older form of a packed training state.

A slice of a state (``slices``) that is packed is kept as byte planes of the XOR with the same slice of the state before it
(``ledger.store.packs.packing``), if that is smaller; after ``MAX_DEPTH`` states in a row it starts anew, so that no read undoes
more than that.

Earlier versions packed tensor by tensor: ``state.json``, the ``StateManifest`` with path, dtype, shape and digest of each, and
``tensors/00000``, ``tensors/00001``, … in its order, C order and little-endian. ``read_state`` reads what they left.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ledger.store.blobs.hashing import Hashed, hash_bytes
from ledger.store.packs.packing import MAX_DEPTH, Planes, compress_planes
from ledger.store.store import Store
from ledger.tensors.tensors import StateManifest, dtype_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

STATE: Final = "state.json"
_WORTH: Final = 0.95
"""Packed bytes are kept if they are at most this share of the plain ones."""


def read_state(folder: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a state of the older form that was checked out to a folder, by path.

    Raises:
        ValueError, OSError, LedgerError: the folder holds no state.
    """
    import numpy as np

    arrays = {}
    for index, info in enumerate(StateManifest.parse((folder / STATE).read_bytes()).tensors):
        data = (folder / "tensors" / f"{index:05d}").read_bytes()
        arrays[info.path] = np.frombuffer(data, dtype=dtype_of(info.dtype)).reshape(info.shape)
    return arrays


def put_planes(store: Store, view: memoryview, width: int, base: str | None = None) -> Hashed:
    """Keep bytes as planes of numbers of ``width`` bytes, against the blob ``base`` if there is one, which stays needed; as
    they are where planes would not be worth it."""
    hashed = hash_bytes(view)
    if store.blobs.renew(hashed.digest):
        return hashed
    packed = _packed(store, hashed.digest, view, width, base)
    if packed is None:
        store.blobs.put_bytes(bytes(view), hashed)
    else:
        store.blobs.put_packed(packed)
    return hashed


def _packed(store: Store, digest: str, view: memoryview, width: int, base: str | None) -> Planes | None:
    """The record of bytes whose planes are in the store now; None where they would not be worth it. A base of another
    length does not count."""
    if not view:
        return None
    depth = 0
    if base is not None and store.blobs.size(base) != len(view):
        base = None
    if base is not None:
        found = store.blobs.packed(base)
        depth = found.depth + 1 if isinstance(found, Planes) else 1
        if depth > MAX_DEPTH:
            base, depth = None, 0
    if base is None:
        planes = compress_planes(view, width)
    else:
        store.blobs.verified(base)  # a rotten base would make a record that nobody can undo
        with store.blobs.stream(base) as stream:
            planes = compress_planes(view, width, stream)
    if len(planes) > len(view) * _WORTH:
        return None
    kept = store.blobs.put_bytes(planes)
    return Planes(digest, len(view), kept.digest, width, base, depth)
