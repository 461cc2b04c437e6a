"""Which collections of documents a recipe names."""

from __future__ import annotations

from marin.recipe.schema import DocumentsDataset, Recipe, parts


def collections_of(recipe: Recipe) -> list[str]:
    """The digests of the collections that a recipe names, each once, in the order of its parts."""
    named = [part.artifact for part in parts(recipe.dataset).values() if isinstance(part, DocumentsDataset)]
    return [artifact for artifact in dict.fromkeys(named) if artifact is not None]
