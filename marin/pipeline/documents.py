"""A corpus of a collection's documents, as its Parquet files have them in the store (:mod:`marin.plugins.collections`).

An entry point of the group ``marin.corpora`` (:class:`marin.pipeline.corpus.Reader`): the code of a step ``corpus`` whose data
set is a collection, and of no other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from ledger import Store
from marin.data.documents import TRAIN, VALIDATION, Document
from marin.data.lines.writing import SplitWriter
from marin.errors import DataError, UsageError
from marin.execution.step import Task
from marin.pipeline.corpus import Corpus
from marin.recipe.schema import DocumentsDataset, WebDataset

_FILE = re.compile(r"documents/[0-9]{5}\.parquet")
_COLUMNS = ("id", "text", "source", "split")


def collected(store: Store, artifact: str) -> Iterator[tuple[str, Document]]:
    """The documents in the order of the collection, each behind its split, ``train`` or ``validation``.

    Raises:
        DataError: the artifact is not a collection, or a file of it is damaged.
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
                        yield row["split"], Document(row["text"], row["source"], {"id": row["id"]})
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


def sources(dataset: DocumentsDataset | WebDataset) -> dict[str, str]:
    """The digest of the collection.

    Raises:
        UsageError: it is not made yet.
    """
    return {"collection": _collection(dataset)}


def pairs(dataset: DocumentsDataset | WebDataset, task: Task) -> Iterable[dict[str, str]]:
    """None of them."""
    return ()


def corpus(dataset: DocumentsDataset | WebDataset, task: Task, out: Path) -> Corpus:
    """The documents of a collection in its order, each in the split that it says.

    Raises:
        DataError: one of the splits has none.
    """
    artifact = _collection(dataset)
    with (out / TRAIN).open("wb") as train, (out / VALIDATION).open("wb") as validation:
        writers = {"train": SplitWriter(train), "validation": SplitWriter(validation)}
        for split, document in collected(task.store, artifact):
            writers[split].write(document)
        counts = {split: writer.count() for split, writer in writers.items()}
    for split, count in counts.items():
        if not count.documents:
            raise DataError(
                "corpus cannot be divided",
                where=artifact,
                expected="at least two different documents, so that one can be held out",
                found=f"none in {split}",
                cure="build a collection of more documents",
            )
    return Corpus(counts["train"], counts["validation"], {"collection": artifact})


def _collection(dataset: DocumentsDataset | WebDataset) -> str:
    """The digest of a collection that is in the store."""
    if isinstance(dataset, WebDataset) or dataset.artifact is None:
        raise UsageError(
            "a collection that is not made yet",
            where="dataset.artifact",
            expected="the digest that `marin data build` printed",
            found="null",
            cure="make it with `marin data build`, or train by `marin train` or `marin stage`, which make it first",
        )
    return dataset.artifact
