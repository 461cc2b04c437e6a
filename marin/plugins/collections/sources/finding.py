"""The files that a collection is made of: found by globs, hashed, and cut into slices by what they hold.

A slice is what one task reads. Where the cuts are follows from the bytes alone, never from the number of workers: long
JSON lines files are cut every :data:`SLICE` bytes at the next line, Parquet files at row groups; all others are one slice.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

import msgspec

from marin.data.local import matched, mirrored_glob
from marin.data.network.fetching import Pinned
from marin.errors import DataError, DataMissing
from marin.plugins.collections.settings import READERS
from marin.plugins.collections.sources.addresses import Remote, bring, is_remote, remotes
from marin.plugins.collections.sources.lines import PARQUET, SUFFIXES
from marin.process.cache import own_folder

KINDS = (*SUFFIXES, *READERS)
NOTHING = "sha256:" + hashlib.sha256().hexdigest()
"""In the place of the digest of a source that could not be had and whose digest is not known."""
SLICE = 32 << 20
"""Bytes."""


class Slice(msgspec.Struct, frozen=True):
    """Bytes ``[start, end)`` of a file, or row groups of a Parquet file; ``first`` is the number of the first line or row in it,
    from 1. ``end`` 0: the whole."""

    start: int = 0
    end: int = 0
    first: int = 1


class Source(msgspec.Struct, frozen=True):
    """A file: its name in the collection, size, and ``sha256:`` of its bytes."""

    name: str
    size: int
    digest: str


class LocatedSource(msgspec.Struct, frozen=True):
    """A source with its ``path`` on this machine and its slices. ``place``: the address that it came from, empty for a file of
    this machine; ``licence``: what the one who named it says of it; ``missing``: why it could not be fetched."""

    source: Source
    path: str
    slices: tuple[Slice, ...]
    place: str = ""
    licence: str = ""
    missing: str = ""


def find(
    patterns: Iterable[str], *, missing: Mapping[str, str] | None = None, strict: bool = False
) -> list[LocatedSource]:
    """The files that globs and addresses (:mod:`marin.plugins.collections.sources.addresses`) name, by their recorded names in
    order. One
    that cannot be fetched has no slices, and says why it is ``missing``.

    Args:
        missing: those of an earlier making that were not to be had, which are not asked for again.

    Raises:
        DataError: a glob matches nothing, a file of a kind that nobody reads, a name that two have.
        DataMissing: a file cannot be read; where it is ``strict``, cannot be fetched.
    """
    known = missing or {}
    local: list[str] = []
    elsewhere: list[Remote] = []
    for pattern in patterns:
        if is_remote(pattern):
            elsewhere += remotes(pattern, own_folder("sources"))
        else:
            local.append(mirrored_glob(pattern))
    files = matched(tuple(local), what="--source", kinds=KINDS) if local else []
    _check_names([*(file.name for file in files), *(remote.name for remote in elsewhere)])
    found = [_located(file.path, file.name) for file in files]
    for remote in elsewhere:
        if not remote.path.name.lower().endswith(KINDS):
            raise _unknown_kind(remote)
    gone = {**known, **bring([remote for remote in elsewhere if remote.name not in known])}
    for remote in elsewhere:
        if remote.name in gone:
            if strict:
                raise DataMissing(
                    "a source cannot be fetched",
                    where=remote.place,
                    expected="its bytes",
                    found=gone[remote.name],
                    cure="leave --strict out: then it is counted and named",
                )
            size, digest = (remote.pinned.size, remote.pinned.digest) if remote.pinned is not None else (0, "")
            source = Source(remote.name, size, digest if digest.startswith("sha256:") else NOTHING)
            found.append(LocatedSource(source, "", (), remote.place, remote.licence, gone[remote.name]))
            continue
        one = _located(remote.path, remote.name)
        if remote.pinned is not None and not _is_pinned(one, remote.pinned):
            remote.path.unlink(missing_ok=True)
            raise DataError(
                "a fetched source was changed in the cache",
                where=str(remote.path),
                expected=remote.pinned.digest,
                found=one.source.digest,
                cure="it is removed; run the same command again",
            )
        found.append(msgspec.structs.replace(one, place=remote.place, licence=remote.licence))
    return sorted(found, key=lambda one: one.source.name)


def _is_pinned(found: LocatedSource, pinned: Pinned) -> bool:
    if pinned.digest.startswith("sha256:"):
        return pinned.digest == found.source.digest
    hasher = pinned.hasher()
    with Path(found.path).open("rb") as file:
        for block in iter(partial(file.read, 1 << 20), b""):
            hasher.update(block)
    return pinned.digest == f"{pinned.digest.partition(':')[0]}:{hasher.hexdigest()}"


def _check_names(names: list[str]) -> None:
    again = next((name for name, count in Counter(names).items() if count > 1), None)
    if again is not None:
        raise DataError(
            "two sources have one name",
            where="--source",
            expected="a name for each",
            found=again,
            cure="give one a name of its own in its list, or put them into folders",
        )


def _unknown_kind(remote: Remote) -> DataError:
    return DataError(
        "unknown kind of file",
        where=remote.place,
        expected=" or ".join(KINDS),
        found=remote.name,
        cure="narrow the address, or give the file a name in its list",
    )


def _located(path: Path, name: str) -> LocatedSource:
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
    if name.lower().endswith(PARQUET):
        slices = _row_groups(path)
    return LocatedSource(Source(name, size, "sha256:" + hasher.hexdigest()), str(path.resolve()), slices)


def _row_groups(path: Path) -> tuple[Slice, ...]:
    """Row groups of a Parquet file that have about a slice's bytes together; the whole of one that cannot be read, so that its
    reader says why."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
            sizes = [(group.num_rows, group.total_byte_size) for group in groups]
    except (pa.ArrowException, OSError, ValueError):
        return (Slice(),)
    slices: list[Slice] = []
    begin, rows, first, held = 0, 0, 1, 0
    for number, (count, size) in enumerate(sizes, start=1):
        rows, held = rows + count, held + size
        if held >= SLICE or number == len(sizes):
            slices.append(Slice(begin, number, first))
            begin, first, held = number, rows + 1, 0
    return tuple(slices) if len(slices) > 1 else (Slice(),)


def _closed(starts: list[Slice], size: int) -> Iterable[Slice]:
    ends = [*(item.start for item in starts[1:]), size]
    return [Slice(item.start, end, item.first) for item, end in zip(starts, ends, strict=True) if end > item.start]
