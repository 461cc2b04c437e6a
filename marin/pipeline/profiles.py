"""Which plugins compute under a recipe: those of its profile, and of the form of its train step."""

from __future__ import annotations

from marin.recipe.schema import Recipe

PROFILES = "marin.profiles"


def profile_of(recipe: Recipe) -> tuple[tuple[str, str], ...]:
    """Group and name of the plugin of the recipe's profile, where that is one."""
    return ((PROFILES, "exact"),) if recipe.arithmetic.profile == "exact" else ()


def training_of(recipe: Recipe) -> tuple[tuple[str, str], ...]:
    """The same of the train step, in whose form no device may hold all parameters."""
    return (*profile_of(recipe), *(((PROFILES, "layered"),) if recipe.arithmetic.gather == "layer" else ()))
