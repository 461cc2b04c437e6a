"""A collection made again from its sources, and compared with what is recorded: shard by shard, document by document.

Everything is made by the installed code with the recorded settings. Each shard that is executed must leave the recorded
files; where only a sample is executed, the others are taken from the store, their bytes hashed, and their counts held
against their files. The columns between the phases (exact duplicates, candidates, order, splits) are always computed anew.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from ledger import LedgerError, Store, describe_tree
from marin.data.reach import EVERYTHING, Reach, reaching
from marin.errors import DataError, MissingEvidence
from marin.history.runs import History, facts
from marin.kinds.families import collection as kinds
from marin.plugins.collections.build import BuildRequest, Prepared, prepare, source_of
from marin.plugins.collections.making.description import DESCRIPTION, NOT_COMPARED, content
from marin.plugins.collections.making.execute import executing
from marin.plugins.collections.making.make import make
from marin.plugins.collections.making.shelf import CollectionFolder, Shard
from marin.plugins.collections.queries.documents import Collection
from marin.plugins.collections.queries.leading import led_nowhere
from marin.plugins.collections.settings import settings_of
from marin.plugins.collections.sources.finding import LocatedSource
from marin.plugins.collections.tasks.columns import DECISIONS, ArrowRows
from marin.plugins.collections.tasks.task import DECIDED, PROBLEMS, READ_FILE, Counted
from marin.process.text import clipped
from marin.recipe.schema import unplain

MOST_NAMED = 5
"""Differences that are spelt out for each file."""


@dataclass(frozen=True)
class Replayed:
    """What came of it. ``wrong``: lines, each with step, shard and document where it is known; none: all is as recorded.
    ``executed``, ``taken``: shards. ``same_code``: the installed code and lock are the recorded ones. ``missing``: sources that
    could not be had when it was made, and were not asked for now."""

    wrong: tuple[str, ...]
    executed: int
    taken: int
    same_code: bool
    missing: tuple[str, ...] = ()


Draw = Callable[[str, int], Sequence[int]]
"""Which of so many shards of a kind are executed: their numbers."""


def every(kind: str, count: int) -> Sequence[int]:
    """All of them (:data:`Draw`)."""
    return range(count)


def replay(
    store: Store,
    history: History,
    artifact: str,
    folder: Path,
    *,
    workers: int = 1,
    reach: Reach = EVERYTHING,
    draw: Draw = every,
) -> Replayed:
    """Make the collection ``artifact`` again in the empty ``folder`` and compare.

    Raises:
        MissingEvidence: the log does not say how it was made.
        DataMissing: its sources are not here, or may not be reached.
    """
    completed, started = _recorded(history, artifact)
    settings = list(_other_settings(Collection(store, artifact), started))
    with reaching(reach):
        here = prepare(_request(started), missing=_missing(store.read(started.sources)))
        wrong = _other_sources(store, started, here)
        if wrong:
            return Replayed(tuple(wrong), 0, 0, True)
        recorded = replace(here, code=started.code, lock=started.lock)
        if recorded.identity != completed.identity:
            line = (
                f"collection.started: expected identity {recorded.identity} by what it says, found {completed.identity}"
            )
            return Replayed((line, *settings), 0, 0, True)
        shelf = _Comparing(store, history, draw, completed.identity)
        with executing(workers) as execute:
            made = make(recorded.setup(folder), recorded.shard_code, execute, shelf)
    wrong = [*settings, *shelf.wrong, *_other_counts(completed, made), *_other_files(store, artifact, made.folder)]
    if not wrong:
        wrong += led_nowhere(Collection(store, artifact))
    same = (here.code, here.lock) == (started.code, started.lock)
    missing = tuple(found.source.name for found in here.found if found.missing)
    return Replayed(tuple(dict.fromkeys(wrong)), shelf.executed, shelf.taken, same, missing)


def _recorded(history: History, artifact: str) -> tuple[kinds.CollectionCompleted, kinds.CollectionStarted]:
    for completed in [
        fact.body for fact in facts(history, kinds.CollectionCompleted) if fact.body.artifact == artifact
    ][-1:]:
        for started in facts(history, kinds.CollectionStarted, identity=completed.identity):
            return completed, started.body
    raise MissingEvidence(
        "how a collection was made is not recorded in this log",
        where=artifact,
        expected=f"{kinds.COLLECTION_STARTED} and {kinds.COLLECTION_COMPLETED}",
        found="none for this digest",
        cure="build it in this root: marin data build",
    )


def _request(started: kinds.CollectionStarted) -> BuildRequest:
    return BuildRequest(
        tuple(started.globs),
        settings_of(unplain(started.settings), where="settings of the collection"),
        tuple(started.evaluation_globs),
        tuple(started.evaluation_fields),
        started.strict,
        started.definition,
    )


def _other_settings(collection: Collection, started: kinds.CollectionStarted) -> Iterator[str]:
    """Settings in which what was started and what the collection says of itself differ, by their names."""
    try:
        said = collection.description().get("settings")
    except DataError:
        return  # its files are compared, and say it
    recorded, found = dict(_flat(unplain(started.settings))), dict(_flat(unplain(said)))
    for name in sorted(recorded.keys() | found.keys()):
        if (ours := recorded.get(name)) != (theirs := found.get(name)):
            yield f"collection.started: setting {name}: recorded {ours}, {DESCRIPTION} has {theirs}"


def _flat(value: object, name: str = "") -> Iterator[tuple[str, object]]:
    """Each value of a tree by its path, as ``near.threshold`` or ``steps.0.kind``."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if inner is None:
        yield name, value
        return
    for key, item in inner:
        yield from _flat(item, f"{name}.{key}" if name else str(key))


def _other_sources(store: Store, started: kinds.CollectionStarted, here: Prepared) -> list[str]:
    wrong = []
    for what, digest, items in (
        ("source", started.sources, [*content(here.found), *here.examples_content()]),
        ("evaluation", started.evaluations, content([LocatedSource(source, "", ()) for _, source in here.evaluations])),
    ):
        recorded = _by_name(store.read(digest))
        found = {_label(item): str(item["digest"]) for item in items}
        wrong += [
            f"read: {what} {name}: recorded {recorded.get(name, 'none')}, found {found.get(name, 'none')}"
            for name in sorted(recorded.keys() | found.keys())
            if recorded.get(name) != found.get(name)
        ]
    return wrong


def _missing(data: bytes) -> dict[str, str]:
    """Recorded sources that could not be had."""
    try:
        return {str(item["name"]): str(item["missing"]) for item in json.loads(data) if "missing" in item}
    except (ValueError, TypeError, KeyError, RecursionError):
        return {}


def _by_name(data: bytes) -> dict[str, str]:
    try:
        return {_label(item): str(item["digest"]) for item in json.loads(data)}
    except (ValueError, TypeError, KeyError, RecursionError):
        return {}


def _label(item: Mapping[str, Any]) -> str:
    return f"{item['role']} {item['name']}" if "role" in item else str(item["name"])


def _other_counts(completed: kinds.CollectionCompleted, made: CollectionFolder) -> Iterator[str]:
    for name, recorded, found in (
        ("documents read", completed.read, made.read),
        ("documents kept", completed.kept, made.kept),
        ("removed", dict(completed.removed), dict(made.removed)),
        ("problems", dict(completed.problems), dict(made.problems)),
    ):
        if recorded != found:
            yield f"collection.completed: recorded {name} {recorded}, found {found}"


STEPS = {
    "documents": "write",
    "listing": "judge",
    "decisions": "judge",
    "problems": "read",
    "duplicates": "near",
    NOT_COMPARED: "near",
}
"""Which step makes the files of a folder, unless their name says another one."""


def _other_files(store: Store, artifact: str, folder: Path) -> Iterator[str]:
    """What is wrong with the collection's files, by step, shard and document."""
    recorded = {entry.path: entry.digest for entry in store.manifest(artifact)}
    found = {entry.path: entry.digest for entry in describe_tree(folder)}
    for path in sorted(recorded.keys() | found.keys()):
        if recorded.get(path) == found.get(path):
            continue
        top, _, name = path.partition("/")
        step = "exact" if path == "duplicates/exact.parquet" else STEPS.get(top, "collection")
        step = next((kind for kind in ("read", "cut") if name.startswith(f"{kind}-")), step)
        at = f"{step}: shard {name.partition('.')[0] or top} ({path})"
        if path not in found:
            yield f"{at}: is recorded, and none follows from the sources"
        elif path not in recorded:
            yield f"{at}: follows from the sources, and none is recorded"
        else:
            with store.open_file(artifact, path) as file:
                yield from _other_rows(at, file.read(), (folder / path).read_bytes(), path)


def _other_rows(at: str, recorded: bytes, found: bytes, path: str) -> Iterator[str]:
    if not path.endswith(".parquet"):
        yield f"{at}: expected {_first_other_line(found, recorded)}, found {_first_other_line(recorded, found)}"
        return
    try:
        theirs, ours = _rows(recorded), _rows(found)
    except (pa.ArrowException, ValueError, KeyError, OSError) as error:
        yield f"{at}: cannot be read: {' '.join(str(error).split())[:160]}"
        return
    told = 0
    for key in sorted(theirs.keys() | ours.keys()):
        if theirs.get(key) == ours.get(key):
            continue
        told += 1
        if told > MOST_NAMED:
            yield f"{at}: and more documents"
            return
        if key not in ours:
            yield f"{at}: document {key[0]} was added: it does not follow from the sources"
        elif key not in theirs:
            yield f"{at}: document {key[0]} was dropped: it follows from the sources"
        else:
            fields = [name for name in ours[key] if theirs[key].get(name) != ours[key][name]]
            shown = "; ".join(
                f"{name} expected {_quoted(ours[key][name])}, found {_quoted(theirs[key].get(name))}" for name in fields
            )
            yield f"{at}: document {key[0]} was altered: {shown or 'other columns'}"
    if not told:
        yield f"{at}: equal documents in another order or form"


def _rows(data: bytes) -> dict[tuple[str, int], dict[str, Any]]:
    table = pq.read_table(pa.BufferReader(data))
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    seen = Counter[str]()
    for row in table.to_pylist():
        rows[str(row["id"]), seen[str(row["id"])]] = row
        seen[str(row["id"])] += 1
    return rows


def _first_other_line(ours: bytes, theirs: bytes) -> str:
    mine = set(ours.split(b"\n"))
    line = next((line for line in theirs.split(b"\n") if line not in mine), b"")
    return _quoted(line.decode("utf-8", "replace"))


def _quoted(value: object) -> str:
    return repr(clipped(str(value), 60))


@dataclass
class _Comparing:
    """A :class:`marin.plugins.collections.making.shelf.Shelf` that holds what is made against what is recorded under the same
    identity."""

    store: Store
    history: History
    draw: Draw
    identity: str
    wrong: list[str] = field(default_factory=list)
    executed: int = 0
    taken: int = 0
    _drawn: dict[str, set[str]] = field(default_factory=dict)
    _taken: dict[str, str] = field(default_factory=dict)

    def expect(self, kind: str, shards: Sequence[Shard]) -> None:
        """Choose those that are executed."""
        self._drawn[kind] = {shards[number].identity for number in self.draw(kind, len(shards))}

    def take(self, shard: Shard, folder: Path) -> Counted | None:
        """What is recorded of a shard that was not drawn; None: it is executed."""
        recorded = self._recorded(shard)
        if recorded is None or shard.identity in self._drawn[shard.task.kind]:
            return None
        try:
            answer = msgspec.convert(recorded.answer, Counted)
            folder.parent.mkdir(parents=True, exist_ok=True)
            self.store.checkout(recorded.artifact, folder)
        except (LedgerError, msgspec.ValidationError):
            return None  # gone or damaged: it is made again
        if shard.task.kind in ("read", "judge", "cut"):
            said = {"read": answer.counts.get("read", 0), "problems": answer.problems, "removed": answer.removed}
            if (found := _counted(folder)) != said:
                self.wrong.append(f"{_at(shard)}: recorded {said}, its files have {found}")
        self.taken += 1
        self._taken[shard.identity] = recorded.artifact
        return answer

    def put(self, shard: Shard, folder: Path, answer: Counted) -> str:
        """Compare, where it was executed."""
        if shard.identity in self._taken:
            return self._taken[shard.identity]
        self.executed += 1
        tree = describe_tree(folder).digest
        recorded = self._recorded(shard)
        if recorded is None:
            return tree
        if recorded.answer != msgspec.to_builtins(answer):
            self.wrong.append(f"{_at(shard)}: recorded {recorded.answer}, found {msgspec.to_builtins(answer)}")
        if recorded.artifact != tree:
            self.wrong.append(f"{_at(shard)}: expected {tree}, found {recorded.artifact}")
            self.wrong += self._documents(shard, recorded.artifact, folder)
        return tree

    def read(self, origins: Sequence[tuple[LocatedSource, Mapping[str, Any]]]) -> None:
        """Compare what the sources say of themselves with what is recorded."""
        sources = (fact.body for fact in facts(self.history, kinds.CollectionSource))
        recorded = {body.name: body for body in sources if body.collection == self.identity}
        for found, said in origins:
            ours, theirs = source_of(self.identity, found, said), recorded.get(found.source.name)
            if theirs is None:
                self.wrong.append(f"read: source {found.source.name}: no {kinds.COLLECTION_SOURCE} is recorded")
                continue
            for what in ("digest", "size", "documents", "licences", "signals", "times"):
                expected, told = getattr(ours, what), getattr(theirs, what)
                if expected != told:
                    self.wrong.append(f"read: source {found.source.name}: recorded {what} {told}, found {expected}")

    def _documents(self, shard: Shard, artifact: str, folder: Path) -> list[str]:
        try:
            entries = {entry.path: entry.digest for entry in self.store.manifest(artifact)}
            lines: list[str] = []
            for path in sorted(entries):
                ours = folder / path
                if path.endswith((".parquet", ".jsonl")) and ours.is_file():
                    with self.store.open_file(artifact, path) as file:
                        data = file.read()
                    if data != ours.read_bytes():
                        lines += _other_rows(_at(shard), data, ours.read_bytes(), path)
            return lines
        except LedgerError as error:
            return [f"{_at(shard)}: {error}"]

    def _recorded(self, shard: Shard) -> kinds.CollectionShard | None:
        found = [fact.body for fact in facts(self.history, kinds.CollectionShard, identity=shard.identity)]
        return found[-1] if found else None


def _at(shard: Shard) -> str:
    return f"{shard.task.kind}: shard {shard.task.name}"


def _counted(folder: Path) -> dict[str, Any]:
    """What the files of a slice say that its answer says too."""
    try:
        read = len(ArrowRows(folder / READ_FILE)) if (folder / READ_FILE).exists() else 0
        named = (folder / PROBLEMS).read_bytes() if (folder / PROBLEMS).exists() else b""
        problems = Counter(json.loads(line)["reason"] for line in named.splitlines())
        table = pq.read_table(folder / DECIDED, columns=["id", "action", "reason"], schema=DECISIONS)
    except (pa.ArrowException, ValueError, KeyError, TypeError, OSError):
        return {}
    gone = {row["id"]: row["reason"] for row in table.to_pylist() if row["action"] == "remove"}
    return {"read": read, "problems": dict(problems), "removed": dict(Counter(gone.values()))}
