"""A token cache is written: the files of Levanter's own store (``TreeCache``), by TensorStore alone.

Each column is a ragged array in two zarr3 arrays: ``data``, the elements of all rows one behind the other, and ``offsets``, which
has the number of rows in its first place and where each row ends in those after it. Levanter's ``SerialCacheWriter`` writes the
same bytes, and a test holds that; importing it takes seconds, the writing itself a moment.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorstore

from marin.tensors.token_caches import FIELD, LEDGER, MASK

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHUNK = 1 << 18
"""Elements that are compressed as one."""
FILE_CHUNKS = 512
SHARD = "all"
"""What Levanter's ledger calls the rows: they come from one writer."""
_EXTENT = 1 << 54
_CODEC = {"name": "blosc", "configuration": {"cname": "zstd", "clevel": 1}}


class CacheWriter:
    """Writes a cache into ``folder``, in the place of any that is there. ``masked``: with a loss mask as a column."""

    def __init__(self, folder: Path, *, masked: bool) -> None:
        self._folder = folder
        self._columns = {FIELD: _Column(folder / FIELD, "int32")}
        if masked:
            self._columns[MASK] = _Column(folder / MASK, "uint8")

    @property
    def documents(self) -> int:
        """How many were written."""
        return self._columns[FIELD].rows

    @property
    def tokens(self) -> int:
        """How many were written."""
        return self._columns[FIELD].size

    def write(self, documents: Sequence[tuple[NDArray[np.int32], bytes]]) -> None:
        """Append documents: the token ids of each, and its mask, which counts where the cache has that column."""
        if documents:
            self._columns[FIELD].extend([ids for ids, _ in documents])
            if MASK in self._columns:
                self._columns[MASK].extend([np.frombuffer(mask, np.uint8) for _, mask in documents])

    def finish(self) -> None:
        """Say that the cache is whole: one without this is refused when it is read."""
        for column in self._columns.values():
            column.finish()
        told = {
            "total_num_rows": self.documents,
            "shard_rows": {SHARD: self.documents},
            "is_finished": True,
            "finished_shards": [SHARD],
            "field_counts": {name: column.size for name, column in self._columns.items()},
            "field_counts_by_shard": {},
            "layout": "consolidated",
            "metadata": {"preprocessor_metadata": {}},
        }
        (self._folder / LEDGER).write_text(json.dumps(told), "utf-8")


class _Column:
    def __init__(self, folder: Path, dtype: str) -> None:
        self._data, self._offsets = _created(folder / "data", dtype), _created(folder / "offsets", "int64")
        self.rows = self.size = 0

    def extend(self, rows: Sequence[NDArray[Any]]) -> None:
        ends = self.size + np.cumsum([len(row) for row in rows], dtype=np.int64)
        size, count = int(ends[-1]), self.rows + len(rows)
        written = [
            self._data[self.size : size].write(np.concatenate(rows)),
            self._offsets[self.rows + 1 : count + 1].write(ends),
        ]
        for write in written:
            write.result()
        self.rows, self.size = count, size

    def finish(self) -> None:
        if self.rows:
            self._offsets[0].write(self.rows).result()


def _created(folder: Path, dtype: str) -> Any:
    """An empty array of one axis. Its extent says nothing: files are there as far as something was written."""
    grid = {"name": "regular", "configuration": {"chunk_shape": [CHUNK * FILE_CHUNKS]}}
    sharding = {"name": "sharding_indexed", "configuration": {"chunk_shape": [CHUNK], "codecs": [_CODEC]}}
    spec = {
        "driver": "zarr3",
        "kvstore": {"driver": "file", "path": f"{folder}/"},
        "metadata": {"chunk_grid": grid, "codecs": [sharding]},
    }
    return tensorstore.open(spec, create=True, delete_existing=True, dtype=dtype, shape=[_EXTENT]).result()
