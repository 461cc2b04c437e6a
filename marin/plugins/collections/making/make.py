"""From sources to a collection, in phases: read, train, judge, exact duplicates, near-duplicates, sampling, cut, write.

Reading, judging, comparing candidates and writing are tasks for workers; what lies between them is columns of numbers in one
process. The result follows from content alone: tasks are cut by content, what they leave is put together by name, whenever it
came, and what is decided about a document never depends on when it was looked at. What is done is kept by a :class:`Shelf`, so
that a making that was stopped goes on.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ledger import canonical_digest
from marin.data.documents import threshold
from marin.errors import DataError
from marin.plugins.collections.comparing.near import Keyed, components
from marin.plugins.collections.making import description
from marin.plugins.collections.making.choice import EVERY, REASON, bounds, remove_beyond
from marin.plugins.collections.making.exact import remove_copies
from marin.plugins.collections.making.paragraphs import copied
from marin.plugins.collections.making.rows import Rows, as_bytes
from marin.plugins.collections.making.shelf import CollectionFolder, Shard, Shelf
from marin.plugins.collections.settings import Near, divided
from marin.plugins.collections.sources.origin import LEFT_OUT, Origin
from marin.plugins.collections.tasks import task as tasks
from marin.plugins.collections.tasks.columns import band_name
from marin.plugins.collections.tasks.work import WORKER
from marin.process.progress import bar
from marin.recipe.schema import plain
from marin.work.placed import Execute

log = logging.getLogger(__name__)
EXACT_STEP, NEAR_STEP = "exact", "near"
EXACT_REASON, NEAR_REASON = "exact_duplicate", "near_duplicate"
WRITE_BYTES, NEAR_BYTES, NEAR_DOCUMENTS = 64 << 20, 32 << 20, 2048
"""Text of a shard of documents; text and number of candidates of a task, which ends with a component."""


def make(setup: tasks.Setup, code: str, execute: Execute, shelf: Shelf) -> CollectionFolder:
    """The collection of ``setup``; its files are in ``out`` below ``setup.folder``.

    Args:
        code: what stands for code and packages in the identity of each shard.

    Raises:
        DataError: no document was read; a source changed; in strict mode, anything that gives no document.
    """
    return _Making(setup, code, execute, shelf).make()


@dataclass
class _Making:
    setup: tasks.Setup
    code: str
    execute: Execute
    shelf: Shelf
    trees: dict[str, str] = field(default_factory=dict)
    """Digest of each finished shard, by kind and name."""
    answers: dict[str, tasks.Counted] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return Path(self.setup.folder)

    def make(self) -> CollectionFolder:
        (self.folder / "tasks").mkdir(parents=True, exist_ok=True)
        settings = self.setup.settings
        reads = self._read_shards()
        self._do("read", reads)
        self._check_sources()
        self._tell_origins(reads)
        trained = self._train_shards(reads)
        self._do("train", trained)
        self._do("judge", self._judge_shards(reads, trained))
        rows = Rows(self.folder, [shard.task.name for shard in reads])
        removed, problems = Counter[str](), Counter[str]()
        problems.update(
            {description.NOT_FETCHED: count} if (count := len(description.not_fetched(self.setup.sources))) else {}
        )
        for answer in self.answers.values():
            problems.update(answer.problems)
        self._check_some(rows, problems)
        out = self.folder / "out"
        (out / "duplicates").mkdir(parents=True, exist_ok=True)
        if settings.exact:
            removed[EXACT_REASON] += remove_copies(rows, out / "duplicates" / "exact.parquet")
        if settings.near is not None:
            removed[NEAR_REASON] += self._near(rows, settings.near)
        sources = [shard.task.source for shard in reads]
        bound: list[int] = []
        if settings.sampling is not None:
            bound = bounds(rows, [found.source.name for found in self.setup.sources], sources, settings.sampling)
            removed[REASON] += remove_beyond(rows, bound, sources)
        if settings.paragraphs is not None:
            rows = self._cut(rows, out / "duplicates" / "exact.parquet")
        for answer in self.answers.values():
            removed.update(answer.removed)
        below = self._split_below(rows)
        written = list(self._write_shards(rows, np.array(sources, np.int64), below))
        self._do("write", written)
        made = CollectionFolder(
            out,
            len(rows),
            int(rows.kept.sum()),
            dict(sorted((reason, count) for reason, count in removed.items() if count)),
            dict(sorted(problems.items())),
            [found.source for found in self.setup.sources],
        )
        description.assemble(
            self.setup, made, self.answers, self.trees, reads, written, bounds=bound, split_below=below
        )
        return made

    # Shards

    def _read_shards(self) -> list[Shard]:
        settings = self.setup.settings
        first = plain(list(divided(settings.steps)[0]))
        shards: list[Shard] = []
        for number, found in enumerate(self.setup.sources):
            for place, part in enumerate(found.slices):
                identity = self._identity(
                    "read",
                    {
                        "slice": description.plain_slice(part),
                        "source": description.content([found]),
                        "steps": first,
                        "text_field": settings.text_field,
                    },
                )
                shards.append(Shard(tasks.Task("read", f"{len(shards):06d}", number, place), identity))
        return shards

    def _train_shards(self, reads: Sequence[Shard]) -> list[Shard]:
        first = plain(list(divided(self.setup.settings.steps)[0]))
        own = [self.trees[shard.name] for shard in reads]
        shards = []
        for number, examples in enumerate(self.setup.examples):
            what = {
                "bad": description.content(examples.bad) if examples.bad else own,
                "good": description.content(examples.good),
                "settings": plain(examples.settings),
                "steps": first,
                "text_field": self.setup.settings.text_field,
            }
            shards.append(Shard(tasks.Task("train", f"{number:06d}", number), self._identity("train", what)))
        return shards

    def _judge_shards(self, reads: Sequence[Shard], trained: Sequence[Shard]) -> list[Shard]:
        settings = self.setup.settings
        near = settings.near
        what = {
            "contamination": plain(settings.contamination) if self.setup.evaluations else None,
            "evaluations": [[name, description.file_digest(path)] for path, name in self.setup.evaluations],
            "fields": self.setup.evaluation_fields,
            "near": [near.shingle, near.bands, near.rows] if near is not None else None,
            "models": [self.trees[shard.name] for shard in trained],
            "steps": plain(list(divided(settings.steps)[1])),
        }
        return [
            Shard(
                tasks.Task("judge", shard.task.name, shard.task.source, shard.task.slice),
                self._identity("judge", {"read": self.trees[shard.name], **what}),
            )
            for shard in reads
        ]

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
            if not waiting:
                return
            for number, answer in WORKER.each(self.execute, self.setup, [shard.task for shard in waiting]):
                shard = waiting[number]
                if answer.stopped:
                    raise _strictly(answer.stopped)
                self._keep(shard, self.folder / kind / shard.task.name, answer)
                done += 1
                progress(done, "")

    def _keep(self, shard: Shard, target: Path, answer: tasks.Counted) -> None:
        if self.setup.strict and answer.problems:
            raise _strictly(tasks.problem_line(json.loads((target / tasks.PROBLEMS).read_bytes().split(b"\n", 1)[0])))
        self.trees[shard.name] = self.shelf.put(shard, target, answer)
        self.answers[shard.name] = answer

    # Sources

    def _check_sources(self) -> None:
        for found in self.setup.sources:
            if found.missing:
                continue
            size = Path(found.path).stat().st_size
            if size != found.source.size:
                raise DataError(
                    "a source changed while it was read",
                    where=found.source.name,
                    expected=f"{found.source.size} bytes",
                    found=f"{size} bytes",
                    cure="leave the files alone and run the same command again",
                )

    def _tell_origins(self, reads: Sequence[Shard]) -> None:
        origins = [Origin() for _ in self.setup.sources]
        for shard in reads:
            origins[shard.task.source].add(json.loads((self.folder / shard.name / tasks.ORIGIN).read_bytes()))
        said = [origin.said() for origin in origins]
        for found, one in zip(self.setup.sources, said, strict=True):
            if left := one.get(LEFT_OUT):
                names = ", ".join(f"{name} ({count} documents)" for name, count in left.items())
                log.warning("%s: no metadata: %s; metadata_fields names what is kept", found.source.name, names)
        self.shelf.read(list(zip(self.setup.sources, said, strict=True)))

    def _check_some(self, rows: Rows, problems: Mapping[str, int]) -> None:
        if not len(rows):
            raise DataError(
                "the collection is empty",
                where=", ".join(found.source.name for found in self.setup.sources[:3]),
                expected="at least one document",
                found=", ".join(f"{reason} {count} times" for reason, count in sorted(problems.items())) or "no lines",
                cure="name files with text; --config FILE may name another text_field",
            )

    # Paragraphs

    def _cut(self, rows: Rows, exact: Path) -> Rows:
        """The kept documents without the paragraphs that stand in others of them too. One that another document was removed for
        stays whole where nothing would be left of it."""
        found = copied(self.folder, rows)
        near = [self.folder / name / tasks.NEAR_FILE for name in self.trees if name.startswith("near/")]
        holders = rows.among([path for path in (exact, *near) if path.exists()], "kept")
        unique, inverse = np.unique(found.kept, return_inverse=True)
        ids = np.zeros(0, "V16")
        if len(unique):
            ids = np.ascontiguousarray(as_bytes(rows.take("id", unique))).view("V16").reshape(-1)[inverse]
        shards = []
        for number, name in enumerate(rows.names):
            task = tasks.Task("cut", name)
            here = slice(*np.searchsorted(found.numbers, rows.starts[number : number + 2]).tolist())
            arrays = {"rows": found.numbers[here] - rows.starts[number], "lines": found.lines[here], "kept": ids[here]}
            arrays |= {"holders": holders[found.numbers[here]]}
            what = {
                "judged": self.trees[f"judge/{name}"],
                "read": self.trees[f"read/{name}"],
                "rows": self._written(task, **arrays),
            }
            shards.append(Shard(task, self._identity("cut", what)))
        self._do("cut", shards)
        left = Rows(self.folder, rows.names, "cut")
        left.kept &= rows.kept
        return left

    # Candidates

    def _near(self, rows: Rows, near: Near) -> int:
        which = rows.kept.copy()
        for here, (shingled,) in rows.each("shingled"):
            which[here] &= shingled
        labels = components((_keyed(rows, which, band) for band in range(near.bands)), len(rows))
        together = np.flatnonzero(which & (np.bincount(labels, minlength=len(rows))[labels] > 1))
        sizes, ids = rows.take("size", together), rows.take("id", together)
        if not len(together):
            self._do("near", [])
            return 0
        # The longest first, then by id.
        order = np.lexsort((ids[:, 1], ids[:, 0], -sizes, labels[together]))
        members, sizes, ids = together[order], sizes[order], ids[order]
        ends = np.flatnonzero(np.diff(labels[members], append=-1)) + 1
        del labels, which, together, order
        shards, firsts = [], []
        for number, (begin, cuts) in enumerate(_packed(ends, sizes)):
            some = slice(begin, cuts[-1])
            task = tasks.Task("near", f"{number:06d}")
            names = np.ascontiguousarray(as_bytes(ids[some])).view("V16").reshape(-1)
            arrays = self._write_rows(task, rows, members[some], ends=np.array(cuts, np.int64) - begin, ids=names)
            shards.append(Shard(task, self._identity("near", {"near": plain(near), "rows": arrays})))
            firsts.append(begin)
        self._do("near", shards)
        removed = 0
        for shard, begin in zip(shards, firsts, strict=True):
            places = np.load(self.folder / shard.name / tasks.REMOVED_FILE, allow_pickle=False)
            rows.kept[members[begin + places]] = False
            removed += len(places)
        return removed

    # Documents

    def _split_below(self, rows: Rows) -> int:
        """Documents whose place among all texts is below this are held out, as in :mod:`marin.data.documents`: the fraction's
        share, moved so that no side is empty."""
        least, most = EVERY, -1
        for here, (places,) in rows.each("place"):
            if len(kept := places[rows.kept[here]]):
                least, most = min(least, int(kept.min())), max(most, int(kept.max()))
        below = threshold(self.setup.settings.validation_fraction)
        if least >= most:
            return below
        return least + 1 if least >= below else min(below, most)

    def _write_shards(self, rows: Rows, sources: NDArray[np.int64], below: int) -> Iterator[Shard]:
        for number, (some, places) in enumerate(_by_id(rows)):
            task = tasks.Task("write", f"{number:05d}")
            held_out = places < np.uint64(below) if below < EVERY else np.ones(len(places), bool)
            arrays = self._write_rows(task, rows, some, held_out=held_out, of=sources)
            yield Shard(task, self._identity("write", {"rows": arrays}))

    def _write_rows(
        self, task: tasks.Task, rows: Rows, numbers: NDArray[np.int64], of: NDArray[np.int64] | None = None, **more: Any
    ) -> str:
        """Write the rows of a task, and digest them with the shards that they are in; ``of``: the source of each shard."""
        shards, places = rows.places(numbers)
        used, local = np.unique(shards, return_inverse=True)
        names = [rows.names[number] for number in used.tolist()]
        trees = [self.trees[f"{kind}/{name}"] for name in names for kind in ("read", rows.judged)]
        if of is not None:
            more["sources"] = of[used]
        written = self._written(task, names=np.array(names), shards=local, rows=places, **more)
        return canonical_digest({"rows": written, "trees": trees})

    def _written(self, task: tasks.Task, **arrays: Any) -> str:
        """Write what a task is given, and digest it."""
        np.savez(tasks.rows_file(self.folder, task), **arrays)
        hasher = sha256()
        for name, array in sorted(arrays.items()):
            form = f"{name} {array.dtype.str} {array.shape}\n".encode()
            hasher.update(form + np.ascontiguousarray(array).tobytes())
        return "sha256:" + hasher.hexdigest()


def _strictly(where: str) -> DataError:
    return DataError(
        "something in a source is no document",
        where=where,
        expected="documents, as --strict demands",
        cure="correct it, or leave --strict out: then it is counted and named",
    )


def _keyed(rows: Rows, which: NDArray[np.bool_], band: int) -> Iterator[Keyed]:
    for numbers, (keys,) in rows.grouped(which, band_name(band)):
        yield numbers, keys


def _by_id(rows: Rows) -> Iterator[tuple[NDArray[np.int64], NDArray[np.uint64]]]:
    """Numbers and places of the kept documents in the order of their ids, cut where another :data:`WRITE_BYTES` are full."""
    total = 0
    waiting: list[tuple[NDArray[np.int64], NDArray[np.uint64]]] = []
    for numbers, (ids, sizes, places) in rows.grouped(rows.kept, "id", "size", "place"):
        order = np.lexsort((ids[:, 1], ids[:, 0]))
        ends = total + np.cumsum(sizes[order])
        cuts = np.flatnonzero(np.diff(ends // WRITE_BYTES, prepend=total // WRITE_BYTES))
        total = int(ends[-1])
        pieces = list(zip(np.split(numbers[order], cuts), np.split(places[order], cuts), strict=True))
        for piece in pieces[:-1]:
            waiting.append(piece)
            yield from _joined(waiting)
            waiting = []
        waiting.append(pieces[-1])
    yield from _joined(waiting)


def _joined(
    pieces: Sequence[tuple[NDArray[np.int64], NDArray[np.uint64]]],
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.uint64]]]:
    if pieces and sum(len(numbers) for numbers, _ in pieces):
        yield np.concatenate([numbers for numbers, _ in pieces]), np.concatenate([places for _, places in pieces])


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
