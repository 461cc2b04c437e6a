"""``dataset=web``: the collection is built first, by a plugin, and the recipe goes on with its digest.

The same sources, settings and code are the same collection, which the ledger then has: every stage of the pipeline asks again
and only hashes the files. What a run records is the recipe with the digest, so it can be replayed by anyone who has the
collection, and the collection by anyone who has its sources.
"""

from __future__ import annotations

import msgspec

from marin.provenance.plugins import load_plugin
from marin.recipe.schema import DocumentsDataset, MixtureDataset, Recipe, SingleDataset, WebDataset
from marin.record.root import Root


def with_documents(root: Root, recipe: Recipe, *, workers: int = 1) -> Recipe:
    """``recipe`` with a :class:`DocumentsDataset` in the place of each :class:`WebDataset`.

    Raises:
        LedgerError: the collection could not be built.
        NotInstalled: there is no plugin that builds one.
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
    if not isinstance(dataset, WebDataset):
        return dataset
    found: DocumentsDataset = load_plugin("marin.datasets", "web", "dataset=web")(root, dataset, workers)
    return found
