"""One stored array, digested in pieces: memory does not grow with it, and its metadata can not make it."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ledger import TensorHasher, TensorInfo
from marin.errors import DataError
from marin.tensors.array_form import check_plain

PIECE = 1 << 24
"""Bytes of an array that are read at a time, at least a row of its first axis."""

RATIO = 1 << 14
"""Bytes of arrays that one stored byte may stand for. Runs of one token compress 3,500 times; chunks that are not there,
which stand for zeros without end, any number of times."""

_CACHE = {"cache_pool": {"total_bytes_limit": 1 << 27}, "data_copy_concurrency": {"limit": 2}}


def plausible_bytes(folder: Path) -> int:
    """How many bytes of arrays the files in ``folder`` can honestly be."""
    return RATIO * (1024 + sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()))


def open_array(kvstore: Any, name: str) -> Any:
    """The zarr3 array ``name`` of a key-value store (a TensorStore spec), to read.

    Raises:
        DataError: there is no such array, or its metadata is invalid.
    """
    import tensorstore  # an auditor who reads no arrays does without its memory

    spec = {"driver": "zarr3", "kvstore": {**kvstore, "path": f"{kvstore.get('path', '')}{name}/"}}
    try:
        return tensorstore.open(spec, open=True, read=True, context=tensorstore.Context(_CACHE)).result()
    except (ValueError, KeyError, OSError, RuntimeError) as error:
        raise unreadable(name, error) from error


def array_info(kvstore: Any, name: str, limit: int) -> TensorInfo:
    """Dtype, shape, size and digest of a whole array.

    Args:
        limit: bytes that it may hold.

    Raises:
        DataError: it can not be read, is not of the form that a checkpoint's tensors have, or says that it is larger.
    """
    import tensorstore  # as above

    try:
        told = tensorstore.KvStore.open(kvstore).result().read(f"{name}/zarr.json").result()
        check_plain(bytes(told.value))
    except (ValueError, KeyError, OSError, RuntimeError) as error:
        raise unreadable(name, error) from error
    array = open_array(kvstore, name)
    dtype, shape = array.dtype.numpy_dtype.name, tuple(int(extent) for extent in array.shape)
    size = math.prod(shape) * array.dtype.numpy_dtype.itemsize
    if size > limit:
        raise DataError(
            "a stored array is larger than it may be",
            where=name,
            expected=f"at most {limit} bytes",
            found=f"{dtype}{list(shape)}, {size} bytes",
            cure="fetch it again from its recorder",
        )
    hasher = TensorHasher(dtype, shape)
    for piece in pieces(array, shape, name):
        hasher.update(elements(piece))
    return TensorInfo(name, dtype, shape, hasher.digest(), size)


def pieces(array: Any, shape: tuple[int, ...], name: str) -> Iterator[np.ndarray]:
    """The elements of ``array`` up to ``shape``, in C order, some rows of the first axis at a time."""
    itemsize = array.dtype.numpy_dtype.itemsize
    if not shape:
        yield _read_array(array, name)
        return
    rows = max(1, PIECE // max(1, math.prod(shape[1:]) * itemsize))
    for start in range(0, shape[0], rows):
        yield _read_array(array[start : min(start + rows, shape[0])], name)


def _read_array(array: Any, name: str) -> np.ndarray:
    try:
        return np.asarray(array.read().result())
    except (ValueError, KeyError, OSError, RuntimeError) as error:
        raise unreadable(name, error) from error


def elements(values: np.ndarray) -> memoryview:
    """The bytes of ``values``: C order, little-endian."""
    plain = values.byteswap() if sys.byteorder == "big" else values
    return memoryview(np.ascontiguousarray(plain).reshape(-1).view(np.uint8))


def unreadable(name: str, error: BaseException) -> DataError:
    """What TensorStore found wrong, in one line."""
    return DataError(
        "a stored array can not be read",
        where=name,
        expected="a zarr3 array",
        found=" ".join(str(error).split())[:300],
        cure="fetch it again from its recorder",
    )
