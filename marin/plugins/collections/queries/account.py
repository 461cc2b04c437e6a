"""What a collection came to, in numbers: by source, by step, by licence, by length, with examples of every removal and
of every change.

One pass over the artifact's own columns, a file at a time; what is kept are counts, the ids of what was removed, and a few
examples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from marin.plugins.collections.making.choice import REASON as SAMPLED
from marin.plugins.collections.making.choice import STEP as SAMPLING
from marin.plugins.collections.making.make import EXACT_REASON, EXACT_STEP, NEAR_REASON, NEAR_STEP
from marin.plugins.collections.queries.documents import Collection, led_to
from marin.plugins.collections.queries.examples import EXAMPLES, Change, CollectionView, Example
from marin.plugins.collections.queries.foreign import as_columns, scalars
from marin.plugins.collections.settings import settings_of
from marin.plugins.collections.sources.origin import licence
from marin.recipe.schema import unplain


@dataclass(frozen=True)
class OfSource:
    """One source: documents read and kept, and the bytes of UTF-8 of the kept texts. ``tokens``: of a run's token stream, where
    one was asked for."""

    name: str
    digest: str
    size: int
    read: int
    kept: int
    bytes: int
    tokens: int | None = None


@dataclass(frozen=True)
class OfStep:
    """What a step did for one reason: ``documents``, and of those that it removed the ``bytes`` that they had before they were
    judged; None where the collection does not say."""

    documents: int
    bytes: int | None = None


@dataclass(frozen=True)
class Account:
    """``steps``: by (step, action, reason), in the order in which the steps are done. ``lengths``: kept documents by the power of
    two that their text has at least, in bytes; ``similar``: near-duplicates by hundredths of similarity, rounded down;
    ``clusters``: how many documents were removed for one that is kept, by the power of two; ``licences``: by what their page
    says; ``not_compared``: documents that the bound ``most_compared`` kept from being compared with all that they share a band
    with."""

    artifact: str
    read: int
    kept: int
    problems: Mapping[str, int]
    sources: tuple[OfSource, ...]
    steps: Mapping[tuple[str, str, str], OfStep]
    examples: Mapping[str, tuple[Example, ...]]
    changes: Mapping[str, tuple[Change, ...]]
    lengths: Mapping[int, int]
    similar: Mapping[int, int]
    clusters: Mapping[int, int]
    licences: Mapping[str, int]
    splits: Mapping[str, int]
    not_compared: int = 0
    most_compared: int = 0

    def as_json(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return {
            "artifact": self.artifact,
            "documents": {"read": self.read, "kept": self.kept},
            "not_compared_with_all": self.not_compared,
            "problems": dict(self.problems),
            "sources": [vars(source) for source in self.sources],
            "steps": [
                {"step": step, "action": action, "reason": reason, **vars(found)}
                for (step, action, reason), found in self.steps.items()
            ],
            "examples": {reason: [vars(one) for one in found] for reason, found in self.examples.items()},
            "changes": {reason: [vars(one) for one in found] for reason, found in self.changes.items()},
            "lengths": {str(least): count for least, count in self.lengths.items()},
            "similar": {f"{hundredths / 100:.2f}": count for hundredths, count in self.similar.items()},
            "clusters": {str(least): count for least, count in self.clusters.items()},
            "licences": dict(self.licences),
            "splits": dict(self.splits),
        }


@dataclass
class _Decided:
    """What was decided, over all files."""

    steps: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    removed: dict[tuple[str, str], list[pa.ChunkedArray]] = field(default_factory=dict)
    """Ids by step and reason."""
    first: dict[str, list[tuple[str, Mapping[str, Any]]]] = field(default_factory=dict)
    changed: dict[tuple[str, str], list[tuple[str, Mapping[str, Any]]]] = field(default_factory=dict)
    """The first ones by step and reason."""
    similar: Counter[int] = field(default_factory=Counter)
    followers: Counter[str] = field(default_factory=Counter)

    def saw(self, step: str, reason: str, table: pa.Table, evidence: Iterator[Mapping[str, Any]]) -> None:
        """Removals of one step for one reason, in any order."""
        self.removed.setdefault((step, reason), []).append(table["id"])
        found = self.first.setdefault(reason, [])
        found += zip(table["id"].to_pylist(), evidence, strict=True)
        found.sort(key=lambda item: item[0])
        del found[EXAMPLES:]


def account(collection: Collection, tokens: Mapping[str, int] | None = None) -> Account:
    """The account of a collection; ``tokens``: of each source, in a run.

    Raises:
        DataError: the artifact is not a collection, or a file of it cannot be read or has another form.
    """
    with as_columns(collection.artifact):
        return _account(collection, tokens)


def _account(collection: Collection, tokens: Mapping[str, int] | None) -> Account:
    told = collection.description()
    order = {str(step["kind"]): place for place, step in enumerate(told["settings"]["steps"])}
    decided = _decided(collection)
    if count := int(told["removed"].get(SAMPLED, 0)):
        decided.steps[SAMPLING, "remove", SAMPLED] += count
    read, sizes, places = _listed(collection, told, decided)
    shown = CollectionView(collection, settings_of(unplain(told["settings"]), where=collection.artifact), places)
    kept, size, lengths, licences, splits = (Counter[Any]() for _ in range(5))
    for row in collection.documents(("source", "text", "metadata", "split")):
        count = len(row["text"].encode())
        kept[row["source"]] += 1
        size[row["source"]] += count
        lengths[1 << max(0, count.bit_length() - 1)] += 1
        licences[licence(scalars(row["metadata"]))] += 1
        splits[row["split"]] += 1
    clusters = Counter(1 << (count.bit_length() - 1) for count in decided.followers.values())
    names = [str(item["name"]) for item in told["sources"]]
    return Account(
        artifact=collection.artifact,
        read=int(told["documents"]["read"]),
        kept=int(told["documents"]["kept"]),
        problems={str(reason): int(count) for reason, count in told["problems"].items()},
        sources=tuple(
            OfSource(
                name,
                str(item["digest"]),
                int(item["size"]),
                read[name],
                kept[name],
                size[name],
                None if tokens is None else tokens.get(name, 0),
            )
            for name, item in zip(names, told["sources"], strict=True)
        ),
        steps={
            key: OfStep(count, sizes.get((key[0], key[2])) if key[1] == "remove" else None)
            for key, count in sorted(
                decided.steps.items(), key=lambda item: (order.get(item[0][0], len(order)), item[0])
            )
        },
        examples={
            reason: tuple(shown.removed(document, evidence) for document, evidence in found)
            for reason, found in sorted(decided.first.items())
        },
        changes={
            reason: tuple(shown.changed(document, step, evidence) for document, evidence in found)
            for (step, reason), found in sorted(decided.changed.items())
        },
        lengths=dict(sorted(lengths.items())),
        similar=dict(sorted(decided.similar.items())),
        clusters=dict(sorted(clusters.items())),
        licences=dict(licences.most_common()),
        splits=dict(sorted(splits.items())),
        not_compared=collection.not_compared(),
        most_compared=int((told["settings"]["near"] or {}).get("most_compared", 0)),
    )


def _decided(collection: Collection) -> _Decided:
    found = _Decided()
    for path in collection.files("decisions"):
        table = collection.table(path)
        for row in table.group_by(["step", "action", "reason"]).aggregate([("id", "count_distinct")]).to_pylist():
            found.steps[row["step"], row["action"], row["reason"]] += row["id_count_distinct"]
        gone = table.filter(pc.equal(table["action"], "remove"))
        for step, reason in dict.fromkeys(zip(gone["step"].to_pylist(), gone["reason"].to_pylist(), strict=True)):
            own = gone.filter(pc.and_(pc.equal(gone["step"], step), pc.equal(gone["reason"], reason)))
            found.saw(step, reason, own, map(scalars, own["evidence"].to_pylist()))
        other = table.filter(pc.equal(table["action"], "change")).sort_by("id")
        for step, reason in dict.fromkeys(zip(other["step"].to_pylist(), other["reason"].to_pylist(), strict=True)):
            own = other.filter(pc.and_(pc.equal(other["step"], step), pc.equal(other["reason"], reason)))[:EXAMPLES]
            some = found.changed.setdefault((step, reason), [])
            some += zip(own["id"].to_pylist(), map(scalars, own["evidence"].to_pylist()), strict=True)
            some.sort(key=lambda item: item[0])
            del some[EXAMPLES:]
    for path in collection.files("duplicates"):
        table = collection.table(path)
        exact = "shared" not in table.column_names
        step, reason = (EXACT_STEP, EXACT_REASON) if exact else (NEAR_STEP, NEAR_REASON)
        if not len(table):
            continue
        found.steps[step, "remove", reason] += len(table)
        listed = table.to_pylist()
        led = led_to(collection, listed)
        shown = ("kept", "sampled_away", "similarity", "copy_of")
        found.saw(step, reason, table, ({name: one[name] for name in shown if name in one} for one in led))
        found.followers.update(one["kept"] for one in led if "kept" in one)
        if not exact:
            found.similar.update(int(100 * one["similarity"]) for one in led)
    return found


def _listed(
    collection: Collection, told: Mapping[str, Any], decided: _Decided
) -> tuple[Counter[str], dict[tuple[str, str], int], dict[str, tuple[str, str, int]]]:
    """Documents read of each source; bytes that were removed, by step and reason; and of the examples where each stands: address,
    shard, position."""
    sources = {str(item["name"]): str(item["source"]) for item in told["shards"]}
    removed = {
        key: pa.chunked_array([chunk for part in ids for chunk in part.chunks], pa.string())
        for key, ids in decided.removed.items()
    }
    shown = pa.array(
        [document for found in (*decided.first.values(), *decided.changed.values()) for document, _ in found],
        pa.string(),
    )
    read, sizes, places = Counter[str](), Counter[tuple[str, str]](), dict[str, tuple[str, str, int]]()
    for path in collection.files("listing"):
        table = collection.table(path)
        shard = path.removeprefix("listing/").removesuffix(".parquet")
        read[sources.get(shard, "")] += len(table)
        for row in table.filter(pc.is_in(table["id"], value_set=shown)).to_pylist():
            places[row["id"]] = (row["url"], shard, int(row["position"]))
        if "bytes" in table.column_names:
            for key, ids in removed.items():
                own = table.filter(pc.is_in(table["id"], value_set=ids))
                sizes[key] += pc.sum(own["bytes"]).as_py() or 0
    return read, dict(sizes), places
