"""The files that a collection is made of: found by globs, hashed, and cut into slices by what they hold.

A slice is what one task reads. Where the cuts are follows from the bytes alone, never from the number of workers: long
JSON lines files are cut every :data:`SLICE` bytes at the next line; all others are one slice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from marin.collection.settings import READERS
from marin.collection.sources.lines import SUFFIXES
from marin.data.local import matched
from marin.data.remote import mirrored_glob
from marin.errors import DataMissing

SLICE = 32 << 20
"""Bytes."""


class Slice(msgspec.Struct, frozen=True):
    """Bytes ``[start, end)`` of a file, of which ``first`` is the number of the first line, from 1. ``end`` 0: the whole."""

    start: int = 0
    end: int = 0
    first: int = 1


class Source(msgspec.Struct, frozen=True):
    """A file: its name in the collection, size, and ``sha256:`` of its bytes."""

    name: str
    size: int
    digest: str


class Found(msgspec.Struct, frozen=True):
    """A source with its ``path`` on this machine and its slices. ``place``: the address that it came from, empty for a file of
    this machine; ``licence``: what whoever named it says of it."""

    source: Source
    path: str
    slices: tuple[Slice, ...]
    place: str = ""
    licence: str = ""


def find(globs: Iterable[str]) -> list[Found]:
    """The files that the globs name, by their recorded names in order.

    Raises:
        DataError: a glob matches nothing, or a file of a kind that nobody reads.
        DataMissing: a file cannot be read.
    """
    files = matched(tuple(mirrored_glob(pattern) for pattern in globs), what="--source", kinds=(*SUFFIXES, *READERS))
    return [_found(file.path, file.name) for file in sorted(files, key=lambda file: file.name)]


def _found(path: Path, name: str) -> Found:
    hasher = hashlib.sha256()
    cut = name.lower().endswith(".jsonl")
    starts, lines, size = [Slice()], 0, 0
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                hasher.update(block)
                # A slice ends behind the line in which its last byte is, in this block or in a later one.
                while cut and (behind := starts[-1].start + SLICE - size) < len(block):
                    newline = block.find(b"\n", max(behind, 0))
                    if newline < 0:
                        break
                    starts.append(Slice(size + newline + 1, 0, lines + block.count(b"\n", 0, newline + 1) + 1))
                lines += block.count(b"\n")
                size += len(block)
    except OSError as error:
        raise DataMissing(
            "a source cannot be read",
            where=str(path),
            found=error.strerror or str(error),
            cure="check that it is there and that you may read it",
        ) from error
    slices = (Slice(),) if len(starts) == 1 else tuple(_closed(starts, size))
    return Found(Source(name, size, "sha256:" + hasher.hexdigest()), str(path.resolve()), slices)


def _closed(starts: list[Slice], size: int) -> Iterable[Slice]:
    ends = [*(item.start for item in starts[1:]), size]
    return [Slice(item.start, end, item.first) for item, end in zip(starts, ends, strict=True) if end > item.start]
