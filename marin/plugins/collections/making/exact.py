"""Exact duplicates: of equal texts, by their SHA-256, that with the least id is kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from marin.plugins.collections.making.rows import Rows, as_bytes
from marin.plugins.collections.tasks.columns import EXACT, ParquetWriter, hex_column

BLOCK = 1 << 16
"""Digests that are compared together."""


def remove_copies(rows: Rows, target: Path) -> int:
    """Take the copies out of ``rows`` and write which they are, and of what; how many."""
    writer, count = ParquetWriter(target, EXACT), 0
    for numbers, (digests, ids) in rows.grouped(rows.kept, "digest", "id"):
        removed, of = copies(digests, ids)
        count += len(removed)
        for begin in range(0, len(removed), 1 << 18):
            some, kept = removed[begin : begin + (1 << 18)], of[begin : begin + (1 << 18)]
            columns = (hex_column(as_bytes(column)) for column in (ids[some], ids[kept], digests[some]))
            writer.write_columns(dict(zip(EXACT.names, columns, strict=True)))
        rows.kept[numbers[removed]] = False
    writer.close()
    return count


def copies(digests: NDArray[np.uint64], ids: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Places of texts that have an equal one of a lesser id, in the order of digests and ids, and of each the place of that
    with the least id.

    Args:
        digests: uint64[documents, 4], big-endian numbers of SHA-256. ids: uint64[documents, 2], the same of ids.
    """
    order = np.argsort(digests[:, 0], kind="stable")
    alike = _as_before(digests[:, :1], order)
    equal = _as_before(digests, order)
    if (equal != alike).any():  # digests that only begin alike
        order = np.lexsort(digests.T[::-1])
        equal = _as_before(digests, order)
    several = equal.copy()
    several[:-1] |= equal[1:]
    some, equal = order[several], equal[several]
    del order, alike, several
    inner = np.lexsort((ids[some, 1], ids[some, 0], np.cumsum(~equal)))
    some = some[inner]  # each group stays where it is, so ``equal`` still says where one begins
    removed = some[equal]
    leaders = some[~equal]
    del some, inner
    return removed, leaders[np.cumsum(~equal)[equal] - 1]


def _as_before(digests: NDArray[np.uint64], order: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which digests, in this order, equal the one before; some at a time, since ten million may be equal."""
    equal = np.zeros(len(order), bool)
    for begin in range(1, len(order), BLOCK):
        some = digests[order[begin - 1 : begin + BLOCK]]
        equal[begin : begin + BLOCK] = (some[1:] == some[:-1]).all(axis=1)
    return equal
