"""Documents and decisions in columns: Arrow files while a collection is made, Parquet in what it leaves.

Parquet is written by one set of settings: equal rows are equal bytes, with the writer that requirements.lock names
(docs/decisions/collections.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from marin.collection.document import Decision, Scalar

ROW_GROUP = 4096

READ = pa.schema(
    [
        ("id", pa.binary(16)),
        ("position", pa.int64()),
        ("as_read", pa.binary(32)),
        ("digest", pa.binary(32)),
        ("reason", pa.string()),
        ("text", pa.large_string()),
        ("added", pa.string()),
        ("created", pa.string()),
        ("metadata", pa.string()),
        ("bands", pa.large_binary()),
    ]
)
"""What was read of a slice, in its order. ``as_read``: SHA-256 of the text as it was read; ``digest``: as the steps left
it; ``reason``: why a step removed it, whose ``text`` is then left out. ``bands``: little-endian uint64[bands], or nothing."""

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
        ("reason", pa.string()),
    ]
)
"""Every document that was read of a slice, in its order; digests in hex."""
EXACT = pa.schema([("id", pa.string()), ("kept", pa.string()), ("digest", pa.string())])
"""Removed exact duplicates by id, the kept document, and the SHA-256 of the text of both, in hex."""
NEAR = pa.schema(
    [
        ("id", pa.string()),
        ("kept", pa.string()),
        ("shared", pa.int64()),
        ("united", pa.int64()),
        ("cluster", pa.string()),
    ]
)
"""Removed near-duplicates, the kept document, how many shingles both and either have, and the least id among all candidates
that hang together."""


def encode(values: Mapping[str, Scalar]) -> str:
    """One form of JSON for metadata and evidence."""
    return json.dumps(dict(values), ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)


def decision_row(decision: Decision, order: int) -> dict[str, Any]:
    """A row of :data:`DECISIONS`; ``order`` counts the decisions about one document."""
    return {
        "id": decision.document,
        "order": order,
        "step": decision.step,
        "action": decision.action,
        "reason": decision.reason,
        "evidence": encode(decision.evidence),
    }


class ArrowWriter:
    """Rows into an Arrow file whose columns can be mapped into memory, in batches of bounded size."""

    def __init__(self, path: Path, schema: pa.Schema, rows: int = 1024, size: int = 16 << 20) -> None:
        self._schema, self._rows, self._most = schema, rows, size
        self._file = pa.OSFile(str(path), "wb")
        self._writer = pa.ipc.new_file(self._file, schema)
        self._waiting: list[Mapping[str, Any]] = []
        self._size = 0

    def write(self, row: Mapping[str, Any], size: int = 0) -> None:
        """One row of about ``size`` bytes."""
        self._waiting.append(row)
        self._size += size
        if len(self._waiting) >= self._rows or self._size >= self._most:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_batch(pa.RecordBatch.from_pylist(list(self._waiting), schema=self._schema))
        self._waiting, self._size = [], 0

    def close(self) -> None:
        """Write what waits, and the footer."""
        self._flush()
        self._writer.close()
        self._file.close()


class ArrowRows:
    """An Arrow file that is mapped into memory, and rows of it by number."""

    def __init__(self, path: Path) -> None:
        self._reader = pa.ipc.open_file(pa.memory_map(str(path)))
        counts = [self._reader.get_batch(number).num_rows for number in range(self._reader.num_record_batches)]
        self._starts = np.cumsum([0, *counts])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def column(self, name: str) -> pa.ChunkedArray:
        """A whole column, not copied."""
        number = self._reader.schema.get_field_index(name)
        kind = self._reader.schema.field(number).type
        batches = range(self._reader.num_record_batches)
        return pa.chunked_array([self._reader.get_batch(one).column(number) for one in batches], type=kind)

    def take(self, rows: NDArray[np.int64], names: Sequence[str]) -> Iterable[tuple[int, dict[str, Any]]]:
        """(place in ``rows``, the row) in the order of the file."""
        order = np.argsort(rows, kind="stable")
        batches = np.searchsorted(self._starts, rows[order], side="right") - 1
        for batch in np.unique(batches).tolist():
            places = order[batches == batch]
            chosen = (
                self._reader.get_batch(batch).select(list(names)).take(pa.array(rows[places] - self._starts[batch]))
            )
            yield from zip(places.tolist(), chosen.to_pylist(), strict=True)


def fixed(column: pa.ChunkedArray, width: int) -> NDArray[np.uint8]:
    """A column of ``width`` bytes each as uint8[rows, width]."""
    parts = [
        np.frombuffer(chunk.buffers()[1], np.uint8)[chunk.offset * width : (chunk.offset + len(chunk)) * width]
        for chunk in column.chunks
        if len(chunk)
    ]
    joined = np.concatenate(parts) if parts else np.zeros(0, np.uint8)
    return joined.reshape(-1, width)


def long_rows(column: pa.ChunkedArray, width: int) -> NDArray[np.uint64]:
    """A column of large_binary, each nothing or ``width`` little-endian uint64, as uint64[rows, width]; zeros for nothing."""
    found = np.zeros((len(column), width), np.uint64)
    begin = 0
    for chunk in column.chunks:
        _, starts, data = chunk.buffers()
        ends = np.frombuffer(starts, np.int64)[chunk.offset : chunk.offset + len(chunk) + 1]
        if len(chunk) and ends[-1] > ends[0]:
            numbers = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]].view("<u8").reshape(-1, width)
            found[begin : begin + len(chunk)][np.diff(ends) > 0] = numbers
        begin += len(chunk)
    return found


class ParquetWriter:
    """Rows into a Parquet file of one form."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._schema = schema
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
        self._waiting: list[Mapping[str, Any]] = []
        self.rows = 0

    def write(self, row: Mapping[str, Any]) -> None:
        """One row."""
        self._waiting.append(row)
        self.rows += 1
        if len(self._waiting) >= ROW_GROUP:
            self._flush()

    def write_columns(self, columns: Mapping[str, Any]) -> None:
        """Whole columns, in place of rows."""
        table = pa.table(dict(columns), schema=self._schema)
        self.rows += len(table)
        self._writer.write_table(table, ROW_GROUP)

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_pylist(list(self._waiting), schema=self._schema), ROW_GROUP)
        self._waiting = []

    def close(self) -> None:
        """Write what waits, and the footer."""
        self._flush()
        self._writer.close()


_HEX = np.array([list(b"%02x" % byte) for byte in range(256)], np.uint8)


def hex_column(data: NDArray[np.uint8]) -> pa.Array:
    """uint8[rows, width] as a column of hex texts."""
    rows, width = data.shape
    letters = np.ascontiguousarray(_HEX[data].reshape(-1))
    offsets = np.arange(rows + 1, dtype=np.int64) * (2 * width)
    column = pa.LargeStringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(letters))
    return column.cast(pa.string())
