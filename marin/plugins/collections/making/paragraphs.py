"""Paragraphs that stood before: of equal ones, by their SHA-256, that in the document with the least id is kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from marin.plugins.collections.making import rows as documents
from marin.plugins.collections.making.exact import copies
from marin.plugins.collections.making.rows import Rows
from marin.plugins.collections.tasks.columns import ArrowRows, fixed_width_rows
from marin.plugins.collections.tasks.task import PARAGRAPHS


@dataclass(frozen=True)
class Copied:
    """Paragraphs that stand in another document too, by the number of their own: which line of it, and the number of the document
    that keeps it. In the order of documents and lines."""

    numbers: NDArray[np.int64]
    lines: NDArray[np.int64]
    kept: NDArray[np.int64]

    def of(self, first: int, end: int) -> Copied:
        """Those of documents ``[first, end)``."""
        here = slice(*np.searchsorted(self.numbers, (first, end)).tolist())
        return Copied(self.numbers[here], self.lines[here], self.kept[here])


def copied(folder: Path, rows: Rows) -> Copied:
    """All copies among the documents that are kept so far."""
    found = [_of_piece(rows, *piece) for piece in _pieces(folder, rows)]
    numbers, lines, kept = (
        np.concatenate(column) if found else np.zeros(0, np.int64)
        for column in (zip(*found, strict=True) if found else ((),) * 3)
    )
    order = np.lexsort((lines, numbers))
    return Copied(numbers[order], lines[order], kept[order])


def _of_piece(
    rows: Rows, numbers: NDArray[np.int64], lines: NDArray[np.int64], digests: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    unique, inverse = np.unique(numbers, return_inverse=True)
    removed, of = copies(digests, rows.take("id", unique)[inverse])
    return numbers[removed], lines[removed], numbers[of]


def _pieces(folder: Path, rows: Rows) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint64]]]:
    """Paragraphs by the first bits of their digests."""
    total = sum(len(_of_shard(folder, name)) for name in rows.names)
    bits = max(0, (total - 1) // documents.PIECE).bit_length()
    for piece in range(1 << bits):
        found = []
        for shard, name in enumerate(rows.names):
            file = _of_shard(folder, name)
            digests = fixed_width_rows(file.column("digest"), 32).view(">u8")
            own = file.column("row").to_numpy() + rows.starts[shard]
            chosen = rows.kept[own]
            if bits:
                chosen &= digests[:, 0].astype(np.uint64) >> np.uint64(64 - bits) == piece
            if chosen.any():
                found.append((own[chosen], file.column("line").to_numpy()[chosen], digests[chosen].astype(np.uint64)))
        if found:
            numbers, lines, keys = (np.concatenate(column) for column in zip(*found, strict=True))
            yield numbers, lines, keys


def _of_shard(folder: Path, name: str) -> ArrowRows:
    return ArrowRows(folder / "judge" / name / PARAGRAPHS)
