"""Rows of an Arrow file: what is asked for, and no more of the disk than that."""

from __future__ import annotations

import ctypes
import os
from itertools import chain
from mmap import PAGESIZE, mmap
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from marin.plugins.collections.tasks.columns import ArrowRows, ArrowWriter

FORM = pa.schema([("id", pa.int64()), ("text", pa.large_string()), ("said", pa.string())])
COUNT = 5000


@pytest.fixture
def file(on_disk: Path) -> Path:
    """Batches of 1024 rows, of 2 kB each."""
    writer = ArrowWriter(on_disk / "rows.arrow", FORM)
    for number in range(COUNT):
        writer.write((number, f"{number:08d}" * 250, None if number % 3 else "x"))
    writer.close()
    return on_disk / "rows.arrow"


def cold(file: Path) -> int:
    """Drop what the kernel holds of a file; its pages."""
    descriptor = os.open(file, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    return file.stat().st_size // PAGESIZE


def held(file: Path) -> int:
    """Pages of a file that the kernel has in memory."""
    with file.open("r+b") as opened, mmap(opened.fileno(), 0) as whole:
        pages = (ctypes.c_ubyte * -(-len(whole) // PAGESIZE))()
        begin = (ctypes.c_ubyte * len(whole)).from_buffer(whole)
        refused = ctypes.CDLL(None).mincore(ctypes.byref(begin), ctypes.c_size_t(len(whole)), pages)
        del begin
    assert not refused
    return sum(page & 1 for page in pages)


@pytest.mark.parametrize("rows", [[], [4999, 0, 1024], [3, 3, 1], list(range(COUNT - 1, -1, -1))])
def test_rows_are_those_that_were_written(file: Path, rows: list[int]) -> None:
    found = dict(ArrowRows(file).take(np.array(rows, np.int64), ("text", "said", "id")))
    assert found == {place: (f"{row:08d}" * 250, None if row % 3 else "x", row) for place, row in enumerate(rows)}


def test_columns_and_batches_are_those_that_were_written(file: Path) -> None:
    opened = ArrowRows(file)
    assert len(opened) == COUNT and opened.column("id").to_pylist() == list(range(COUNT))
    assert list(chain.from_iterable(batch.column("id").to_pylist() for batch in opened.batches())) == list(range(COUNT))


def test_a_few_rows_are_a_few_pages(file: Path) -> None:
    pages = cold(file)
    if held(file) > pages // 10:
        pytest.skip("this file system does not drop what it holds")
    list(ArrowRows(file).take(np.arange(0, COUNT, 200), ("text",)))
    assert held(file) < pages // 10
    cold(file)
    ArrowRows(file).column("id")
    assert held(file) < pages // 10
