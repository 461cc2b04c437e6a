"""Which documents are left out together, what they are to a run, and from which recorded state it is trained without them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ledger import Store
from marin.errors import MissingEvidence, UsageError
from marin.history.run import Run
from marin.plugins.collections.queries.uses import readings
from marin.plugins.unlearning import forks
from marin.plugins.unlearning.forks import Place

MOST = 100_000
"""Groups that are asked for at once."""


@dataclass(frozen=True)
class Group:
    """``documents``: ids, sorted; none for the run as it is. ``spans``: their tokens (part, the first, the one after the
    last). ``steps``: the train steps that read some of them, in order. ``place``: where the training is executed again
    from; at the end, where no train step read one."""

    documents: tuple[str, ...]
    spans: tuple[tuple[str, int, int], ...]
    steps: tuple[int, ...]
    place: Place

    @property
    def first_use(self) -> int | None:
        """The first train step that read one of them."""
        return self.steps[0] if self.steps else None


def read_groups(path: Path) -> list[tuple[str, ...]]:
    """The groups of a file, one a line: ids with spaces between them, or JSON: a text, a list of them, or an object as
    `marin data list --json` prints it, of which held-out documents are passed over. Each group once, in the order of the
    file.

    Raises:
        UsageError: it cannot be read, a line is not a group, or there is none.
    """
    try:
        lines = path.read_bytes().decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            "documents cannot be read", where=str(path), expected="a text file with ids", found=str(error)[:200]
        ) from None
    groups = (_group(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip())
    found = dict.fromkeys(tuple(sorted(set(group))) for group in groups if group)
    if not found or len(found) > MOST:
        raise UsageError(
            "no documents to leave out" if not found else "too many groups at once",
            where=str(path),
            expected=f"1 to {MOST} lines with ids",
            found=str(len(found)),
            cure="marin data list RUN --json > FILE",
        )
    return list(found)


def _group(line: str, where: str) -> list[str]:
    """The ids of a line; none where it says that its document is of another split than ``train``."""
    if line.lstrip()[:1] not in '["{':
        return line.split()
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict) and value.get("split", "train") != "train":
        return []
    ids = [value] if isinstance(value, str) else value.get("id") if isinstance(value, dict) else value
    ids = [ids] if isinstance(ids, str) else ids
    if not isinstance(ids, list) or not ids or not all(isinstance(one, str) and one for one in ids):
        raise UsageError(
            "not a group of documents",
            where=where,
            expected="ids, or a JSON text, list or object with an id",
            found=line[:80],
        )
    return ids


def plan(run: Run, store: Store, groups: Sequence[Sequence[str]]) -> list[Group]:
    """What leaving out each group takes; the run as it is comes first.

    Raises:
        UsageError: the run is one that this cannot be done with, or a document is not in its training data or excluded.
        MissingEvidence: its last state is not in the store.
    """
    forks.check_forkable(run, "trained without documents")
    excluded = set(run.recipe.exclude or ())
    if again := sorted(excluded.intersection(*[{one for group in groups for one in group}])):
        raise UsageError(
            "a document that is excluded already",
            where=again[0],
            found="run.started excludes it",
            expected=f"a document that run {run.run} was trained on",
            cure="leave it out",
        )
    return [Group((), (), (), _end(run, store)), *_groups_of(run, store, groups)]


def _end(run: Run, store: Store) -> Place:
    last = run.segments[-1].body
    if last.end_state not in {fact.body.state for fact in run.checkpoints if store.has(fact.body.artifact)}:
        raise MissingEvidence(
            "the last state of the run is not in the store",
            where=f"run {run.run}",
            expected=last.end_state,
            found="none",
            cure="marin store pull",
        )
    return Place(last.end, last.end_state)


def _groups_of(run: Run, store: Store, groups: Sequence[Sequence[str]]) -> Iterator[Group]:
    ids = tuple(sorted({one for group in groups for one in group}))
    with TemporaryDirectory(prefix="marin-attribute-") as base:
        wanted, uses = readings(run, store, ids, Path(base))
    by_id: dict[str, list[int]] = {}
    for place, (name, _, _) in enumerate(wanted):
        by_id.setdefault(name, []).append(place)  # a document of several parts is in each of them
    end = _end(run, store)
    for group in groups:
        mine = [uses.documents[place] for one in group for place in by_id[one]]
        steps = tuple(sorted({step for use in mine for step in use.steps}))
        where = forks.place(run, store, steps[0]) if steps else end
        yield Group(tuple(group), tuple((use.part, use.start, use.end) for use in mine), steps, where)
