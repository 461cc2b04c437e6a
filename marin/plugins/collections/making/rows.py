"""All documents that were read, by number: shard after shard, row after row. Their columns stay in the files that tasks left.

What is looked at together is cut by the first bits of a key, so that each piece has all documents of its keys and memory does
not grow with the collection; what is held for each document is a bit or a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from marin.plugins.collections.tasks.columns import ArrowRows, fixed_width_rows
from marin.plugins.collections.tasks.task import JUDGED_FILE, READ_FILE

PIECE = 1 << 19
"""Documents that are looked at together, about."""
WAITING = 16 << 20
"""Bytes of rows on their way to the files of their pieces."""
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
        keys, inside of a piece by number. A column of bytes is uint64[documents, width / 8], as big-endian numbers. What is cut
        lies in files that are mapped, so a piece that is large, for its documents have one key, is not in memory as a whole."""
        bits = max(0, (int(which.sum()) - 1) // PIECE).bit_length()
        parts = self._chosen(which, key, *columns)
        if not bits:
            found = list(parts)
            if found:
                numbers, values = zip(*found, strict=True)
                yield np.concatenate(numbers), [np.concatenate(column) for column in zip(*values, strict=True)]
            return
        with TemporaryDirectory(prefix="pieces-", dir=self._folder) as folder:
            names = [f"column_{number}" for number in range(len(columns) + 1)]
            for piece in _spread(parts, names, bits, Path(folder)):
                yield piece["number"], [piece[name] for name in names]

    def _chosen(
        self, which: NDArray[np.bool_], *columns: str
    ) -> Iterator[tuple[NDArray[np.int64], list[NDArray[Any]]]]:
        """The same, shard after shard as they are."""
        for here, values in self.each(*columns):
            some = np.flatnonzero(which[here])
            if len(some):
                yield some + here.start, [column[some] for column in values]

    def _column(self, shard: str, column: str) -> NDArray[Any]:
        read = column in OF_READING
        kind, file = ("read", READ_FILE) if read else (self.judged, JUDGED_FILE)
        found = ArrowRows(self._folder / kind / shard / file).column(column)
        if pa.types.is_fixed_size_binary(found.type):
            return fixed_width_rows(found, found.type.byte_width).view(">u8").astype(np.uint64)
        values: NDArray[Any] = found.to_numpy()
        return values


def _spread(
    parts: Iterable[tuple[NDArray[np.int64], list[NDArray[Any]]]], names: Sequence[str], bits: int, folder: Path
) -> Iterator[NDArray[np.void]]:
    """Rows of ``number`` and ``names``, a file for each value of the first bits of the first of these; then file after file.
    All is read once and written once, however many pieces there are."""
    waiting: list[NDArray[np.void]] = []
    size, form = 0, np.dtype([])
    for numbers, values in parts:
        own = [(name, column.dtype, column.shape[1:]) for name, column in zip(names, values, strict=True)]
        form = np.dtype([("number", np.int64), *own])
        rows = np.empty(len(numbers), form)
        for name, column in zip(("number", *names), (numbers, *values), strict=True):
            rows[name] = column
        waiting.append(rows)
        size += rows.nbytes
        if size >= WAITING:
            _append(waiting, names[0], bits, folder)
            size = 0
    if waiting:
        _append(waiting, names[0], bits, folder)
    for place in range(1 << bits):
        if (path := folder / str(place)).exists():
            piece = np.asarray(np.memmap(path, form, "r"))
            path.unlink()  # it stays as long as it is mapped
            yield piece


def _append(waiting: list[NDArray[np.void]], key: str, bits: int, folder: Path) -> None:
    """Each row to the file of its piece, in the order in which they came."""
    rows = np.concatenate(waiting)
    waiting.clear()
    keys = rows[key] if rows[key].ndim == 1 else rows[key][:, 0]
    places = keys >> np.uint64(64 - bits)
    order = np.argsort(places, kind="stable")
    found, firsts = np.unique(places[order], return_index=True)
    for place, piece in zip(found.tolist(), np.split(rows[order], firsts[1:]), strict=True):
        with (folder / str(place)).open("ab") as file:
            piece.tofile(file)


def as_bytes(numbers: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """uint64[rows, columns] of big-endian numbers as uint8[rows, 8 * columns]."""
    return np.ascontiguousarray(numbers.astype(">u8")).view(np.uint8).reshape(len(numbers), -1)
