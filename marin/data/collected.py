"""The documents of a collection that is in the store, as its Parquet files have them (:mod:`marin.plugins.collections`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ledger import Store
from marin.errors import DataError
from marin.recipe.schema import DocumentsDataset, Recipe, parts

_FILE = re.compile(r"documents/[0-9]{5}\.parquet")
_COLUMNS = ("id", "text", "source", "split")


@dataclass(frozen=True, slots=True)
class Row:
    """A document: its split is ``train`` or ``validation``."""

    id: str
    text: str
    source: str
    split: str


def collected(store: Store, artifact: str) -> Iterator[Row]:
    """The documents in the order of the collection.

    Raises:
        DataError: the artifact is no collection, or a file of it is damaged.
        NotFound: it is not in the store.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    paths = sorted(entry.path for entry in store.manifest(artifact) if _FILE.fullmatch(entry.path))
    if not paths:
        raise _wrong(artifact, "no documents/*.parquet")
    for path in paths:
        try:
            with store.open_file(artifact, path) as file:
                for batch in pq.ParquetFile(pa.BufferReader(file.read())).iter_batches(1024, columns=list(_COLUMNS)):
                    for row in batch.to_pylist():
                        if not all(isinstance(row[name], str) for name in _COLUMNS):
                            raise _wrong(artifact, f"a row without {', '.join(_COLUMNS)} in {path}")
                        if row["split"] not in ("train", "validation"):
                            raise _wrong(artifact, f"split {row['split'][:40]!r} in {path}")
                        yield Row(row["id"], row["text"], row["source"], row["split"])
        except (pa.ArrowException, ValueError, KeyError, OSError) as error:
            raise _wrong(artifact, f"{path}: {' '.join(str(error).split())[:160]}") from None


def _wrong(artifact: str, found: str) -> DataError:
    return DataError(
        "an artifact is no collection of documents",
        where=artifact,
        expected="documents in Parquet with id, text, source and split",
        found=found,
        cure="name what `marin data build` printed",
    )


def collections_of(recipe: Recipe) -> list[str]:
    """The digests of the collections that a recipe names, each once, in the order of its parts."""
    named = [part.artifact for part in parts(recipe.dataset).values() if isinstance(part, DocumentsDataset)]
    return [artifact for artifact in dict.fromkeys(named) if artifact is not None]
