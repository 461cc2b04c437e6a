"""Training states in the store, tensor by tensor, each against the state before it.

    first = put_state(store, arrays)                    # Artifact: a tree
    second = put_state(store, later, first.digest)      # equal tensors once, the others as what changed
    arrays = load_state(store, second.digest)           # the same bits

A state is a tree of raw tensors: `state.json`, the `StateManifest` with path, dtype, shape and digest of each, and
`tensors/00000`, `tensors/00001`, … in its order, C order and little-endian. So its digest depends on the numbers alone,
and a tensor that did not change is one blob however many states hold it. A tensor that changed is kept as byte planes
of the XOR with the tensor of the same path in the state before (`ledger.store.packs.packing`), if that is smaller;
after `MAX_DEPTH` states in a row it starts anew, so that no read undoes more than that.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ledger.errors import NotFound, Tampered
from ledger.store.blobs.hashing import hash_bytes
from ledger.store.packs.packing import MAX_DEPTH, Planes, compress_planes
from ledger.store.store import Artifact, Store
from ledger.store.trees.manifest import Manifest, ManifestEntry
from ledger.tensors.tensors import StateManifest, TensorInfo, describe_state, item_size, tensor_digest

if TYPE_CHECKING:
    from numpy.typing import NDArray

STATE: Final = "state.json"
_WORTH: Final = 0.95
"""Packed bytes are kept if they are at most this share of the plain ones."""


def put_state(store: Store, arrays: Mapping[str, Any], base: str | None = None) -> Artifact:
    """Keep a state; `base` is the tree of the state before it, which stays needed. One tensor is in memory at a
    time."""
    state = describe_state(arrays)
    old = _tensors(store, base) if base else {}
    entries = [_put_small(store, STATE, state.encode())]
    for index, info in enumerate(state.tensors):
        entries.append(_put_tensor(store, f"tensors/{index:05d}", info, arrays[info.path], old.get(info.path)))
    return store.put_manifest(Manifest.of(entries), check=False)


def load_state(store: Store, tree: str) -> dict[str, NDArray[Any]]:
    """The arrays of a state by path, every byte hashed and every tensor's digest compared.

    Raises:
        Tampered: bytes are damaged, or the tensors are not those that `state.json` says.
        NotFound: the tree, or what it needs, is not here.
    """
    import numpy as np

    state, manifest = _state(store, tree), store.manifest(tree)
    arrays: dict[str, NDArray[Any]] = {}
    for index, info in enumerate(state.tensors):
        data = store.read(manifest.entry(f"tensors/{index:05d}").digest)
        array = np.frombuffer(data, dtype=_dtype(info.dtype)).reshape(info.shape)
        if (found := tensor_digest(array)) != info.digest:
            raise Tampered(
                "a tensor is not the one that its state names",
                where=f"{tree}: {info.path}",
                expected=info.digest,
                found=found,
                cure="put the state again, or pull it from a remote",
            )
        arrays[info.path] = array
    return arrays


def read_state(folder: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a state that was checked out to a folder, by path.

    Raises:
        ValueError, OSError, LedgerError: the folder holds no state.
    """
    import numpy as np

    arrays = {}
    for index, info in enumerate(StateManifest.parse((folder / STATE).read_bytes()).tensors):
        data = (folder / "tensors" / f"{index:05d}").read_bytes()
        arrays[info.path] = np.frombuffer(data, dtype=_dtype(info.dtype)).reshape(info.shape)
    return arrays


def is_state(store: Store, tree: str) -> bool:
    """Whether an artifact here is a state that `put_state` made."""
    try:
        paths = {entry.path for entry in store.manifest(tree)}
    except NotFound:
        return False
    return STATE in paths and paths - {STATE} == {f"tensors/{index:05d}" for index in range(len(paths) - 1)}


def _state(store: Store, tree: str) -> StateManifest:
    return StateManifest.parse(store.read(store.manifest(tree).entry(STATE).digest))


def _tensors(store: Store, tree: str) -> dict[str, tuple[TensorInfo, str]]:
    """Path -> what the tensor is, and the digest of its raw bytes."""
    manifest = store.manifest(tree)
    return {
        info.path: (info, manifest.entry(f"tensors/{index:05d}").digest)
        for index, info in enumerate(_state(store, tree).tensors)
    }


def _put_small(store: Store, path: str, data: bytes) -> ManifestEntry:
    hashed = store.blobs.put_bytes(data)
    return ManifestEntry(path, hashed.size, hashed.digest, parts=hashed.parts.root if hashed.parts else None)


def _put_tensor(
    store: Store, path: str, info: TensorInfo, array: Any, old: tuple[TensorInfo, str] | None
) -> ManifestEntry:
    import numpy as np

    values = np.ascontiguousarray(np.asarray(array))
    if values.dtype.byteorder == ">":
        values = values.byteswap()
    view = memoryview(values.reshape(-1).view(np.uint8)).cast("B") if values.nbytes else memoryview(b"")
    hashed = hash_bytes(view)
    entry = ManifestEntry(path, hashed.size, hashed.digest, parts=hashed.parts.root if hashed.parts else None)
    if store.blobs.renew(hashed.digest):
        return entry
    base = old[1] if old and (old[0].dtype, old[0].shape) == (info.dtype, info.shape) else None
    packed = _packed(store, hashed.digest, view, item_size(info.dtype), base)
    if packed is None:
        store.blobs.put_bytes(bytes(view), hashed)
    else:
        store.blobs.put_packed(packed)
    return entry


def _packed(store: Store, digest: str, view: memoryview, width: int, base: str | None) -> Planes | None:
    """The record of a tensor whose planes are in the store now; None where they would not be worth it."""
    if not view:
        return None
    depth = 0
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


def _dtype(name: str) -> Any:
    """The type of that name, NumPy's or ml_dtypes' (bfloat16, float8)."""
    import numpy as np

    if name == "bfloat16" or name.startswith("float8"):
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))
    return np.dtype(name)


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
