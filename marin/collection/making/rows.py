"""All documents that were read, by number: shard after shard, row after row. Their columns stay in the files that tasks left.

What is looked at together is cut by the first bits of a key, so that each piece has all documents of its keys and memory does
not grow with the collection; what is held for each document is a bit or a number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from marin.collection.tasks.columns import ArrowRows, fixed
from marin.collection.tasks.task import JUDGED_FILE, READ_FILE

PIECE = 1 << 19
"""Documents that are looked at together, about."""
OF_READING = ("id", "position")


class Rows:
    """``names``: of the shards; ``judged``: the kind of task that judged them last. ``kept``: bool[documents], of those that no
    step has removed so far."""

    def __init__(self, folder: Path, names: Sequence[str], judged: str = "judge") -> None:
        self.names, self.judged = names, judged
        self._folder = folder
        counts, kept = [], []
        for name in names:
            reasons = ArrowRows(folder / judged / name / JUDGED_FILE).column("reason")
            counts.append(len(reasons))
            kept.append(pc.equal(reasons, "").to_numpy())
        self.starts = np.cumsum([0, *counts])
        self.kept: NDArray[np.bool_] = np.concatenate(kept).astype(bool) if kept else np.zeros(0, bool)

    def __len__(self) -> int:
        return int(self.starts[-1])

    def places(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The shard of each document, and its row there."""
        shards = np.searchsorted(self.starts, numbers, side="right") - 1
        return shards.astype(np.int32), numbers - self.starts[shards]

    def each(self, *columns: str) -> Iterator[tuple[slice, list[NDArray[Any]]]]:
        """The numbers of a shard and its columns, shard after shard."""
        for number, name in enumerate(self.names):
            here = slice(int(self.starts[number]), int(self.starts[number + 1]))
            if here.stop > here.start:
                yield here, [self._column(name, column) for column in columns]

    def take(self, column: str, numbers: NDArray[np.int64]) -> NDArray[Any]:
        """The values of documents whose numbers are in order."""
        found = []
        for here, (values,) in self.each(column):
            first, end = np.searchsorted(numbers, (here.start, here.stop))
            if end > first:
                found.append(values[numbers[first:end] - here.start])
        return np.concatenate(found) if found else np.zeros(0, np.int64)

    def among(self, files: Sequence[Path], column: str) -> NDArray[np.bool_]:
        """bool[documents]: those whose id stands in this column of one of these Parquet files, in hex."""
        named = (text for path in files for text in pq.read_table(path, columns=[column])[column].to_pylist())
        wanted = pa.array(map(bytes.fromhex, named), pa.binary(16))
        found = np.zeros(len(self), bool)
        for number, name in enumerate(self.names):
            ids = ArrowRows(self._folder / "read" / name / READ_FILE).column("id")
            found[self.starts[number] : self.starts[number + 1]] = pc.is_in(ids, value_set=wanted).to_numpy()
        return found

    def grouped(
        self, which: NDArray[np.bool_], key: str, *columns: str
    ) -> Iterator[tuple[NDArray[np.int64], list[NDArray[Any]]]]:
        """Numbers, keys and more columns of the documents ``which``, cut by the first bits of the key: pieces in the order of
        keys, inside of a piece by number. A column of bytes is uint64[documents, width / 8], as big-endian numbers."""
        bits = max(0, (int(which.sum()) - 1) // PIECE).bit_length()
        for piece in range(1 << bits):
            numbers: list[NDArray[np.int64]] = []
            parts: list[list[NDArray[Any]]] = []
            for here, values in self.each(key, *columns):
                chosen = which[here]
                if bits:
                    first = values[0] if values[0].ndim == 1 else values[0][:, 0]
                    chosen = chosen & (first >> np.uint64(64 - bits) == piece)
                some = np.flatnonzero(chosen)
                if len(some):
                    numbers.append(some + here.start)
                    parts.append([column[some] for column in values])
            if numbers:
                yield np.concatenate(numbers), [np.concatenate(column) for column in zip(*parts, strict=True)]

    def _column(self, shard: str, column: str) -> NDArray[Any]:
        read = column in OF_READING
        kind, file = ("read", READ_FILE) if read else (self.judged, JUDGED_FILE)
        found = ArrowRows(self._folder / kind / shard / file).column(column)
        if pa.types.is_fixed_size_binary(found.type):
            return fixed(found, found.type.byte_width).view(">u8").astype(np.uint64)
        values: NDArray[Any] = found.to_numpy()
        return values


def as_bytes(numbers: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """uint64[rows, columns] of big-endian numbers as uint8[rows, 8 * columns]."""
    return np.ascontiguousarray(numbers.astype(">u8")).view(np.uint8).reshape(len(numbers), -1)
