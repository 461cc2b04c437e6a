"""Documents that a report shows: what was removed and how it began, what was changed and the lines that show it.

What the collection itself masks is masked here too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from marin.plugins.collections.document import Document
from marin.plugins.collections.queries.changes import changed_lines, masked
from marin.plugins.collections.queries.documents import Collection, text_before
from marin.plugins.collections.settings import CollectionSettings

EXAMPLES, LETTERS = 3, 280
"""Documents that are shown of each reason, those with the least ids, and of a changed one the lines; and how much of each."""


@dataclass(frozen=True)
class Example:
    """A document that was removed, why, and how it began; None where that is not in the store."""

    id: str
    url: str
    evidence: Mapping[str, Any]
    text: str | None = None


@dataclass(frozen=True)
class Change:
    """A document that a step changed, why, and the first lines that the step took out and put in their place."""

    id: str
    url: str
    evidence: Mapping[str, Any]
    taken: tuple[str, ...]
    put: tuple[str, ...]


@dataclass(frozen=True)
class CollectionView:
    """Makes them. ``places``: address, shard and position of each document by its id."""

    collection: Collection
    settings: CollectionSettings
    places: Mapping[str, tuple[str, str, int]]

    def removed(self, document: str, evidence: Mapping[str, Any]) -> Example:
        """One that was removed."""
        url, text = self._read(document)
        begin = () if text is None else _first_lines((masked(text[: 2 * LETTERS], self.settings),))
        return Example(document, url, evidence, "".join(begin) or None)

    def changed(self, document: str, step: str, evidence: Mapping[str, Any]) -> Change:
        """One that ``step`` changed."""
        url, text = self._read(document)
        before = None if text is None else Document(document, text, "")
        lines = ((), ()) if before is None else changed_lines(self.collection, self.settings, before, step)
        taken, put = map(_first_lines, lines)
        return Change(document, url, evidence, taken, put)

    def _read(self, document: str) -> tuple[str, str | None]:
        """Its address, and its text as it was before it was judged."""
        url, shard, position = self.places.get(document, ("", "", 0))
        return url, text_before(self.collection, shard, position) if shard else None


def _first_lines(lines: Iterable[str]) -> tuple[str, ...]:
    return tuple(" ".join(line.split())[:LETTERS] for line in islice(lines, EXAMPLES))
