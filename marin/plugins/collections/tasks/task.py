"""What workers are told, and what they answer: names of files and counts, never texts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from marin.plugins.collections.settings import DEFINITION, CollectionSettings
from marin.plugins.collections.sources.finding import LocatedSource
from marin.plugins.collections.steps.quality import Quality
from marin.plugins.collections.tasks.columns import ArrowRows

READ_FILE, JUDGED_FILE, PARAGRAPHS, REMOVED_FILE = "read.arrow", "judged.arrow", "paragraphs.arrow", "removed.npy"
LISTED, DECIDED, PROBLEMS, ORIGIN = "listing.parquet", "decisions.parquet", "problems.jsonl", "origin.json"
NEAR_FILE, BOUNDED_FILE, WRITTEN, MODEL = "near.parquet", "not_compared.parquet", "documents.parquet", "model.npy"


class Examples(msgspec.Struct, frozen=True):
    """Files whose texts a quality classifier is shown; ``place``: of the step in the settings. Without ``bad`` ones it is shown
    what the collection has read."""

    place: int
    settings: Quality
    good: list[LocatedSource]
    bad: list[LocatedSource]


class Setup(msgspec.Struct, frozen=True):
    """What all tasks of a collection have in common. ``folder``: where every worker finds what others left."""

    settings: CollectionSettings
    sources: list[LocatedSource]
    evaluations: list[tuple[str, str]]
    evaluation_fields: list[str]
    folder: str
    strict: bool = False
    examples: list[Examples] = []
    definition: int = DEFINITION


class Task(msgspec.Struct, frozen=True):
    """``read``: a slice of a source. ``train``: a model, ``source`` its number among the examples. ``judge``: what was read of a
    slice. ``cut``, ``near``, ``write``: the rows that the file
    ``tasks/<kind>-<name>.npz`` names."""

    kind: str
    name: str
    source: int = 0
    slice: int = 0


class Counted(msgspec.Struct, frozen=True):
    """What a task counted; ``stopped``: a problem that stopped it in strict mode, on one line."""

    counts: dict[str, int]
    problems: dict[str, int] = {}
    removed: dict[str, int] = {}
    stopped: str = ""


def judged_kind(settings: CollectionSettings) -> str:
    """Of which tasks the texts are that the collection has."""
    return "cut" if settings.paragraphs is not None else "judge"


def model_file(folder: Path, number: int) -> Path:
    """Where the model of these examples lies."""
    return folder / "train" / f"{number:06d}" / MODEL


def problem_line(problem: Mapping[str, Any]) -> str:
    """A problem on one line: source, position, reason, what was found."""
    return f"{problem['source']}:{problem['position']}: {problem['reason']} {problem['found']}".strip()


def rows_file(folder: Path, task: Task) -> Path:
    """Where the rows of a task are named."""
    return folder / "tasks" / f"{task.kind}-{task.name}.npz"


def task_rows(folder: Path, task: Task) -> Mapping[str, Any]:
    """The rows of a task."""
    rows: Mapping[str, Any] = np.load(rows_file(folder, task), allow_pickle=False)
    return rows


class ShardRows:
    """What was read and judged, by rows, as the tasks of the kind ``judged`` left it."""

    def __init__(self, setup: Setup, names: Sequence[str], judged: str) -> None:
        self._folder, self._names, self._judged = Path(setup.folder), names, judged
        self._files: dict[tuple[str, int], ArrowRows] = {}

    def take(
        self, shards: NDArray[np.int64], rows: NDArray[np.int64], read: Sequence[str], judged: Sequence[str] = ()
    ) -> list[tuple[Any, ...]]:
        """For each row its text, then these columns of what was read, then these of what was judged."""
        taken: list[tuple[Any, ...]] = [()] * len(rows)
        for shard in np.unique(shards).tolist():
            places = np.flatnonzero(shards == shard)
            after = self._of(shard, self._judged, JUDGED_FILE).take(rows[places], ("text", *judged))
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
