"""Tensors and states, digested by what they mean: not by how they are stored, sharded or laid out in memory.

A tensor's digest is the sha256 of the canonical JSON

    {"dtype":"float32","root":"<64 hex>","shape":[2,3]}

where ``root`` is the RFC 6962 Merkle root over tiles of 1 MiB (the last is shorter; none for an empty tensor)
of the elements' bytes in C order, little-endian. ``dtype`` is the name NumPy and ml_dtypes give it. Types
narrower than a byte are refused: their spare bits are unspecified in memory. So the same numbers have the
same digest from memory, from a checkpoint of any layout and from an exported file, and a tile can be checked
alone.

A state's digest is the sha256 of the canonical JSON of its (path, digest) pairs, sorted by the UTF-8 bytes of
the paths:

    {"kind":"state","tensors":[{"digest":"sha256:…","path":"params/wte"},…],"version":1}

Tiles are hashed in threads (hashlib lets go of the interpreter) where they lie; only arrays that are not
C-contiguous or not little-endian are copied, some tiles at a time. NumPy is imported on the first use:
``import ledger`` stays light.
"""

from __future__ import annotations

import hashlib
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from ledger.errors import Malformed, NotFound, Refused
from ledger.format import tlog
from ledger.format.canonical import canonical_bytes, parse_canonical
from ledger.format.digest import canonical_digest, parse_digest

if TYPE_CHECKING:
    from numpy.typing import NDArray

TILE_SIZE: Final = 1024 * 1024
_TILES_PER_TASK: Final = 8
_WORKERS: Final = min(8, os.cpu_count() or 1)
_LITTLE: Final = sys.byteorder == "little"

_ITEM_SIZES: Final = {
    **dict.fromkeys(("bool", "int8", "uint8"), 1),
    **dict.fromkeys(("float8_e4m3", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e4m3b11fnuz"), 1),
    **dict.fromkeys(("float8_e3m4", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"), 1),
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "float32"), 4),
    **dict.fromkeys(("int64", "uint64", "float64", "complex64"), 8),
    "complex128": 16,
}


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of a state: where it stands, what it is, and the digest that binds its bytes."""

    path: str
    dtype: str
    shape: tuple[int, ...]
    digest: str
    nbytes: int


@dataclass(frozen=True)
class StateManifest:
    """The tensors of a state in canonical order.

    Its canonical bytes also tell dtypes and shapes, for anyone who compares two states; ``digest`` needs only (path,
    digest).
    """

    tensors: tuple[TensorInfo, ...]

    def __post_init__(self) -> None:
        keys = [_path_key(tensor.path) for tensor in self.tensors]
        if any(left >= right for left, right in pairwise(keys)):
            raise Malformed(
                "state manifest", expected="each path once, sorted by its UTF-8 bytes", found="another order"
            )
        for tensor in self.tensors:
            parse_digest(tensor.digest)
            expected = math.prod(tensor.shape) * item_size(tensor.dtype)
            if tensor.nbytes != expected:
                raise Malformed(
                    "state manifest", where=tensor.path, expected=f"{expected} bytes", found=f"{tensor.nbytes}"
                )

    @classmethod
    def of(cls, tensors: Iterable[TensorInfo]) -> StateManifest:
        """A manifest of these tensors in any order."""
        return cls(tuple(sorted(tensors, key=lambda tensor: _path_key(tensor.path))))

    @classmethod
    def parse(cls, data: bytes) -> StateManifest:
        """The manifest that these canonical bytes hold.

        Raises:
            Malformed: not a list of tensors.
        """
        document = parse_canonical(data)
        try:
            if not isinstance(document, dict) or document["kind"] != "state" or document["version"] != 1:
                raise ValueError("no object of kind state, version 1")
            manifest = cls(tuple(_tensor(item) for item in document["tensors"]))
        except (ValueError, KeyError, TypeError) as error:
            raise Malformed("state manifest", expected="canonical JSON of a state", found=str(error)) from error
        if manifest.encode() != data:
            raise Malformed("state manifest", expected="the fields of version 1 only", found="others")
        return manifest

    def encode(self) -> bytes:
        """The canonical bytes, with dtype, shape and size beside each digest."""
        tensors = [
            {
                "digest": tensor.digest,
                "dtype": tensor.dtype,
                "nbytes": tensor.nbytes,
                "path": tensor.path,
                "shape": list(tensor.shape),
            }
            for tensor in self.tensors
        ]
        return canonical_bytes({"kind": "state", "tensors": tensors, "version": 1})

    @property
    def digest(self) -> str:
        """The digest of the state; equals ``state_digest`` of its (path, digest) pairs."""
        return state_digest({tensor.path: tensor.digest for tensor in self.tensors})

    def tensor(self, path: str) -> TensorInfo:
        """The tensor at one path; ``NotFound`` where there is none."""
        for tensor in self.tensors:
            if tensor.path == path:
                return tensor
        raise NotFound("tensor in a state", where=path, expected="a path of its manifest")

    def differing(self, other: StateManifest) -> tuple[str, ...]:
        """Paths whose tensors are not the same in both, or are in one only; sorted."""
        mine = {tensor.path: tensor.digest for tensor in self.tensors}
        theirs = {tensor.path: tensor.digest for tensor in other.tensors}
        return tuple(sorted(path for path in mine.keys() | theirs.keys() if mine.get(path) != theirs.get(path)))


class TensorHasher:
    """Digests a tensor from its bytes as they come, in C order and little-endian: for files too large to hold.

    A token cache or a tensor of a checkpoint is fed in pieces of any length; ``digest`` refuses too few or too many.
    """

    def __init__(self, dtype: str, shape: Iterable[int]) -> None:
        self._dtype = dtype
        self._shape = _checked_shape(shape)
        self._expected = math.prod(self._shape) * item_size(dtype)
        self._seen = 0
        self._leaves: list[bytes] = []
        self._tile = _leaf_hasher()

    def update(self, data: bytes | bytearray | memoryview) -> None:
        """Take the next bytes."""
        view = memoryview(data).cast("B")
        while view:
            room = TILE_SIZE - self._seen % TILE_SIZE
            piece = view[:room]
            self._tile.update(piece)
            self._seen += len(piece)
            view = view[room:]
            if self._seen % TILE_SIZE == 0:
                self._leaves.append(self._tile.digest())
                self._tile = _leaf_hasher()

    def digest(self) -> str:
        """The digest of the whole tensor, once all its bytes were given; ``Refused`` before."""
        if self._seen != self._expected:
            raise Refused(
                "bytes of a tensor",
                where=f"{self._dtype}{list(self._shape)}",
                expected=f"{self._expected}",
                found=f"{self._seen}",
                cure="feed every element once, in C order",
            )
        open_tile = [self._tile.digest()] if self._seen % TILE_SIZE else []
        return _bind(self._dtype, self._shape, self._leaves + open_tile)


def tensor_digest(array: Any) -> str:
    """The digest of anything that NumPy can see as an array (NumPy, JAX on one host, ml_dtypes)."""
    return tensor_info("", array).digest


def tensor_info(path: str, array: Any) -> TensorInfo:
    """The digest of one array, with what it says about itself."""
    with ThreadPoolExecutor(_WORKERS) as pool:
        return _describe(pool, path, array)


def describe_state(arrays: Mapping[str, Any]) -> StateManifest:
    """Digest every array of a state, one after the other, each with all threads."""
    with ThreadPoolExecutor(_WORKERS) as pool:
        return StateManifest.of(_describe(pool, path, array) for path, array in arrays.items())


def state_digest(tensors: Mapping[str, str | TensorInfo]) -> str:
    """The digest of a state from its tensors' digests: the sorted list of (path, digest)."""
    pairs = []
    for path in sorted(tensors, key=_path_key):
        tensor = tensors[path]
        digest = tensor if isinstance(tensor, str) else tensor.digest
        parse_digest(digest)
        pairs.append({"digest": digest, "path": path})
    return canonical_digest({"kind": "state", "tensors": pairs, "version": 1})


def item_size(dtype: str) -> int:
    """Bytes per element of a type by its name; Refused for what has no fixed numeric bytes."""
    size = _ITEM_SIZES.get(dtype)
    if size is None:
        raise Refused(
            "type of a tensor",
            expected="a bool, integer, floating or complex type of fixed width",
            found=dtype,
            cure="convert it; for a JAX key array digest jax.random.key_data(key)",
        )
    return size


def dtype_of(name: str) -> Any:
    """The type of that name, NumPy's or ml_dtypes' (bfloat16, float8)."""
    import numpy as np

    if name == "bfloat16" or name.startswith("float8"):
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))
    return np.dtype(name)


def leaf_hashes(values: NDArray[Any]) -> list[bytes]:
    """The leaf hashes of the tiles of a stretch of a tensor that begins at a tile and ends at one, or with the tensor."""
    return [
        leaf for start in range(0, values.nbytes, TILE_SIZE * _TILES_PER_TASK) for leaf in _hash_tiles(values, start)
    ]


def root_digest(dtype: str, shape: Sequence[int], leaves: Sequence[bytes]) -> str:
    """The digest of an array from the leaf hashes of its tiles, in order."""
    return _bind(dtype, tuple(shape), list(leaves))


def little_endian_bytes(values: NDArray[Any]) -> memoryview:
    """The elements in C order, little-endian; copied only where they do not lie so."""
    return _bytes_of(values, 0, values.nbytes)


def _describe(pool: ThreadPoolExecutor, path: str, array: Any) -> TensorInfo:
    values = _as_numpy(array)
    dtype, shape = values.dtype.name, tuple(values.shape)
    tasks = range(0, values.nbytes, TILE_SIZE * _TILES_PER_TASK)
    leaves: list[bytes] = []
    for hashes in pool.map(lambda start: _hash_tiles(values, start), tasks):
        leaves.extend(hashes)
    return TensorInfo(path, dtype, shape, _bind(dtype, shape, leaves), values.nbytes)


def _as_numpy(array: Any) -> NDArray[Any]:
    import numpy as np

    # A JAX key array or a ragged list has no numeric bytes: NumPy would make objects of it, or JAX refuses.
    name = str(getattr(array, "dtype", "")) or np.asarray(array).dtype.name
    try:
        values = np.asarray(array)
    except TypeError as error:
        item_size(name)
        raise Refused("array", expected="one whose elements are on this host", found=str(error)) from error
    if item_size(values.dtype.name) != values.dtype.itemsize:
        raise Refused(
            "type of a tensor", expected=f"{item_size(values.dtype.name)} bytes", found=str(values.dtype.itemsize)
        )
    return values


def _hash_tiles(values: NDArray[Any], start: int) -> list[bytes]:
    """Leaf hashes of the tiles from byte ``start``, as many as one task takes."""
    view = _bytes_of(values, start, min(values.nbytes, start + TILE_SIZE * _TILES_PER_TASK))
    hashes = []
    for offset in range(0, len(view), TILE_SIZE):
        tile = _leaf_hasher()
        tile.update(view[offset : offset + TILE_SIZE])
        hashes.append(tile.digest())
    return hashes


def _bytes_of(values: NDArray[Any], start: int, end: int) -> memoryview:
    """Bytes ``start`` to ``end`` of the elements in C order, little-endian; copied only where they do not lie so."""
    import numpy as np

    size = values.dtype.itemsize
    if values.flags.c_contiguous:
        flat = values.reshape(-1)[start // size : end // size]
    else:
        flat = values.flat[start // size : end // size]
    if values.dtype.byteorder == ">" or (values.dtype.byteorder == "=" and not _LITTLE):
        flat = flat.byteswap()
    return memoryview(flat.view(np.uint8)).cast("B")


def _bind(dtype: str, shape: tuple[int, ...], leaves: list[bytes]) -> str:
    root = tlog.root_of(leaves).hex()
    return canonical_digest({"dtype": dtype, "root": root, "shape": list(shape)})


def _leaf_hasher() -> hashlib._Hash:
    """A sha256 that has taken RFC 6962's leaf prefix: the tile follows without being copied behind it."""
    return hashlib.sha256(b"\x00")


def _checked_shape(shape: Iterable[int]) -> tuple[int, ...]:
    checked = tuple(shape)
    if any(type(extent) is not int or extent < 0 for extent in checked):
        raise Refused("shape of a tensor", expected="whole numbers from 0", found=repr(checked))
    return checked


def _path_key(path: str) -> bytes:
    return path.encode("utf-8", "surrogatepass")


def _tensor(item: object) -> TensorInfo:
    if not isinstance(item, dict):
        raise ValueError("a tensor that is no object")
    shape = item["shape"]
    if not isinstance(shape, list) or type(item["nbytes"]) is not int or not isinstance(item["path"], str):
        raise ValueError(f"a tensor with a value of the wrong type: {item!r:.200}")
    return TensorInfo(item["path"], str(item["dtype"]), _checked_shape(shape), str(item["digest"]), item["nbytes"])
