"""What workers are told, and what they answer: names of files and counts, never texts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from marin.collection.making.columns import ArrowRows
from marin.collection.settings import CollectionSettings
from marin.collection.sources.finding import Found

READ_FILE, JUDGED_FILE, REMOVED_FILE = "read.arrow", "judged.arrow", "removed.npy"
LISTED, DECIDED, PROBLEMS, ORIGIN = "listing.parquet", "decisions.parquet", "problems.jsonl", "origin.json"
NEAR_FILE, WRITTEN = "near.parquet", "documents.parquet"


class Setup(msgspec.Struct, frozen=True):
    """What all tasks of a collection have in common. ``folder``: where every worker finds what others left."""

    settings: CollectionSettings
    sources: list[Found]
    evaluations: list[tuple[str, str]]
    evaluation_fields: list[str]
    folder: str
    strict: bool = False


class Task(msgspec.Struct, frozen=True):
    """``read``: a slice of a source. ``judge``: what was read of one. ``near``, ``write``: the rows that the file
    ``tasks/<kind>-<name>.npz`` names."""

    kind: str
    name: str
    source: int = 0
    slice: int = 0


class Answer(msgspec.Struct, frozen=True):
    """What a task counted; ``stopped``: a problem that stopped it in strict mode, on one line."""

    counts: dict[str, int]
    problems: dict[str, int] = {}
    removed: dict[str, int] = {}
    stopped: str = ""


def told(problem: Mapping[str, Any]) -> str:
    """A problem on one line: source, position, reason, what was found."""
    return f"{problem['source']}:{problem['position']}: {problem['reason']} {problem['found']}".strip()


def given_file(folder: Path, task: Task) -> Path:
    """Where the rows of a task are named."""
    return folder / "tasks" / f"{task.kind}-{task.name}.npz"


def given(folder: Path, task: Task) -> Mapping[str, Any]:
    """The rows of a task."""
    rows: Mapping[str, Any] = np.load(given_file(folder, task), allow_pickle=False)
    return rows


class Opened:
    """What was read and judged, by rows, as the steps left it."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self._folder, self._names = folder, names
        self._files: dict[tuple[str, int], ArrowRows] = {}

    def take(
        self, shards: NDArray[np.int64], rows: NDArray[np.int64], read: Sequence[str], judged: Sequence[str] = ()
    ) -> list[tuple[Any, ...]]:
        """For each row its text, then these columns of what was read, then these of what was judged."""
        taken: list[tuple[Any, ...]] = [()] * len(rows)
        for shard in np.unique(shards).tolist():
            places = np.flatnonzero(shards == shard)
            after = self._of(shard, "judge", JUDGED_FILE).take(rows[places], ("text", *judged))
            before = self._of(shard, "read", READ_FILE).take(rows[places], ("text", *read))
            for (place, (text, *said)), (_, (own, *found)) in zip(after, before, strict=True):
                taken[int(places[place])] = (own if text is None else text, *found, *said)
        return taken

    def _of(self, shard: int, kind: str, file: str) -> ArrowRows:
        if (kind, shard) not in self._files:
            self._files[kind, shard] = ArrowRows(self._folder / kind / self._names[shard] / file)
        return self._files[kind, shard]


def blocks(count: int, size: int) -> Iterator[slice]:
    """``[0, count)`` in pieces."""
    for begin in range(0, count, size):
        yield slice(begin, min(begin + size, count))


def one_line(problem: Mapping[str, Any]) -> bytes:
    """A problem as a line of ``problems.jsonl``."""
    return json.dumps(problem, sort_keys=True).encode() + b"\n"
