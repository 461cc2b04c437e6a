"""A token cache read where it is stored: a host takes the tokens that it trains on, and no copy of the cache.

Every byte is verified under the digest of the stored tree, in parts of 8 MiB. A cache's arrays are zarr3 with the codec
``sharding_indexed``, as Levanter writes them: a file has chunks of 262,144 elements, and behind them an index of where each
begins and how long it is (zarr-specs, "Sharding codec"). So the index of a file and the chunks that are asked for are read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorstore

from ledger import StoredFolder
from marin.errors import DataError
from marin.tensors.array_form import ABSENT, MOST_METADATA, ArrayForm
from marin.tensors.token_caches import FIELD, LEDGER, finished_rows, unfinished

if TYPE_CHECKING:
    from numpy.typing import NDArray

KEPT = 64
"""Chunks of an array that stay in memory: 64 MiB of tokens."""


class StoredArray:
    """A stored zarr3 array of one axis, of this dtype: ``array[start:stop]``.

    Raises:
        DataError: it is not of the form that Levanter's caches have.
        NotFound, Tampered: its bytes are not there, or not what they were.
    """

    def __init__(self, folder: StoredFolder, dtype: str) -> None:
        self._folder = folder
        try:
            form = ArrayForm.parse(folder.read("zarr.json", 0, MOST_METADATA + 1), dtype)
        except ValueError as error:
            raise self._odd("zarr.json", str(error)) from error
        self.dtype, self._form = form.dtype, form
        self._chunk, self._chunks, self._codecs = form.chunk, form.chunks, form.codecs
        self._index = lru_cache(maxsize=None)(self._read_index)
        self._decoded = lru_cache(maxsize=KEPT)(self._read_chunk)

    def __getitem__(self, span: slice) -> NDArray[Any]:
        start, stop = int(span.start), int(span.stop)
        first, last = start // self._chunk, -(-stop // self._chunk)
        if stop <= start:
            return np.zeros(0, self.dtype)
        whole = [self._decoded(number) for number in range(first, last)]
        return np.concatenate(whole)[start - first * self._chunk : stop - first * self._chunk]

    def _read_chunk(self, number: int) -> NDArray[Any]:
        file, within = divmod(number, self._chunks)
        begin, size = self._index(file)[within].tolist()
        if (begin, size) == (ABSENT, ABSENT):
            return np.zeros(self._chunk, self.dtype)
        data = self._folder.read(f"c/{file}", begin, size)
        try:
            self._form.check_head(data)
        except ValueError as error:
            raise self._odd(f"c/{file}", str(error)) from error
        return self._decode(file, data)

    def _read_index(self, file: int) -> NDArray[np.uint64]:
        size = self._folder.size(f"c/{file}")
        if size is None:
            return np.full((self._chunks, 2), ABSENT, np.uint64)
        try:
            return self._form.index(size, lambda begin, count: self._folder.read(f"c/{file}", begin, count))
        except ValueError as error:
            raise self._odd(f"c/{file}", str(error)) from error

    def _decode(self, file: int, data: bytes) -> NDArray[Any]:
        """A chunk by TensorStore's own codecs: as the only one of an array in memory."""
        metadata = {
            "shape": [self._chunk],
            "data_type": self.dtype.name,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [self._chunk]}},
            "codecs": self._codecs,
        }
        context = tensorstore.Context({"cache_pool": {"total_bytes_limit": 0}})
        spec = {"driver": "zarr3", "kvstore": {"driver": "memory"}, "metadata": metadata}
        try:
            array = tensorstore.open(spec, create=True, context=context).result()
            assert array.kvstore is not None, "an array of zarr3 lies in a key-value store"
            array.kvstore["c/0"] = data
            return np.asarray(array.read().result())
        except (ValueError, KeyError, OSError, RuntimeError) as error:
            raise self._odd(f"c/{file}", " ".join(str(error).split())[:200]) from error

    def _odd(self, file: str, found: str) -> DataError:
        return DataError(
            "a stored token cache can not be read where it is",
            where=f"{self._folder.path}/{file}",
            expected="a zarr3 array of one axis with the codec sharding_indexed, as Levanter writes it",
            found=found,
            cure="make it again: marin stage tokens",
        )


class StoredCache:
    """A stored token cache: the tokens of a stream.

    Raises:
        DataError: it was not finished, or is not of the form that Levanter writes.
        NotFound, Tampered: its bytes are not there, or not what they were.
    """

    def __init__(self, folder: StoredFolder) -> None:
        self.data = StoredArray(folder / FIELD / "data", "int32")
        self._offsets = StoredArray(folder / FIELD / "offsets", "int64")
        self._rows = finished_rows(folder.read(LEDGER), folder.path)
        ends = self._offsets[0:1].tolist() + self._offsets[self._rows : self._rows + 1].tolist()
        if ends[0] != self._rows or ends[1] < 0:
            raise unfinished(folder.path, f"{ends[0]} documents beside {self._rows}, {ends[1]} tokens")
        self.tokens = ends[1] if self._rows else 0

    def offsets(self) -> NDArray[np.int64]:
        """int64[documents + 1]: where each document begins, and the end."""
        found = self._offsets[0 : self._rows + 1].copy()
        found[0] = 0  # Levanter keeps the number of rows in the first place
        return found

    async def read(self, places: Sequence[int], length: int) -> Sequence[NDArray[Any]]:
        """int32[length] from each of these places of the stream on."""
        return await asyncio.gather(*(asyncio.to_thread(self._taken, place, length) for place in places))

    def _taken(self, place: int, length: int) -> NDArray[Any]:
        return self.data[place : place + length]
