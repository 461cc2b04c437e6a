"""What a making is given and gives: where done work lies, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from marin.plugins.collections.sources.finding import LocatedSource, Source
from marin.plugins.collections.tasks.task import Counted, Task


@dataclass(frozen=True)
class Shard:
    """A task with its identity: the digest of everything that decides its files."""

    task: Task
    identity: str

    @property
    def name(self) -> str:
        """Kind and name, which no other shard of a collection has."""
        return f"{self.task.kind}/{self.task.name}"


class Shelf(Protocol):
    """Where done work lies."""

    def expect(self, kind: str, shards: Sequence[Shard]) -> None:
        """What a phase consists of, before anything of it is taken or made."""

    def take(self, shard: Shard, folder: Path) -> Counted | None:
        """Bring what was made of a shard to ``folder``; None where it has to be made."""

    def put(self, shard: Shard, folder: Path, answer: Counted) -> str:
        """Keep what was made; the digest of the tree."""

    def read(self, origins: Sequence[tuple[LocatedSource, Mapping[str, Any]]]) -> None:
        """All sources are read, and this is what their documents say of themselves
        (:class:`marin.plugins.collections.sources.origin.Origin`)."""


@dataclass(frozen=True)
class CollectionFolder:
    """A collection in a folder, and what was counted."""

    folder: Path
    read: int
    kept: int
    removed: Mapping[str, int]
    problems: Mapping[str, int]
    sources: Sequence[Source]
