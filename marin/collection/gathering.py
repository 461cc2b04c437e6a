"""``dataset=web``: the collection is built first, and the recipe goes on with its digest.

The same sources, settings and code are the same collection, which the ledger then has: every stage of the pipeline asks again
and only hashes the files. What a run records is the recipe with the digest, so it can be replayed by whoever has the
collection, and the collection by whoever has its sources.
"""

from __future__ import annotations

import logging

import msgspec

from marin.collection.settings import load_settings
from marin.recipe.composition import conf_folder
from marin.recipe.schema import DocumentsDataset, MixtureDataset, Recipe, SingleDataset, WebDataset
from marin.record.root import Root

log = logging.getLogger(__name__)


def gathered(root: Root, recipe: Recipe, *, workers: int = 1) -> Recipe:
    """``recipe`` with a :class:`DocumentsDataset` in the place of each :class:`WebDataset`.

    Raises:
        LedgerError: the collection could not be built.
    """
    dataset = recipe.dataset
    if isinstance(dataset, MixtureDataset):
        parts = {name: _gathered(root, part, workers) for name, part in dataset.parts.items()}
        if parts == dataset.parts:
            return recipe
        return msgspec.structs.replace(recipe, dataset=msgspec.structs.replace(dataset, parts=parts))
    found = _gathered(root, dataset, workers)
    return recipe if found is dataset else msgspec.structs.replace(recipe, dataset=found)


def _gathered(root: Root, dataset: SingleDataset, workers: int) -> SingleDataset:
    return _built(root, dataset, workers) if isinstance(dataset, WebDataset) else dataset


def _built(root: Root, dataset: WebDataset, workers: int) -> DocumentsDataset:
    from marin.collection.build import Asked, build  # Arrow, where there is a collection to be built

    asked = Asked(
        dataset.sources,
        load_settings(dataset.collection, conf_folder()),
        dataset.evaluations,
        dataset.evaluation_fields,
    )
    built = build(root, asked, workers=workers)
    if not built.again:
        log.info("%s: %d of %d documents kept, %s", dataset.name, built.kept, built.read, built.artifact)
    if built.not_compared:
        said = "%s: %d documents were not compared with all that they share a band with (near.most_compared)"
        log.warning(said, dataset.name, built.not_compared)
    return DocumentsDataset(name=dataset.name, artifact=built.artifact)
