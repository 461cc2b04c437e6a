"""Tensors of two states side by side: their names, how many elements differ, and by how much.

The names of a trace are not recorded: they follow from the recipe, by tracing the model's shapes without computing.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax
import numpy as np
from haliax.jax_utils import is_jax_array_like

from marin.recipe.schema import Recipe
from marin.training.state import leaves, state_shape
from marin.verify.segments.compare import TensorDifference
from marin.verify.segments.ordering import by_execution


def trace_names(recipe: Recipe, vocab_size: int) -> list[str]:
    """The names of the tensors in a run's traces, in their order; nothing is computed."""
    shapes = state_shape(recipe, vocab_size)
    return [name for name, _ in leaves(jax.tree.map(lambda x: x if is_jax_array_like(x) else None, shapes))]


def compare(expected: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray]) -> list[TensorDifference]:
    """Every tensor that differs, in the order of execution."""
    return [
        difference
        for path in by_execution(expected.keys() & found.keys())
        if (difference := _difference(path, expected[path], found[path])) is not None
    ]


def _difference(path: str, expected: np.ndarray, found: np.ndarray) -> TensorDifference | None:
    if expected.shape != found.shape or expected.dtype != found.dtype:
        return TensorDifference(path, str(found.dtype), found.shape, found.size, -1)
    words = np.dtype(f"u{expected.dtype.itemsize}")
    a, b = (np.ascontiguousarray(x).reshape(-1).view(words) for x in (expected, found))
    where = np.flatnonzero(a != b)
    if where.size == 0:
        return None
    layers: tuple[int, ...] = ()
    if "/layers/" in path and expected.ndim > 1:
        layers = tuple(np.unique(where // (expected.size // expected.shape[0])).tolist())
    ulp = ulp_distance(expected.reshape(-1)[where], found.reshape(-1)[where])
    return TensorDifference(path, str(expected.dtype), expected.shape, int(where.size), ulp, layers)


def ulp_distance(one: np.ndarray, other: np.ndarray) -> int:
    """The greatest distance in units in the last place; of integers, the greatest difference; -1 if one is NaN.

    Floats of one width are ordered like their bits read as sign and magnitude (Goldberg 1991), so the distance of two
    is the difference of those numbers; +0 and -0 are 0 apart, and still other bits.
    """
    if one.dtype.kind != "f" and one.dtype.name != "bfloat16":
        pairs = zip(one.tolist(), other.tolist(), strict=True)
        return max(abs(int(a) - int(b)) for a, b in pairs)
    if np.isnan(one.astype(np.float64)).any() or np.isnan(other.astype(np.float64)).any():
        return -1
    return int(np.max(np.abs(_ordered(one) - _ordered(other))))


def _ordered(x: np.ndarray) -> np.ndarray:
    width = 8 * x.dtype.itemsize
    bits = np.ascontiguousarray(x).view(np.dtype(f"u{x.dtype.itemsize}")).astype(np.int64)
    magnitude = bits & ((1 << (width - 1)) - 1)
    return np.where(bits >> (width - 1), -magnitude, magnitude)
