"""How profile ``exact`` rounds the factors of contractions under a recipe."""

from __future__ import annotations

from marin.plugins.exact.program import NEAREST, Factors
from marin.recipe.schema import Recipe


def factors_of(recipe: Recipe, *, step: bool = False) -> Factors:
    """How profile ``exact`` rounds the factors of contractions. ``step``: in a train step; elsewhere there are no random
    bits to round by, and they are rounded to nearest with as many bits."""
    bits, rounding = recipe.arithmetic.factor_bits, recipe.arithmetic.factor_rounding
    return NEAREST if bits is None else Factors(bits, step and rounding == "stochastic")
