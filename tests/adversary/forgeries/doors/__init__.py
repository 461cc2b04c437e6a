"""All doors beside a root that is judged in full, and what is forged at each. Importing a module of this package enters its
kinds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import mkdtemp

from tests.adversary.forgeries.brought import brought
from tests.adversary.forgeries.doors import (
    attempts,
    authors,
    boards,
    bundles,
    events,
    pages,
    published,
    statements,
    views,
    witnesses,
)
from tests.adversary.forgeries.doors.register import Kind, Stall, at, tried
from tests.adversary.forgeries.workshop import Base

__all__ = [
    "all_kinds",
    "attempts",
    "authors",
    "boards",
    "bundles",
    "events",
    "pages",
    "published",
    "statements",
    "table_of",
    "views",
    "witnesses",
]


def all_kinds(*doors: str) -> Iterator[Kind]:
    """The kinds of these doors, or of all of them."""
    return at(*doors)


def table_of(base: Base, kinds: Iterable[Kind]) -> Iterator[tuple[str, bool]]:
    """Each kind tried, as a line, and whether all is well; how many there were of each door in the end."""
    counts: Counter[tuple[str, str]] = Counter()
    for kind in kinds:
        stall = Stall(base, Path(mkdtemp(prefix="stall-", dir=base.folder)), lambda: brought(base))
        row = tried(kind, stall)
        stall.discard()
        counts[kind.door, row.how] += 1
        mark, said = "" if row.good else "BAD ", " ".join(row.said.split())
        yield f"{kind.door:12} {mark}{kind.name:52} {row.how:12} {said[:120]}", row.good
    for (door, how), count in counts.items():
        yield f"{door}: {count} {how}", True
