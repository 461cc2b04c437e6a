"""What a collection came to, in numbers: by source, by step, by licence, by length, with examples of every removal.

One pass over the artifact's own columns, a file at a time; nothing is kept but counts and a few examples.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc

from marin.collection.asking.documents import Collection
from marin.collection.making.choice import REASON as SAMPLED
from marin.collection.making.choice import STEP as SAMPLING
from marin.collection.making.make import EXACT_REASON, EXACT_STEP, NEAR_REASON, NEAR_STEP
from marin.collection.sources.origin import licence

EXAMPLES = 3
"""Removed documents that are shown of each reason: those with the least ids."""


@dataclass(frozen=True)
class OfSource:
    """One source: documents read and kept, and the bytes of UTF-8 of the kept texts."""

    name: str
    digest: str
    size: int
    read: int
    kept: int
    bytes: int


@dataclass(frozen=True)
class Example:
    """A document that was removed, and why."""

    id: str
    url: str
    evidence: Mapping[str, Any]


@dataclass(frozen=True)
class Account:
    """``steps``: how many decisions by (step, action, reason), in the order in which the steps are done. ``lengths``: kept
    documents by the power of two that their text has at least, in bytes; ``licences``: by what their page says."""

    artifact: str
    read: int
    kept: int
    problems: Mapping[str, int]
    sources: tuple[OfSource, ...]
    steps: Mapping[tuple[str, str, str], int]
    examples: Mapping[str, tuple[Example, ...]]
    lengths: Mapping[int, int]
    licences: Mapping[str, int]
    splits: Mapping[str, int]

    def as_json(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return {
            "artifact": self.artifact,
            "documents": {"read": self.read, "kept": self.kept},
            "problems": dict(self.problems),
            "sources": [vars(source) for source in self.sources],
            "steps": [
                {"step": step, "action": action, "reason": reason, "documents": count}
                for (step, action, reason), count in self.steps.items()
            ],
            "examples": {reason: [vars(one) for one in found] for reason, found in self.examples.items()},
            "lengths": {str(least): count for least, count in self.lengths.items()},
            "licences": dict(self.licences),
            "splits": dict(self.splits),
        }


def account(collection: Collection) -> Account:
    """The account of a collection.

    Raises:
        DataError: the artifact is no collection, or a file of it cannot be read.
    """
    told = collection.description()
    shards = {str(item["name"]): str(item["source"]) for item in told["shards"]}
    order = {str(step["kind"]): place for place, step in enumerate(told["settings"]["steps"])}
    read: Counter[str] = Counter()
    urls: dict[str, str] = {}
    steps: Counter[tuple[str, str, str]] = Counter()
    removed: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for path in collection.files("listing"):
        shard = path.removeprefix("listing/").removesuffix(".parquet")
        read[shards.get(shard, "")] += len(collection.table(path, ("id",)))
    for path in collection.files("decisions"):
        table = collection.table(path)
        for row in table.group_by(["step", "action", "reason"]).aggregate([("id", "count")]).to_pylist():
            steps[row["step"], row["action"], row["reason"]] += row["id_count"]
        for row in table.filter(pc.equal(table["action"], "remove")).to_pylist():
            _keep(removed, row["reason"], row["id"], json.loads(row["evidence"]))
    for path in collection.files("duplicates"):
        table = collection.table(path)
        exact = "shared" not in table.column_names
        step, reason = (EXACT_STEP, EXACT_REASON) if exact else (NEAR_STEP, NEAR_REASON)
        if len(table):
            steps[step, "remove", reason] += len(table)
        for row in table.to_pylist():
            evidence = {"kept": row["kept"], "similarity": 1.0 if exact else row["shared"] / row["united"]}
            _keep(removed, reason, row["id"], evidence)
    if count := int(told["removed"].get(SAMPLED, 0)):
        steps[SAMPLING, "remove", SAMPLED] += count
    shown = {document for found in removed.values() for document, _ in found}
    for path in collection.files("listing"):
        table = collection.table(path, ("id", "url"))
        urls |= {row["id"]: row["url"] for row in table.to_pylist() if row["id"] in shown}
    kept, size, lengths, licences, splits = (
        Counter[str](),
        Counter[str](),
        Counter[int](),
        Counter[str](),
        Counter[str](),
    )
    for row in collection.documents(("source", "text", "metadata", "split")):
        count = len(row["text"].encode())
        kept[row["source"]] += 1
        size[row["source"]] += count
        lengths[1 << max(0, count.bit_length() - 1)] += 1
        licences[licence(json.loads(row["metadata"]))] += 1
        splits[row["split"]] += 1
    return Account(
        artifact=collection.artifact,
        read=int(told["documents"]["read"]),
        kept=int(told["documents"]["kept"]),
        problems=dict(told["problems"]),
        sources=tuple(
            OfSource(name, str(item["digest"]), int(item["size"]), read[name], kept[name], size[name])
            for item in told["sources"]
            for name in [str(item["name"])]
        ),
        steps=dict(sorted(steps.items(), key=lambda item: (order.get(item[0][0], len(order)), item[0]))),
        examples={
            reason: tuple(Example(document, urls.get(document, ""), evidence) for document, evidence in found)
            for reason, found in sorted(removed.items())
        },
        lengths=dict(sorted(lengths.items())),
        licences=dict(licences.most_common()),
        splits=dict(sorted(splits.items())),
    )


def _keep(
    removed: dict[str, list[tuple[str, Mapping[str, Any]]]], reason: str, document: str, evidence: Mapping[str, Any]
) -> None:
    found = removed.setdefault(reason, [])
    found.append((document, evidence))
    found.sort(key=lambda item: item[0])
    del found[EXAMPLES:]
