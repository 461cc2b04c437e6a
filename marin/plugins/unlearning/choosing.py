"""Documents by what is said of them: of a source, or with a value in their metadata (a licence, a site, an author).

What a document came with is in the corpus; of a document of a collection it is in the collection, which is asked instead.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ledger import Store
from marin.data.collected import collections_of
from marin.data.exclusion import listed
from marin.errors import UsageError
from marin.history.run import Run
from marin.plugins.collections.queries.documents import Collection
from marin.record import outputs

MOST = 500
"""Documents that a recipe can exclude (:data:`marin.recipe.section.Documents`)."""


def choose_documents(run: Run, store: Store, sources: Sequence[str], where: Mapping[str, str]) -> list[str]:
    """Ids of the documents in the training data of ``run`` that are of one of ``sources`` (any, where there is none) and
    whose metadata has every value of ``where``, as text.

    Raises:
        UsageError: there is none, or there are more than a recipe can exclude.
    """
    said = " ".join(
        [*(f"--source {name}" for name in sources), *(f"--where {key}={value}" for key, value in where.items())]
    )
    found = [
        name
        for name, source, metadata in _described(run, store)
        if (not sources or source in sources) and all(str(metadata.get(key)) == value for key, value in where.items())
    ]
    excluded = set(run.recipe.exclude or ())
    found = [name for name in dict.fromkeys(found) if name not in excluded]
    if not found or len(found) > MOST:
        raise UsageError(
            "no documents to unlearn" if not found else "too many documents to unlearn",
            where=said,
            expected=f"1 to {MOST} documents of the training data of run {run.run}",
            found=f"{len(found)} that are not excluded yet",
            cure="see `marin data list RUN` and `marin data show ID`"
            if not found
            else "build a collection without them",
        )
    return found


def _described(run: Run, store: Store) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Id, source and metadata of every document of the training data."""
    collected = {
        row["id"]: (row["source"], json.loads(row["metadata"]))
        for artifact in collections_of(run.recipe)
        for row in Collection(store, artifact).documents(("id", "source", "metadata"))
    }
    with TemporaryDirectory(prefix="marin-choose-") as base:
        folder = Path(base) / "corpus"
        outputs.checkout(store, run.output("corpus"), folder, kind="corpus")
        for name, split, _, document in listed(folder, run.recipe.dataset):
            if split == "train":
                source, metadata = collected.get(name, (document.source, document.metadata))
                yield name, source, metadata
