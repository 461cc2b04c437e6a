"""The collection as a tree of files: what tasks left, under the names by which it is asked, and ``collection.json``."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from marin.plugins.collections.making.shelf import CollectionFolder, Shard
from marin.plugins.collections.settings import divided
from marin.plugins.collections.sources.finding import LocatedSource, Slice
from marin.plugins.collections.tasks import task
from marin.recipe.schema import plain

DESCRIPTION = "collection.json"
NOT_FETCHED = "not fetched"
NOT_COMPARED, NOT_COMPARED_COUNT = "not_compared", "not_compared_with_all"
"""Folder of the documents that a bound kept from some comparisons, and how many they are in the description."""


def content(items: Sequence[LocatedSource]) -> list[dict[str, str]]:
    """Sources as they stand in identities and descriptions."""
    return [
        {"digest": item.source.digest, "name": item.source.name, "size": str(item.source.size)}
        | ({"missing": item.missing} if item.missing else {})
        for item in items
    ]


def plain_slice(part: Slice) -> dict[str, str]:
    """A slice as it stands there."""
    return {"end": str(part.end), "first": str(part.first), "start": str(part.start)}


def file_digest(path: str) -> str:
    """``sha256:`` of a small file."""
    return "sha256:" + sha256(Path(path).read_bytes()).hexdigest()


def not_fetched(sources: Sequence[LocatedSource]) -> list[bytes]:
    """A line for each source that could not be had."""
    return [
        task.one_line({"found": found.missing, "position": 0, "reason": NOT_FETCHED, "source": found.source.name})
        for found in sources
        if found.missing
    ]


def assemble(
    setup: task.Setup,
    made: CollectionFolder,
    answers: Mapping[str, task.Counted],
    trees: Mapping[str, str],
    reads: Sequence[Shard],
    written: Sequence[Shard],
    *,
    bounds: Sequence[int],
    split_below: int,
) -> None:
    """Link the files into ``made.folder``, and describe them.

    Args:
        answers: of all shards, by their names. trees: the digests of what they left.
        bounds: of the sources, where the collection was sampled.
    """
    folder, out = Path(setup.folder), made.folder
    for kind in ("documents", "listing", "decisions", "problems"):
        (out / kind).mkdir(exist_ok=True)
    for number, examples in enumerate(setup.examples):
        (out / "models").mkdir(exist_ok=True)
        _link(task.model_file(folder, number), out / "models" / f"steps-{examples.place}.npy")
    for shard in written:
        _link(folder / shard.name / task.WRITTEN, out / "documents" / f"{shard.task.name}.parquet")
    first, rest = divided(setup.settings.steps)
    last = task.judged_kind(setup.settings)
    for name in (shard.task.name for shard in reads):
        read, judge = folder / "read" / name, folder / "judge" / name
        if last == "cut":
            _link(folder / "cut" / name / task.DECIDED, out / "decisions" / f"cut-{name}.parquet")
        _link(folder / last / name / task.LISTED, out / "listing" / f"{name}.parquet")
        if first:
            _link(read / task.DECIDED, out / "decisions" / f"read-{name}.parquet")
        if rest or answers[f"judge/{name}"].removed:
            _link(judge / task.DECIDED, out / "decisions" / f"{name}.parquet")
        if answers[f"read/{name}"].problems:
            _link(read / task.PROBLEMS, out / "problems" / f"{name}.jsonl")
    if missing := not_fetched(setup.sources):
        (out / "problems" / "sources.jsonl").write_bytes(b"".join(missing))
    for name in _near(answers):
        _link(folder / name / task.NEAR_FILE, out / "duplicates" / f"{name.replace('/', '-')}.parquet")
        if (bounded := folder / name / task.BOUNDED_FILE).exists():
            (out / NOT_COMPARED).mkdir(exist_ok=True)
            _link(bounded, out / NOT_COMPARED / f"{name.replace('/', '-')}.parquet")
    described = _described(setup, made, answers, reads, bounds) | {"split_below": str(split_below)}
    for shard in described["shards"]:
        shard["read"] = trees[f"read/{shard['name']}"]
    text = json.dumps(described, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    (out / DESCRIPTION).write_text(text, encoding="utf-8")


def _described(
    setup: task.Setup,
    made: CollectionFolder,
    answers: Mapping[str, task.Counted],
    reads: Sequence[Shard],
    bounds: Sequence[int],
) -> dict[str, Any]:
    sources = setup.sources
    return {
        "bounds": {found.source.name: str(bound) for found, bound in zip(sources, bounds, strict=False)},
        "documents": {"kept": made.kept, "read": made.read},
        "evaluations": [{"digest": file_digest(path), "name": name} for path, name in setup.evaluations],
        "evaluation_fields": setup.evaluation_fields if setup.evaluations else [],
        "examples": [
            {
                "bad": content(examples.bad),
                "counts": answers[f"train/{number:06d}"].counts,
                "good": content(examples.good),
                "place": examples.place,
            }
            for number, examples in enumerate(setup.examples)
        ],
        "kind": "documents",
        NOT_COMPARED_COUNT: sum(answers[name].counts[NOT_COMPARED_COUNT] for name in _near(answers)),
        "problems": dict(made.problems),
        "removed": dict(made.removed),
        "settings": plain(setup.settings),
        "shards": [
            {
                "name": shard.task.name,
                "slice": plain_slice(sources[shard.task.source].slices[shard.task.slice]),
                "source": sources[shard.task.source].source.name,
            }
            for shard in reads
        ],
        "sources": content(sources),
        "version": 2,
    }


def _near(answers: Mapping[str, task.Counted]) -> list[str]:
    return sorted(name for name in answers if name.startswith("near/"))


def _link(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    os.link(source, target)
