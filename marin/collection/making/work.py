"""What a worker does, a task at a time: read a slice, compare candidates, write a shard. Each task leaves a folder.

A folder appears under its name when all of it is written, so a worker that is killed leaves nothing that looks whole; who does
the task again writes the same bytes.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from marin.collection.comparing.contamination import STEP as CONTAMINATION
from marin.collection.comparing.contamination import Decontaminate, Evaluations, load_evaluations
from marin.collection.comparing.near import choose, signature
from marin.collection.document import Decision, Document, Problem, Step
from marin.collection.making.columns import (
    DECISIONS,
    DOCUMENTS,
    LISTING,
    NEAR,
    READ,
    ArrowRows,
    ArrowWriter,
    ParquetWriter,
    decision_row,
    encode,
)
from marin.collection.settings import CollectionSettings, reader_of, step_settings
from marin.collection.sources import lines
from marin.collection.sources.finding import Found
from marin.execution.workspace import explained

READ_FILE, LISTED, DECIDED, PROBLEMS = "read.arrow", "listing.parquet", "decisions.parquet", "problems.jsonl"
REMOVED, WRITTEN = "near.parquet", "documents.parquet"


class Setup(msgspec.Struct, frozen=True):
    """What all tasks of a collection have in common. ``folder``: where every worker finds what others left."""

    settings: CollectionSettings
    sources: list[Found]
    evaluations: list[tuple[str, str]]
    evaluation_fields: list[str]
    folder: str
    strict: bool = False


class Task(msgspec.Struct, frozen=True):
    """``read``: a slice of a source. ``near``, ``write``: the rows that the file ``rows.npz`` of the task names."""

    kind: str
    name: str
    source: int = 0
    slice: int = 0


class Answer(msgspec.Struct, frozen=True):
    """What a task counted; ``error``: a :class:`Problem` that stopped it in strict mode."""

    counts: dict[str, int]
    problems: dict[str, int] = {}
    removed: dict[str, int] = {}
    stopped: str = ""


def start(setup: bytes) -> Worker:
    """In a worker, once (:data:`marin.runners.Start`)."""
    return Worker(msgspec.json.decode(setup, type=Setup))


class Worker:
    """Takes tasks."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._folder = Path(setup.folder)
        self._steps: list[tuple[str, Step]] | None = None
        self._opened: dict[str, ArrowRows] = {}

    def __call__(self, task: bytes) -> bytes:
        """The :class:`Answer` to one :class:`Task`."""
        asked = msgspec.json.decode(task, type=Task)
        target = self._folder / asked.kind / asked.name
        partial = target.with_name(f"{asked.name}.{os.getpid()}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        do = {"read": self._read, "near": self._near, "write": self._write}[asked.kind]
        try:
            answer = do(asked, partial)
            shutil.rmtree(target, ignore_errors=True)
            partial.rename(target)
        except (OSError, MemoryError) as error:
            raise explained(f"collection, {asked.kind} {asked.name}", error) from error
        return msgspec.json.encode(answer)

    # Reading

    def steps(self) -> list[tuple[str, Step]]:
        """The steps of one document, made once."""
        if self._steps is None:
            settings = self._setup.settings
            self._steps = [(kind, made.make()) for kind, made in step_settings(settings.steps, where="settings")]
            if self._setup.evaluations:
                files = [(Path(path), name) for path, name in self._setup.evaluations]
                fields = load_evaluations(files, self._setup.evaluation_fields)
                self._steps.append((CONTAMINATION, Decontaminate(Evaluations(fields, settings.contamination))))
        return self._steps

    def _read(self, task: Task, out: Path) -> Answer:
        found = self._setup.sources[task.source]
        part, near = found.slices[task.slice], self._setup.settings.near
        path, name = Path(found.path), found.source.name
        reader = reader_of(path.name)
        if reader is not None:
            items = reader(path, name)
        else:
            items = lines.read(
                path, name, text_field=self._setup.settings.text_field, start=part.start, end=part.end, first=part.first
            )
        counts, problems, removed = Counter[str](), Counter[str](), Counter[str]()
        known: dict[bytes, bytes] = {}
        rows, listed = ArrowWriter(out / READ_FILE, READ), ParquetWriter(out / LISTED, LISTING)
        decided = ParquetWriter(out / DECIDED, DECISIONS)
        with (out / PROBLEMS).open("wb") as named:
            for item in items:
                if isinstance(item, Problem):
                    problems[item.reason] += 1
                    line = {
                        "source": item.source,
                        "position": item.position,
                        "reason": item.reason,
                        "found": item.found,
                    }
                    named.write(json.dumps(line, sort_keys=True).encode() + b"\n")
                    if self._setup.strict:
                        return Answer({}, stopped=told(line))
                    continue
                counts["read"] += 1
                as_read = sha256(item.text.encode()).digest()
                document, decisions = judge(item, self.steps())
                for order, decision in enumerate(decisions):
                    decided.write(decision_row(decision, order))
                reason = decisions[-1].reason if document is None else ""
                if reason:
                    removed[reason] += 1
                kept = document or Document(item.id, "", item.source, item.added, item.created, item.metadata)
                encoded = kept.text.encode()
                digest = as_read if document is item else sha256(encoded).digest()
                if reason or near is None:
                    bands = b""
                elif (bands := known.get(digest)) is None:  # type: ignore[assignment]
                    keys = signature(kept.text, near)
                    bands = known[digest] = b"" if keys is None else keys.astype("<u8").tobytes()
                rows.write(
                    {
                        "id": bytes.fromhex(item.id),
                        "position": item.metadata["position"],
                        "as_read": as_read,
                        "digest": digest,
                        "reason": reason,
                        "text": kept.text,
                        "added": kept.added,
                        "created": kept.created,
                        "metadata": encode(kept.metadata),
                        "bands": bands,
                    },
                    len(encoded),
                )
                listed.write(
                    {
                        "id": item.id,
                        "position": item.metadata["position"],
                        "url": str(item.metadata.get("url") or ""),
                        "as_read": as_read.hex(),
                        "digest": digest.hex(),
                        "reason": reason,
                    }
                )
        rows.close()
        listed.close()
        decided.close()
        return Answer(dict(counts), dict(problems), dict(removed))

    # Candidates, and what is kept

    def _rows(self, task: Task) -> Mapping[str, Any]:
        given: Mapping[str, Any] = np.load(self._folder / "tasks" / f"{task.kind}-{task.name}.npz", allow_pickle=False)
        return given

    def _opened_file(self, shard: str) -> ArrowRows:
        if shard not in self._opened:
            self._opened[shard] = ArrowRows(self._folder / "read" / shard / READ_FILE)
        return self._opened[shard]

    def _near(self, task: Task, out: Path) -> Answer:
        """``rows``: shards, row in each, and where each component ends, in the order in which they are considered."""
        near = self._setup.settings.near
        assert near is not None
        given = self._rows(task)
        names, shards, rows = given["names"].tolist(), given["shards"], given["rows"]
        writer = ParquetWriter(out / REMOVED, NEAR)
        counts, begin = Counter[str](), 0
        for end in given["ends"].tolist():
            members: list[dict[str, Any]] = [{}] * (end - begin)
            for shard in np.unique(shards[begin:end]).tolist():
                places = np.flatnonzero(shards[begin:end] == shard)
                taken = self._opened_file(names[shard]).take(rows[begin:end][places], ("id", "text", "bands"))
                for place, row in taken:
                    members[int(places[place])] = row
            keys = np.array([np.frombuffer(member["bands"], "<u8") for member in members])
            similar, left = choose([member["text"] for member in members], keys, near)
            cluster = min(member["id"] for member in members).hex()
            for one in similar:
                writer.write(
                    {
                        "id": members[one.removed]["id"].hex(),
                        "kept": members[one.kept]["id"].hex(),
                        "shared": one.shared,
                        "united": one.united,
                        "cluster": cluster,
                    }
                )
            counts["removed"] += len(similar)
            counts["not_compared_with_all"] += left
            begin = end
        writer.close()
        return Answer(dict(counts))

    def _write(self, task: Task, out: Path) -> Answer:
        """``rows``: shards, row in each, source of each shard, and whether it is held out, in the order of the shard."""
        given = self._rows(task)
        names, sources, shards, rows = given["names"].tolist(), given["sources"], given["shards"], given["rows"]
        held_out = given["held_out"]
        names_of_sources = [found.source.name for found in self._setup.sources]
        documents: list[dict[str, Any]] = [{}] * len(rows)
        for shard in np.unique(shards).tolist():
            places = np.flatnonzero(shards == shard)
            columns = ("id", "text", "added", "created", "metadata")
            for place, row in self._opened_file(names[shard]).take(rows[places], columns):
                documents[int(places[place])] = row | {"source": names_of_sources[int(sources[shard])]}
        writer = ParquetWriter(out / WRITTEN, DOCUMENTS)
        for row, out_of_training in zip(documents, held_out.tolist(), strict=True):
            split = "validation" if out_of_training else "train"
            writer.write(row | {"id": row["id"].hex(), "split": split})
        writer.close()
        return Answer({"documents": len(documents)})


def told(problem: Mapping[str, Any]) -> str:
    """A problem on one line: source, position, reason, what was found."""
    return f"{problem['source']}:{problem['position']}: {problem['reason']} {problem['found']}".strip()


def judge(document: Document, steps: list[tuple[str, Step]]) -> tuple[Document | None, list[Decision]]:
    """A document after all steps, and their decisions in order; the first that removes it is the last that is asked."""
    decisions: list[Decision] = []
    current: Document | None = document
    for _, step in steps:
        if current is None:
            break
        judgement = step.judge(current)
        decisions += judgement.decisions
        current = judgement.document
    return current, decisions
