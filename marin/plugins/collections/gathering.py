"""The collection of a recipe with ``dataset=web``, built where the ledger does not have it."""

from __future__ import annotations

import logging

from marin.plugins.collections.settings import load_settings
from marin.recipe.composition import conf_folder
from marin.recipe.schema import DocumentsDataset, WebDataset
from marin.record.root import Root

log = logging.getLogger(__name__)


def built(root: Root, dataset: WebDataset, workers: int) -> DocumentsDataset:
    """The data set with the digest of its collection, which is built if the ledger does not have it.

    Raises:
        LedgerError: it could not be built.
    """
    from marin.plugins.collections.build import BuildRequest, build  # Arrow, where there is a collection to be built

    asked = BuildRequest(
        dataset.sources,
        load_settings(dataset.collection, conf_folder()),
        dataset.evaluations,
        dataset.evaluation_fields,
    )
    found = build(root, asked, workers=workers)
    if not found.again:
        log.info("%s: %d of %d documents kept, %s", dataset.name, found.kept, found.read, found.artifact)
    if found.not_compared:
        said = "%s: %d documents were not compared with all that they share a band with (near.most_compared)"
        log.warning(said, dataset.name, found.not_compared)
    return DocumentsDataset(name=dataset.name, artifact=found.artifact)
