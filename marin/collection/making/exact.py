"""Exact duplicates: of equal texts, by their SHA-256, that with the least id is kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from marin.collection.making.rows import Rows, as_bytes
from marin.collection.tasks.columns import EXACT, ParquetWriter, hex_column


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
    equal = (digests[order[1:]] == digests[order[:-1]]).all(axis=1)
    if (equal != (digests[order[1:], 0] == digests[order[:-1], 0])).any():  # digests that only begin alike
        order = np.lexsort(digests.T[::-1])
        equal = (digests[order[1:]] == digests[order[:-1]]).all(axis=1)
    several = np.zeros(len(order), bool)
    several[1:] |= equal
    several[:-1] |= equal
    groups = np.cumsum(~np.concatenate([np.zeros(min(len(order), 1), bool), equal]))[several]
    some = order[several]
    inner = np.lexsort((ids[some, 1], ids[some, 0], groups))
    some, groups = some[inner], groups[inner]
    least = np.diff(groups, prepend=-1) != 0
    leaders = some[least][np.cumsum(least) - 1]
    return some[~least], leaders[~least]
