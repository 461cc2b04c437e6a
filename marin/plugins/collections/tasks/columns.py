"""Documents and decisions in columns: Arrow files while a collection is made, Parquet in what it leaves.

Parquet is written by one set of settings: equal rows are equal bytes, with the writer that requirements.lock names
(docs/decisions/collections.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from mmap import ACCESS_READ, MADV_RANDOM, MADV_WILLNEED, PAGESIZE, mmap
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from marin.plugins.collections.document import Decision, Scalar, encodable

ROW_GROUP = 4096
DENSE = 4
"""Where at least one of so many rows of a batch is taken, all of it is read together."""

READ = pa.schema(
    [
        ("id", pa.binary(16)),
        ("position", pa.int64()),
        ("as_read", pa.binary(32)),
        ("reason", pa.string()),
        ("text", pa.large_string()),
        ("added", pa.string()),
        ("created", pa.string()),
        ("metadata", pa.string()),
    ]
)
"""What was read of a slice, in its order. ``as_read``: SHA-256 of the text as it stands in the source; ``text``: as the
steps left it that make text of pages; ``reason``: why one of these removed it, whose ``text`` is then left out."""


def judged_schema(bands: int) -> pa.Schema:
    """What the other steps say, a row for each of :data:`READ`. ``digest``: SHA-256 of the text as they left it; ``place``,
    ``draw``: where that text stands among all texts, for splitting and for sampling; ``size``: its bytes; ``text``: null where
    it is as it was read; ``shingled``: whether it has words, and then a key for each band."""
    return pa.schema(
        [
            ("digest", pa.binary(32)),
            ("place", pa.uint64()),
            ("draw", pa.uint64()),
            ("reason", pa.string()),
            ("size", pa.int64()),
            ("text", pa.large_string()),
            ("shingled", pa.bool_()),
            *((band_name(band), pa.uint64()) for band in range(bands)),
        ]
    )


PARAGRAPHS_FORM = pa.schema([("row", pa.int64()), ("line", pa.int64()), ("digest", pa.binary(32))])
"""Paragraphs of what was judged: row and line, from 0, and the SHA-256 of the line without white space around it."""


def band_name(band: int) -> str:
    """The column of a band's keys."""
    return f"band_{band:02d}"


DECISIONS = pa.schema(
    [
        ("id", pa.string()),
        ("order", pa.int32()),
        ("step", pa.string()),
        ("action", pa.string()),
        ("reason", pa.string()),
        ("evidence", pa.string()),
    ]
)
DOCUMENTS = pa.schema(
    [
        ("id", pa.string()),
        ("text", pa.large_string()),
        ("source", pa.string()),
        ("added", pa.string()),
        ("created", pa.string()),
        ("metadata", pa.string()),
        ("split", pa.string()),
    ]
)
LISTING = pa.schema(
    [
        ("id", pa.string()),
        ("position", pa.int64()),
        ("url", pa.string()),
        ("as_read", pa.string()),
        ("digest", pa.string()),
        ("bytes", pa.int64()),
        ("reason", pa.string()),
    ]
)
"""Every document that was read of a slice, in its order; digests in hex. ``bytes``: UTF-8 of its text before it was judged."""
EXACT = pa.schema([("id", pa.string()), ("kept", pa.string()), ("digest", pa.string())])
"""Removed exact duplicates in the order of their texts' digests, then of their ids; that of them which
no step had removed so far; the SHA-256 of the text of both, in hex."""
NEAR = pa.schema(
    [
        ("id", pa.string()),
        ("kept", pa.string()),
        ("shared", pa.int64()),
        ("united", pa.int64()),
        ("cluster", pa.string()),
    ]
)
"""Removed near-duplicates, the document that was kept, how many shingles both and either have, and the least id among all
candidates that hang together."""
BOUNDED = pa.schema([("id", pa.string()), ("compared", pa.int64()), ("candidates", pa.int64())])
"""Documents that stayed though they were not compared with all kept ones that share a band: with how many they were compared, of
how many that were listed and have a size to be similar."""


def encode(values: Mapping[str, Scalar]) -> str:
    """One form of JSON for metadata and evidence; half of a surrogate pair, which UTF-8 has not, is escaped as JSON does it."""
    text = json.dumps(dict(values), ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return encodable(text)


def decision_row(decision: Decision, order: int) -> tuple[str, int, str, str, str, str]:
    """A row of :data:`DECISIONS`; ``order`` counts the decisions about one document."""
    return decision.document, order, decision.step, decision.action, decision.reason, encode(decision.evidence)


class _Columns:
    """Rows that wait to be written, a list for each column."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.lists: list[list[Any]] = [[] for _ in schema]

    def append(self, row: Sequence[Any]) -> int:
        """One row, in the order of the schema; how many wait."""
        for column, value in zip(self.lists, row, strict=True):
            column.append(value)
        return len(self.lists[0])

    def take(self) -> list[pa.Array]:
        """Those that wait, which then wait no more."""
        arrays = [pa.array(column, field.type) for column, field in zip(self.lists, self.schema, strict=True)]
        self.lists = [[] for _ in self.schema]
        return arrays


class ArrowWriter:
    """Rows into an Arrow file whose columns can be mapped into memory, in batches of bounded size."""

    def __init__(self, path: Path, schema: pa.Schema, rows: int = 1024, size: int = 16 << 20) -> None:
        self._waiting, self._rows, self._most = _Columns(schema), rows, size
        self._file = pa.OSFile(str(path), "wb")
        self._writer = pa.ipc.new_file(self._file, schema)
        self._size = 0

    def write(self, row: Sequence[Any], size: int = 0) -> None:
        """One row, in the order of the schema, of about ``size`` bytes."""
        self._size += size
        if self._waiting.append(row) >= self._rows or self._size >= self._most:
            self._flush()

    def write_columns(self, columns: Sequence[Any]) -> None:
        """Whole columns as a batch, in the order of the schema."""
        schema = self._waiting.schema
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        self._writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))

    def _flush(self) -> None:
        if self._waiting.lists[0]:
            self._writer.write_batch(pa.RecordBatch.from_arrays(self._waiting.take(), schema=self._waiting.schema))
        self._size = 0

    def close(self) -> None:
        """Write what waits, and the footer."""
        self._flush()
        self._writer.close()
        self._file.close()


class ArrowRows:
    """An Arrow file that is mapped into memory, and rows of it by number.

    Only the pages of what is asked for are read: Arrow's own maps have the kernel read a whole batch for each row of it, and rows
    of a component are scattered over all files, which are more than fits into memory.
    """

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._map = mmap(file.fileno(), 0, access=ACCESS_READ)
        self._map.madvise(MADV_RANDOM)
        whole = pa.py_buffer(self._map)
        self._begin = whole.address
        self._reader = pa.ipc.open_file(pa.BufferReader(whole))
        counts = [self._reader.get_batch(number).num_rows for number in range(self._reader.num_record_batches)]
        self._starts = np.cumsum([0, *counts])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def column(self, name: str) -> pa.ChunkedArray:
        """A whole column, not copied."""
        number = self._reader.schema.get_field_index(name)
        kind = self._reader.schema.field(number).type
        return pa.chunked_array([self._soon(batch.column(number)) for batch in self._batches()], type=kind)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All of it, batch after batch."""
        for batch in self._batches():
            for column in batch.columns:
                self._soon(column)
            yield batch

    def _batches(self) -> Iterator[pa.RecordBatch]:
        yield from map(self._reader.get_batch, range(self._reader.num_record_batches))

    def _soon(self, column: pa.Array) -> pa.Array:
        """The column, whose pages the kernel is told to read together."""
        for buffer in column.buffers():
            if buffer is not None and buffer.size:
                first = (buffer.address - self._begin) // PAGESIZE * PAGESIZE
                self._map.madvise(MADV_WILLNEED, first, buffer.address + buffer.size - self._begin - first)
        return column

    def take(self, rows: NDArray[np.int64], names: Sequence[str]) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """(place in ``rows``, values of these columns) in the order of the file."""
        order = np.argsort(rows, kind="stable")
        batches = np.searchsorted(self._starts, rows[order], side="right") - 1
        for batch in np.unique(batches).tolist():
            places = order[batches == batch]
            found = self._reader.get_batch(batch).select(list(names))
            if len(places) * DENSE >= len(found):
                for column in found.columns:
                    self._soon(column)
            chosen = found.take(pa.array(rows[places] - self._starts[batch]))
            yield from zip(places.tolist(), zip(*(column.to_pylist() for column in chosen), strict=True), strict=True)


def fixed_width_rows(column: pa.ChunkedArray, width: int) -> NDArray[np.uint8]:
    """A column of ``width`` bytes each as uint8[rows, width]."""
    parts = [
        np.frombuffer(chunk.buffers()[1], np.uint8)[chunk.offset * width : (chunk.offset + len(chunk)) * width]
        for chunk in column.chunks
        if len(chunk)
    ]
    joined = np.concatenate(parts) if parts else np.zeros(0, np.uint8)
    return joined.reshape(-1, width)


class ParquetWriter:
    """Rows into a Parquet file of one form."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._writer = pq.ParquetWriter(
            path,
            schema,
            version="2.6",
            compression="zstd",
            compression_level=3,
            use_dictionary=False,
            write_statistics=False,
            store_schema=False,
            data_page_size=1 << 20,
            write_batch_size=1024,
            column_encoding="PLAIN",
        )
        self._waiting = _Columns(schema)
        self._tables: list[pa.Table] = []

    def write(self, row: Sequence[Any]) -> None:
        """One row, in the order of the schema."""
        if self._waiting.append(row) >= ROW_GROUP:
            self._flush()

    def write_columns(self, columns: Mapping[str, Any]) -> None:
        """Whole columns, in place of rows: in pieces of any size, which leave no trace."""
        self._tables.append(pa.table(dict(columns), schema=self._waiting.schema))
        if sum(map(len, self._tables)) >= ROW_GROUP:
            joined = pa.concat_tables(self._tables)
            full = len(joined) - len(joined) % ROW_GROUP
            self._writer.write_table(joined.slice(0, full).combine_chunks(), ROW_GROUP)
            self._tables = [joined.slice(full).combine_chunks()]

    def _flush(self) -> None:
        if self._waiting.lists[0]:
            table = pa.Table.from_arrays(self._waiting.take(), schema=self._waiting.schema)
            self._writer.write_table(table, ROW_GROUP)

    def close(self) -> None:
        """Write what waits, and the footer."""
        self._flush()
        if self._tables:
            self._writer.write_table(pa.concat_tables(self._tables).combine_chunks(), ROW_GROUP)
        self._writer.close()


_HEX = np.array([list(b"%02x" % byte) for byte in range(256)], np.uint8)


def hex_column(data: NDArray[np.uint8]) -> pa.Array:
    """uint8[rows, width] as a column of hex texts."""
    rows, width = data.shape
    letters = np.ascontiguousarray(_HEX[data].reshape(-1))
    offsets = np.arange(rows + 1, dtype=np.int64) * (2 * width)
    column = pa.LargeStringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(letters))
    return column.cast(pa.string())
