"""Questions to a collection: which documents it has, and what became of one, by id, address or text.

Everything comes from the artifact's own columns. A document that is not there any more is found too: every one that was read
is listed, with the digest of its text as it was read.
"""

from __future__ import annotations

import json
from collections.abc import Collection as AnyOf
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ledger import LedgerError, Store, parse_digest
from marin.data.collected import collections_of
from marin.data.documents import positions
from marin.errors import DataError, UsageError
from marin.history.runs import load, resolve
from marin.kinds.families.collection import COLLECTION_COMPLETED
from marin.plugins.collections.document import Document
from marin.plugins.collections.making.choice import REASON as SAMPLED
from marin.plugins.collections.making.choice import STEP as SAMPLING
from marin.plugins.collections.making.description import DESCRIPTION, NOT_COMPARED, NOT_COMPARED_COUNT
from marin.plugins.collections.making.make import EXACT_REASON, EXACT_STEP, NEAR_REASON, NEAR_STEP
from marin.plugins.collections.queries.foreign import as_columns, scalars
from marin.plugins.collections.queries.passed import with_passed
from marin.plugins.collections.tasks.cutting import REASON as CUT_REASON
from marin.plugins.collections.tasks.cutting import STEP as CUT
from marin.plugins.collections.tasks.task import READ_FILE
from marin.record.root import Root

MEMBERS = 20
"""Ids of a cluster that are told, at most; how many there are is always told."""


@dataclass(frozen=True)
class Collection:
    """A collection in a store."""

    store: Store
    artifact: str

    def description(self) -> Mapping[str, Any]:
        """What ``collection.json`` says.

        Raises:
            DataError: the artifact is not a collection.
        """
        try:
            with self.store.open_file(self.artifact, DESCRIPTION) as file:
                found = json.loads(file.read())
            if isinstance(found, dict) and found.get("kind") == "documents":
                return found
        except (LedgerError, ValueError, KeyError, RecursionError):
            pass
        raise DataError(
            "an artifact is no collection of documents",
            where=self.artifact,
            expected=f"a tree with {DESCRIPTION}",
            found="another one",
            cure="name what `marin data build` printed",
        )

    def not_compared(self) -> int:
        """How many documents a bound kept from being compared with all that they share a band with.

        Raises:
            DataError: the artifact is not a collection.
        """
        return int(self.description().get(NOT_COMPARED_COUNT, 0))

    def files(self, folder: str) -> list[str]:
        """Paths below one of its folders, in order."""
        return sorted(entry.path for entry in self.store.manifest(self.artifact) if entry.path.startswith(f"{folder}/"))

    def table(self, path: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Columns of one file.

        Raises:
            DataError: it is not a Parquet file with these columns.
        """
        with self.store.open_file(self.artifact, path) as file:
            data = pa.BufferReader(file.read())
        try:
            return pq.read_table(data, columns=None if columns is None else list(columns))
        except (pa.ArrowException, ValueError, KeyError, OSError) as error:
            raise DataError(
                "a file of a collection cannot be read",
                where=f"{self.artifact}: {path}",
                expected="Parquet",
                found=str(error)[:200],
                cure="run `marin store verify`",
            ) from None

    def documents(self, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Rows of the kept documents, in the order of the collection.

        Raises:
            DataError: a file cannot be read, or has another form.
        """
        for path in self.files("documents"):
            for batch in self.table(path, columns).to_batches(max_chunksize=1024):
                with as_columns(self.artifact):
                    rows = batch.to_pylist()
                yield from rows

    def pairs(self, documents: AnyOf[str]) -> dict[str, dict[str, Any]]:
        """Those of these documents that were removed as near-duplicates, each with its row
        (:data:`marin.plugins.collections.tasks.columns.NEAR`)."""
        wanted = pa.array(sorted(documents), pa.string())
        found = {}
        for path in self.files("duplicates"):
            table = self.table(path)
            if "shared" in table.column_names:
                found.update({row["id"]: row for row in table.filter(pc.is_in(table["id"], wanted)).to_pylist()})
        return found

    def sampled_away(self, documents: AnyOf[str]) -> dict[str, dict[str, Any]]:
        """Those of these documents that only sampling can have removed and that it did remove, each with its ``place`` among all
        texts and the ``bound`` of its source, which the place reaches."""
        told = self.description()
        bounds, found = told.get("bounds", {}), {}
        if not bounds or not documents:
            return {}
        sources = {item["name"]: item["source"] for item in told["shards"]}
        wanted = pa.array(sorted(documents), pa.string())
        for path in self.files("listing"):
            bound = bounds[sources[path.removeprefix("listing/").removesuffix(".parquet")]]
            table = self.table(path, ("id", "digest", "reason"))
            for row in table.filter(pc.is_in(table["id"], wanted)).to_pylist():
                if not row["reason"] and (place := positions(bytes.fromhex(row["digest"]))[1]) >= int(bound):
                    found[row["id"]] = {"place": str(place), "bound": bound}
        return found

    def behind(self, documents: AnyOf[str]) -> dict[str, tuple[str, ...]]:
        """For each of these kept documents that has some, those that were removed as its copies, exact or near, and as
        copies of these."""
        found: dict[str, set[str]] = {}
        first = {document: document for document in documents}  # who it was removed for in the end
        while first:
            following: dict[str, str] = {}
            for path in self.files("duplicates"):
                table = self.table(path, ("id", "kept"))
                for row in table.filter(pc.is_in(table["kept"], pa.array(sorted(first), pa.string()))).to_pylist():
                    following[row["id"]] = first[row["kept"]]
                    found.setdefault(first[row["kept"]], set()).add(row["id"])
            first = following
        return {kept: tuple(sorted(removed)) for kept, removed in found.items()}


def find_collection(root: Root, name: str) -> Collection:
    """The collection that a digest names, or that a run was made from.

    Raises:
        UsageError: no such run, or one that was not made from a collection, or one that was made from several.
    """
    if name.startswith("sha256:"):
        parse_digest(name)
        return Collection(root.store(), name)
    found = of_run(root, name)
    if len(found) > 1:
        raise UsageError(
            "the run was made from several collections",
            where=name,
            expected="one of them, by its digest",
            found=", ".join(one.artifact for one in found),
            cure="name one of these",
        )
    return found[0]


def of_run(root: Root, name: str) -> list[Collection]:
    """The collections that a run was made from, in the order of its recipe.

    Raises:
        UsageError: no such run, or one that was not made from a collection.
    """
    history = root.history()
    run = load(history, resolve(history, name))
    store = root.store()
    if found := [Collection(store, artifact) for artifact in collections_of(run.recipe)]:
        return found
    raise UsageError(
        "the run was not made from a collection",
        where=name,
        expected="dataset=documents or dataset=web",
        found=f"dataset {run.recipe.dataset.name}",
        cure="name a collection by its digest",
    )


def collections(root: Root) -> list[Collection]:
    """All that the ledger has, the newest first, each once."""
    found = [str(event.body["artifact"]) for _, event in root.history().events(type=COLLECTION_COMPLETED)]
    store = root.store()
    return [Collection(store, artifact) for artifact in dict.fromkeys(reversed(found))]


def text_before(collection: Collection, shard: str, position: int) -> str | None:
    """The text of a document before it was judged, also of one that was removed: from what was read of its slice. None where
    that is not in the store any more, or the collection is of an earlier form."""
    read = next((item.get("read") for item in collection.description()["shards"] if item["name"] == shard), None)
    if read is None:
        return None
    try:
        with collection.store.open_file(str(read), READ_FILE) as file:
            data = pa.BufferReader(file.read())
    except (LedgerError, KeyError, ValueError):
        return None
    try:
        reader = pa.ipc.open_file(data)
        for batch in map(reader.get_batch, range(reader.num_record_batches)):
            place = pc.index(batch.column("position"), position).as_py()
            if place >= 0:
                return str(batch.column("text")[place].as_py())
    except (pa.ArrowException, KeyError, ValueError, OSError):  # which Arrow says of a damaged file, too
        return None
    return None


@dataclass(frozen=True)
class DocumentRecord:
    """What is known of a document. ``kept``: it is in the collection, then with ``split`` and ``metadata``. ``text``: of a
    removed one as it was read, where that is still in the store."""

    id: str
    collection: str
    source: str
    position: int
    url: str
    kept: bool
    split: str
    text: str | None
    metadata: Mapping[str, Any]
    decisions: Sequence[Mapping[str, Any]]


def find(collection: Collection, wanted: str, *, text: str | None = None) -> Iterator[DocumentRecord]:
    """Documents of this id or address, or of this very text (as it was read, or as it was kept).

    Raises:
        DataError: the artifact is not a collection, or a file of it cannot be read or has another form.
    """
    with as_columns(collection.artifact):
        found = list(_matching_records(collection, wanted, text))
    yield from found


def _matching_records(collection: Collection, wanted: str, text: str | None) -> Iterator[DocumentRecord]:
    shards = {item["name"]: item["source"] for item in collection.description()["shards"]}
    digest = None if text is None else sha256(text.encode()).hexdigest()
    for path in collection.files("listing"):
        table = collection.table(path)
        if digest is not None:
            mask = pc.or_(pc.equal(table["as_read"], digest), pc.equal(table["digest"], digest))
        else:
            mask = pc.or_(pc.equal(table["id"], wanted), pc.equal(table["url"], wanted))
        shard = path.removeprefix("listing/").removesuffix(".parquet")
        for row in table.filter(mask).to_pylist():
            yield _record(collection, row, shard, shards.get(shard, ""))


def _record(collection: Collection, row: Mapping[str, Any], shard: str, source: str) -> DocumentRecord:
    document = str(row["id"])
    kept = retained_row(collection, document)
    before = text_before(collection, shard, int(row["position"]))
    judged = None if before is None else Document(document, before, source)
    said = _own(collection, document, shard, "read-", "")
    decisions = list(with_passed(collection.store, collection.artifact, collection.description(), judged, said))
    for compared in (_exact, _near, _sampled, _cut):
        if all(decision["action"] != "remove" for decision in decisions):
            decisions += compared(collection, row, shard, source)
    return DocumentRecord(
        document,
        collection.artifact,
        source,
        int(row["position"]),
        str(row["url"]),
        kept is not None,
        "" if kept is None else str(kept["split"]),
        before if kept is None else str(kept["text"]),
        {} if kept is None else scalars(str(kept["metadata"])),
        decisions,
    )


def _own(collection: Collection, document: str, shard: str, *kinds: str) -> list[dict[str, Any]]:
    """What the steps of one document decided: those that make text, the others, or what took out its paragraphs."""
    files, found = collection.files("decisions"), []
    for path in (f"decisions/{kind}{shard}.parquet" for kind in kinds):
        if path in files:
            table = collection.table(path)
            for row in sorted(table.filter(pc.equal(table["id"], document)).to_pylist(), key=lambda row: row["order"]):
                said = {key: row[key] for key in ("step", "action", "reason")}
                found.append(said | {"evidence": scalars(row["evidence"])})
    return found


def _exact(collection: Collection, row: Mapping[str, Any], shard: str, source: str) -> Iterator[dict[str, Any]]:
    """Whether its text stood before; of one that stayed then, how many went for it."""
    if collection.description()["settings"]["exact"]:
        evidence = {"digest": row["digest"]}
        yield from _compared(collection, str(row["id"]), EXACT_STEP, EXACT_REASON, evidence)


def _near(collection: Collection, row: Mapping[str, Any], shard: str, source: str) -> Iterator[dict[str, Any]]:
    """Whether it is similar to one that was kept; of one that stayed then, how many went for it."""
    if (near := collection.description()["settings"]["near"]) is not None:
        evidence = {"threshold": float.fromhex(near["threshold"])} | _bounded(collection, str(row["id"]), near)
        yield from _compared(collection, str(row["id"]), NEAR_STEP, NEAR_REASON, evidence)


def _bounded(collection: Collection, document: str, near: Mapping[str, Any]) -> dict[str, Any]:
    """Of a document that was not compared with all kept ones that share a band, with how many of how many it was."""
    for path in collection.files(NOT_COMPARED):
        table = collection.table(path)
        for row in table.filter(pc.equal(table["id"], document)).to_pylist():
            return {
                "compared": row["compared"],
                "candidates": row["candidates"],
                "most_compared": near["most_compared"],
            }
    return {}


def _compared(
    collection: Collection, document: str, step: str, reason: str, evidence: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    found: dict[str, Any] = {"removed": 0}
    for path in collection.files("duplicates"):
        table = collection.table(path)
        if ("shared" in table.column_names) != (step == NEAR_STEP):
            continue
        for row in table.filter(pc.equal(table["id"], document)).to_pylist():
            (led,) = led_to(collection, [row])
            if "cluster" in led:
                led["threshold"] = float.fromhex(collection.description()["settings"]["near"]["threshold"])
            yield {"step": step, "action": "remove", "reason": reason, "evidence": {**evidence, **led}}
            return
        if len(mine := table.filter(pc.equal(table["kept"], document))):
            some = mine["id"].to_pylist()[:MEMBERS]
            found = {"removed": len(mine), "members": [*some, *(["..."] if len(mine) > len(some) else [])]}
    yield {"step": step, "action": "keep", "reason": reason, "evidence": {**evidence, **found}}


def led_to(collection: Collection, duplicates: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The evidence of rows of duplicates, all exact or all near: ``kept``, the document that is kept, and how similar both
    are. Where that with the equal text went as a near-duplicate, it is ``copy_of``, and what it was removed for is as similar to
    this one. Where sampling took away the one that deduplication kept, it is ``sampled_away``, with its place and the bound."""
    pairs = collection.pairs({row["kept"] for row in duplicates if "digest" in row})
    found: list[dict[str, Any]] = []
    for row in duplicates:
        evidence: dict[str, Any] = {"kept": row["kept"], "similarity": 1.0}
        near: Mapping[str, Any] | None = row
        if "digest" in row:
            evidence |= {"digest": row["digest"]}
            if (near := pairs.get(row["kept"])) is not None:
                evidence |= {"copy_of": row["kept"]}
        if near is not None:
            evidence |= {"kept": near["kept"], "similarity": near["shared"] / near["united"]}
            evidence |= {name: near[name] for name in ("shared", "united", "cluster")}
        found.append(evidence)
    away = collection.sampled_away({evidence["kept"] for evidence in found})
    for evidence in found:
        if (place := away.get(evidence["kept"])) is not None:
            evidence |= {"sampled_away": evidence.pop("kept"), **place}
    return found


def _sampled(collection: Collection, row: Mapping[str, Any], shard: str, source: str) -> Iterator[dict[str, Any]]:
    """Whether its text stands below the bound of its source."""
    told = collection.description()
    if (bound := told.get("bounds", {}).get(source)) is None:
        return
    digest, document = str(row["digest"]), str(row["id"])
    was_cut = _own(collection, document, shard, "cut-")  # then the digest is of what was left
    evidence: dict[str, Any] = {"threshold": bound}
    if not was_cut:
        evidence |= {"place": str(positions(bytes.fromhex(digest))[1])}
    gone = not was_cut and int(evidence["place"]) >= int(bound)
    yield {"step": SAMPLING, "action": "remove" if gone else "keep", "reason": SAMPLED, "evidence": evidence}


def _cut(collection: Collection, row: Mapping[str, Any], shard: str, source: str) -> Iterator[dict[str, Any]]:
    """Which of its paragraphs were taken out."""
    if (settings := collection.description()["settings"].get("paragraphs")) is None:
        return
    said = _own(collection, str(row["id"]), shard, "cut-")
    evidence = {"paragraphs": 0, "least_characters": settings["least_characters"]}
    yield from said or [{"step": CUT, "action": "keep", "reason": CUT_REASON, "evidence": evidence}]


def retained_row(collection: Collection, document: str) -> dict[str, Any] | None:
    """The row of a document that is kept (:data:`marin.plugins.collections.tasks.columns.DOCUMENTS`); None of one that is not."""
    for path in collection.files("documents"):
        ids = collection.table(path, ("id",))["id"]
        # Documents are in the order of their ids.
        if not len(ids) or not ids[0].as_py() <= document <= ids[-1].as_py():
            continue
        place = pc.index(ids, document).as_py()
        if place >= 0:
            row: dict[str, Any] = collection.table(path).slice(place, 1).to_pylist()[0]
            return row
    return None
