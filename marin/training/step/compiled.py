"""A function of arrays compiled as a recipe's profile asks: by XLA as it is, or with every rounding fixed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax

from marin.recipe.schema import Recipe
from marin.training.runtime.profile import exact_profile


def compiled(recipe: Recipe, function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, compiled once for each shape of its arguments. Leaves that are not arrays are part of the program.

    Raises:
        UsageError: under profile ``exact``, at the first call: an operation has no exact form.
    """
    if recipe.arithmetic.profile != "exact":
        call: Callable[..., Any] = eqx.filter_jit(function)
        return call
    made: dict[Any, Callable[..., Any]] = {}

    def exactly(*arguments: Any) -> Any:
        arrays, static = eqx.partition(arguments, eqx.is_array)
        shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), arrays)
        kind = str(jax.tree.structure(shapes)), tuple((x.shape, str(x.dtype)) for x in jax.tree.leaves(shapes))
        if kind not in made:
            fixed = exact_profile().fixed(lambda *given: function(*eqx.combine(given, static)), *shapes, recipe=recipe)
            made[kind] = fixed.jitted()
        return made[kind](*arrays)

    return exactly
