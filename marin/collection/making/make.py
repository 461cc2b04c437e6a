"""From sources to a collection, in four phases: read, exact duplicates, near-duplicates, write.

Reading, comparing candidates and writing are tasks for workers; what lies between them is columns of numbers in one process.
The result follows from content alone: documents are numbered by their ids before anything is decided, tasks are cut
by content, and their results are put together by name, whenever they came. What is done is kept by a :class:`Shelf`, so
that a making that was stopped goes on.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ledger import canonical_digest
from marin.collection.comparing.near import components
from marin.collection.making.columns import EXACT, ArrowRows, ParquetWriter, fixed, hex_column, long_rows
from marin.collection.making.work import (
    DECIDED,
    LISTED,
    PROBLEMS,
    READ_FILE,
    REMOVED,
    WRITTEN,
    Answer,
    Setup,
    Task,
    start,
    told,
)
from marin.collection.sources.finding import Slice, Source
from marin.data.documents import threshold
from marin.errors import DataError
from marin.process.progress import bar
from marin.recipe.schema import plain
from marin.runners import Start

EXACT_STEP, NEAR_STEP = "exact", "near"
EXACT_REASON, NEAR_REASON = "exact_duplicate", "near_duplicate"
DESCRIPTION = "collection.json"
WRITE_BYTES, NEAR_BYTES, NEAR_DOCUMENTS = 64 << 20, 32 << 20, 2048
"""Text of a shard of documents; text and number of candidates of a task, which ends with a component."""

Execute = Callable[[Start, bytes, Sequence[bytes]], Iterator[tuple[int, bytes]]]
"""Executes tasks and gives (number of the task, answer) in any order; every task at least once."""


class Shelf(Protocol):
    """Where done work lies."""

    def expect(self, kind: str, shards: Sequence[Shard]) -> None:
        """What a phase consists of, before anything of it is taken or made."""

    def take(self, shard: Shard, folder: Path) -> Answer | None:
        """Bring what was made of a shard to ``folder``; None where it has to be made."""

    def put(self, shard: Shard, folder: Path, answer: Answer) -> str:
        """Keep what was made; the digest of the tree."""


@dataclass(frozen=True)
class Shard:
    """A task with its identity: the digest of everything that decides its files."""

    task: Task
    identity: str


@dataclass(frozen=True)
class Made:
    """A collection in a folder, and what was counted."""

    folder: Path
    read: int
    kept: int
    removed: Mapping[str, int]
    problems: Mapping[str, int]
    sources: Sequence[Source]


@dataclass
class _Documents:
    """All that were read, by id. uint8[documents, width] or one number each."""

    ids: NDArray[np.uint8]
    digests: NDArray[np.uint8]
    kept: NDArray[np.bool_]
    shard: NDArray[np.int32]
    row: NDArray[np.int64]
    size: NDArray[np.int64]


def make(setup: Setup, code: str, execute: Execute, shelf: Shelf) -> Made:
    """The collection of ``setup``; its files are in ``out`` below ``setup.folder``.

    Args:
        code: what stands for code and packages in the identity of each shard.

    Raises:
        DataError: no document was read; a source changed; in strict mode, anything that gives no document.
    """
    return _Making(setup, code, execute, shelf).make()


def content(items: Sequence[Source]) -> list[dict[str, object]]:
    """Sources as they stand in identities and descriptions."""
    return [{"digest": item.digest, "name": item.name, "size": str(item.size)} for item in items]


@dataclass
class _Making:
    setup: Setup
    code: str
    execute: Execute
    shelf: Shelf
    trees: dict[str, str] = field(default_factory=dict)
    """Digest of each finished shard, by kind and name."""
    answers: dict[str, Answer] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return Path(self.setup.folder)

    def make(self) -> Made:
        (self.folder / "tasks").mkdir(parents=True, exist_ok=True)
        reads = self._read_shards()
        self._do("read", reads)
        self._check_sources()
        names = [shard.task.name for shard in reads]
        read = [self.answers[f"read/{name}"] for name in names]
        documents = self._gather(names)
        removed = Counter[str]()
        problems = Counter[str]()
        for answer in read:
            removed.update(answer.removed)
            problems.update(answer.problems)
        if not len(documents.ids):
            raise DataError(
                "the collection is empty",
                where=", ".join(found.source.name for found in self.setup.sources[:3]),
                expected="at least one document",
                found=", ".join(f"{reason} {count} times" for reason, count in sorted(problems.items())) or "no lines",
                cure="name files with text; --config FILE may name another text_field",
            )
        out = self.folder / "out"
        (out / "duplicates").mkdir(parents=True, exist_ok=True)
        copies = self._exact(documents, out)
        similar = self._near(documents, names)
        removed += Counter({EXACT_REASON: copies, NEAR_REASON: similar})
        written, split = self._write(documents, names, reads)
        made = Made(
            out,
            len(documents.ids),
            int(documents.kept.sum()),
            dict(sorted((reason, count) for reason, count in removed.items() if count)),
            dict(sorted(problems.items())),
            [found.source for found in self.setup.sources],
        )
        self._assemble(made, names, reads, written, split)
        return made

    # Shards

    def _read_shards(self) -> list[Shard]:
        settings = self.setup.settings
        evaluations = [[name, _file_digest(path)] for path, name in self.setup.evaluations]
        shards: list[Shard] = []
        for number, found in enumerate(self.setup.sources):
            for place, part in enumerate(found.slices):
                identity = self._identity(
                    "read",
                    {
                        "evaluations": evaluations,
                        "fields": self.setup.evaluation_fields,
                        "settings": plain(settings),
                        "slice": _plain_slice(part),
                        "source": content([found.source]),
                    },
                )
                shards.append(Shard(Task("read", f"{len(shards):06d}", number, place), identity))
        return shards

    def _identity(self, kind: str, what: Mapping[str, Any]) -> str:
        return canonical_digest({"code": self.code, "kind": kind, **what})

    def _do(self, kind: str, shards: Sequence[Shard]) -> None:
        """Bring every shard to its place: from the shelf, or by executing its task."""
        waiting: list[Shard] = []
        self.shelf.expect(kind, shards)
        with bar(f"{kind} documents", len(shards)) as progress:
            done = 0
            for shard in shards:
                target = self.folder / kind / shard.task.name
                answer = self.shelf.take(shard, target)
                if answer is None:
                    waiting.append(shard)
                    continue
                self._keep(shard, target, answer)
                done += 1
                progress(done, "")
            tasks = [msgspec.json.encode(shard.task) for shard in waiting]
            if not tasks:
                return
            for number, result in self.execute(start, msgspec.json.encode(self.setup), tasks):
                shard = waiting[number]
                answer = msgspec.json.decode(result, type=Answer)
                if answer.stopped:
                    raise _strictly(answer.stopped)
                self._keep(shard, self.folder / kind / shard.task.name, answer)
                done += 1
                progress(done, "")

    def _keep(self, shard: Shard, target: Path, answer: Answer) -> None:
        if self.setup.strict and answer.problems:
            raise _strictly(told(json.loads((target / PROBLEMS).read_bytes().split(b"\n", 1)[0])))
        name = f"{shard.task.kind}/{shard.task.name}"
        self.trees[name] = self.shelf.put(shard, target, answer)
        self.answers[name] = answer

    def _check_sources(self) -> None:
        for found in self.setup.sources:
            size = Path(found.path).stat().st_size
            if size != found.source.size:
                raise DataError(
                    "a source changed while it was read",
                    where=found.source.name,
                    expected=f"{found.source.size} bytes",
                    found=f"{size} bytes",
                    cure="leave the files alone and run the same command again",
                )

    # Columns

    def _gather(self, names: Sequence[str]) -> _Documents:
        ids, digests, kept, shard, row, size = [], [], [], [], [], []
        for number, name in enumerate(names):
            rows = ArrowRows(self.folder / "read" / name / READ_FILE)
            count = len(rows)
            if not count:
                continue
            ids.append(fixed(rows.column("id"), 16))
            digests.append(fixed(rows.column("digest"), 32))
            kept.append(pc.equal(rows.column("reason"), "").to_numpy())
            shard.append(np.full(count, number, np.int32))
            row.append(np.arange(count, dtype=np.int64))
            size.append(pc.binary_length(rows.column("text")).to_numpy().astype(np.int64))
        if not ids:
            none = np.zeros((0, 16), np.uint8)
            empty = np.zeros(0, np.int64)
            return _Documents(none, none, empty.astype(bool), empty.astype(np.int32), empty, empty)
        found = np.concatenate(ids)
        order = _order(found)
        return _Documents(
            found[order],
            np.concatenate(digests)[order],
            np.concatenate(kept)[order],
            np.concatenate(shard)[order],
            np.concatenate(row)[order],
            np.concatenate(size)[order],
        )

    def _exact(self, documents: _Documents, out: Path) -> int:
        """Of equal texts that with the least id is kept."""
        if not self.setup.settings.exact:
            return 0
        removed, of = exact_duplicates(documents.digests, documents.kept)
        writer = ParquetWriter(out / "duplicates" / "exact.parquet", EXACT)
        for begin in range(0, len(removed), 1 << 18):
            some, kept = removed[begin : begin + (1 << 18)], of[begin : begin + (1 << 18)]
            columns = (documents.ids[some], documents.ids[kept], documents.digests[some])
            writer.write_columns(dict(zip(EXACT.names, map(hex_column, columns), strict=True)))
        writer.close()
        documents.kept[removed] = False
        return len(removed)

    def _near(self, documents: _Documents, names: Sequence[str]) -> int:
        near = self.setup.settings.near
        if near is None:
            return 0
        chosen = np.flatnonzero(documents.kept)
        keys = self._bands(documents, chosen, names, near.bands)
        has = keys.any(axis=1)
        chosen, keys = chosen[has], keys[has]
        # The longest first; numbers are by id already, and the sort is stable.
        order = np.argsort(-documents.size[chosen], kind="stable")
        chosen, keys = chosen[order], keys[order]
        labels = components([keys[:, band] for band in range(near.bands)], len(chosen))
        together = np.flatnonzero(np.bincount(labels, minlength=len(chosen))[labels] > 1)
        together = together[np.argsort(labels[together], kind="stable")]
        members = chosen[together]
        ends = np.flatnonzero(np.diff(labels[together], append=-1)) + 1
        shards = []
        for number, (begin, cuts) in enumerate(_packed(ends, documents.size[members])):
            some = members[begin : cuts[-1]]
            task = Task("near", f"{number:06d}")
            given = self._given(task, documents, some, names, ends=np.array(cuts, np.int64) - begin)
            shards.append(Shard(task, self._identity("near", {"near": plain(near), "rows": given})))
        self._do("near", shards)
        removed = 0
        for shard in shards:
            table = pq.read_table(self.folder / "near" / shard.task.name / REMOVED, columns=["id"])
            found = [bytes.fromhex(item) for item in table["id"].to_pylist()]
            places = _places(documents.ids, found)
            documents.kept[places] = False
            removed += len(found)
        return removed

    def _bands(
        self, documents: _Documents, chosen: NDArray[np.int64], names: Sequence[str], bands: int
    ) -> NDArray[np.uint64]:
        """uint64[chosen, bands]; zeros for a text without words."""
        keys = np.zeros((len(chosen), bands), np.uint64)
        shard, row = documents.shard[chosen], documents.row[chosen]
        for number, name in enumerate(names):
            here = np.flatnonzero(shard == number)
            if not len(here):
                continue
            found = long_rows(ArrowRows(self.folder / "read" / name / READ_FILE).column("bands"), bands)
            keys[here] = found[row[here]]
        return keys

    def _write(self, documents: _Documents, names: Sequence[str], reads: Sequence[Shard]) -> tuple[list[Shard], int]:
        kept = np.flatnonzero(documents.kept)
        places = np.array([_position(digest.tobytes()) for digest in documents.digests[kept]], np.uint64)
        below = split_below(places, self.setup.settings.validation_fraction)
        held_out = places < np.uint64(below) if below < 2**64 else np.ones(len(places), bool)
        total = np.cumsum(documents.size[kept])
        shards = []
        cuts = np.flatnonzero(np.diff(total // WRITE_BYTES)) + 1
        sources = np.array([shard.task.source for shard in reads], np.int64)
        for number, some in enumerate(np.split(np.arange(len(kept)), cuts)):
            task = Task("write", f"{number:05d}")
            given = self._given(task, documents, kept[some], names, held_out=held_out[some], sources=sources)
            shards.append(Shard(task, self._identity("write", {"rows": given})))
        self._do("write", shards)
        return shards, below

    def _given(
        self, task: Task, documents: _Documents, rows: NDArray[np.int64], names: Sequence[str], **more: NDArray[Any]
    ) -> str:
        """Write the rows of a task, and digest them with the shards that they are in."""
        used = np.unique(documents.shard[rows])
        trees = {names[number]: self.trees[f"read/{names[number]}"] for number in used.tolist()}
        arrays: dict[str, Any] = {"shards": documents.shard[rows], "rows": documents.row[rows], **more}
        np.savez(self.folder / "tasks" / f"{task.kind}-{task.name}.npz", names=np.array(names), **arrays)
        hasher = sha256(json.dumps(trees, sort_keys=True).encode())
        for name, array in sorted(arrays.items()):
            hasher.update(name.encode() + str(array.shape).encode() + np.ascontiguousarray(array).tobytes())
        return "sha256:" + hasher.hexdigest()

    # The collection

    def _assemble(
        self, made: Made, names: Sequence[str], reads: Sequence[Shard], written: Sequence[Shard], split: int
    ) -> None:
        out = made.folder
        for kind in ("documents", "listing", "decisions", "problems"):
            (out / kind).mkdir(exist_ok=True)
        for shard in written:
            _link(self.folder / "write" / shard.task.name / WRITTEN, out / "documents" / f"{shard.task.name}.parquet")
        for name in names:
            folder = self.folder / "read" / name
            _link(folder / LISTED, out / "listing" / f"{name}.parquet")
            if sum(self.answers[f"read/{name}"].removed.values()) or self.setup.settings.steps:
                _link(folder / DECIDED, out / "decisions" / f"{name}.parquet")
            if self.answers[f"read/{name}"].problems:
                _link(folder / PROBLEMS, out / "problems" / f"{name}.jsonl")
        for path in sorted((self.folder / "near").glob("[0-9]*")) if self.setup.settings.near is not None else ():
            if path.name.isdigit() and f"near/{path.name}" in self.answers:
                _link(path / REMOVED, out / "duplicates" / f"near-{path.name}.parquet")
        description = {
            "documents": {"kept": made.kept, "read": made.read},
            "evaluations": [{"digest": _file_digest(path), "name": name} for path, name in self.setup.evaluations],
            "evaluation_fields": self.setup.evaluation_fields if self.setup.evaluations else [],
            "kind": "documents",
            "not_compared_with_all": sum(
                answer.counts.get("not_compared_with_all", 0)
                for name, answer in self.answers.items()
                if name.startswith("near/")
            ),
            "problems": dict(made.problems),
            "removed": dict(made.removed),
            "settings": plain(self.setup.settings),
            "shards": [
                {
                    "name": shard.task.name,
                    "slice": _plain_slice(self.setup.sources[shard.task.source].slices[shard.task.slice]),
                    "source": self.setup.sources[shard.task.source].source.name,
                }
                for shard in reads
            ],
            "sources": content(made.sources),
            "split_below": str(split),
            "version": 1,
        }
        text = json.dumps(description, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
        (out / DESCRIPTION).write_text(text, encoding="utf-8")


def _strictly(where: str) -> DataError:
    return DataError(
        "something in a source is no document",
        where=where,
        expected="documents, as --strict demands",
        cure="correct it, or leave --strict out: then it is counted and named",
    )


def exact_duplicates(
    digests: NDArray[np.uint8], kept: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Places of documents with the text of an earlier one, in order, and for each the place of the earliest.

    Args:
        digests: SHA-256 of the texts, uint8[documents, 32], in the order that says which is the earlier.
        kept: those that take part.
    """
    places = np.flatnonzero(kept)
    parts = np.ascontiguousarray(digests[places]).view(">u8").astype(np.uint64)
    order = np.argsort(parts[:, 0], kind="stable")
    same = parts[order[1:], 0] == parts[order[:-1], 0]
    equal = (parts[order[1:]] == parts[order[:-1]]).all(axis=1)
    if (same != equal).any():  # texts whose digests begin alike: sort by all of them
        order = np.lexsort((parts[:, 3], parts[:, 2], parts[:, 1], parts[:, 0]))
        equal = (parts[order[1:]] == parts[order[:-1]]).all(axis=1)
    groups = np.concatenate([[0], np.cumsum(~equal)]) if len(order) else np.zeros(0, np.int64)
    starts = np.flatnonzero(np.concatenate([[True], ~equal])) if len(order) else np.zeros(0, np.int64)
    leaders = order[starts][groups] if len(order) else order
    later = order != leaders
    removed, of = places[order[later]], places[leaders[later]]
    by_place = np.argsort(removed, kind="stable")
    return removed[by_place], of[by_place]


def split_below(places: NDArray[np.uint64], fraction: float) -> int:
    """Documents whose place among all texts is below this are held out, as in :mod:`marin.data.documents`: the fraction's
    share, moved so that no side is empty."""
    below = threshold(fraction)
    if not len(places) or places.min() == places.max():
        return below
    if int(places.min()) >= below:
        return int(places.min()) + 1
    return min(below, int(places.max()))


def _position(digest: bytes) -> int:
    return int.from_bytes(sha256(b"marin.split:" + digest).digest()[:8], "big")


def _order(ids: NDArray[np.uint8]) -> NDArray[np.int64]:
    halves = np.ascontiguousarray(ids).view(">u8").astype(np.uint64)
    return np.lexsort((halves[:, 1], halves[:, 0]))


def _places(ids: NDArray[np.uint8], wanted: Sequence[bytes]) -> NDArray[np.int64]:
    """Where these ids stand among ``ids``, which are in order."""
    keys = np.ascontiguousarray(ids).view("S16").reshape(-1)
    # S16 drops zeros at the end of both sides alike, which keeps the order; ids that differ there alone are told apart below.
    found = np.searchsorted(keys, np.array(wanted, "S16"))
    for number, item in enumerate(wanted):
        while ids[found[number]].tobytes() != item:
            found[number] += 1
    return found


def _packed(ends: NDArray[np.int64], sizes: NDArray[np.int64]) -> Iterator[tuple[int, list[int]]]:
    """(first member, ends of the components) of each task."""
    total = np.concatenate([[0], np.cumsum(sizes)])
    begin, cuts = 0, list[int]()
    for end in ends.tolist():
        cuts.append(end)
        if end - begin >= NEAR_DOCUMENTS or total[end] - total[begin] >= NEAR_BYTES:
            yield begin, cuts
            begin, cuts = end, []
    if cuts:
        yield begin, cuts


def _link(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    os.link(source, target)


def _plain_slice(part: Slice) -> dict[str, str]:
    return {"end": str(part.end), "first": str(part.first), "start": str(part.start)}


def _file_digest(path: str) -> str:
    return "sha256:" + sha256(Path(path).read_bytes()).hexdigest()
