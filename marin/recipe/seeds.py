"""Which keys are derived from a recipe's root seed, by name. Pure."""

from __future__ import annotations

from typing import Any

from marin.recipe.schema import Recipe


def seeds_of(recipe: Recipe) -> dict[str, Any]:
    """The root seed (as a string: it may have 63 bits) and the names of the keys derived from it, as ``train.started``
    holds them."""
    data = ["data"] if recipe.mixture is None else [f"data/{name}" for name in sorted(recipe.mixture.weights)]
    return {"root": str(recipe.seed), "derived": [*data, "model", "train"], "generator": recipe.arithmetic.generator}
