"""What is read off a compiled program: a product that meets a sum without the guard is named, a guarded one is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from marin.plugins.exact.compiled import exact
from marin.plugins.exact.guarded import MINUS_ZERO, unguarded

ROWS = jax.ShapeDtypeStruct((4, 33), jnp.float32)
Z = jax.ShapeDtypeStruct((), jnp.float32)


def text(function: Callable[..., Any], *examples: Any) -> str:
    compiled = jax.jit(function).lower(*examples).compile().as_text()
    assert compiled is not None
    return compiled


def changing(z: Any, a: Any, b: Any, c: Any) -> Any:
    """A guard that begins as z and is another number after the first round."""

    def round_(carry: Any, row: Any) -> Any:
        total, guard = carry
        return ((total * row + guard) + total, guard + 1e-3), None

    return lax.scan(round_, (c[0], z), a)[0][0]


def swapping(z: Any, a: Any, b: Any, c: Any) -> Any:
    """Two numbers that change places each round: one of them came in as z."""

    def round_(carry: Any, row: Any) -> Any:
        total, one, other = carry
        return ((total * row + one) + total, other, one), None

    return lax.scan(round_, (c[0], z, b[0, 0]), a)[0][0]


def looped(guard: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def function(z: Any, a: Any, b: Any, c: Any) -> Any:
        return lax.scan(lambda carry, row: (guard(carry * row, z) + carry, None), c[0], a)[0]

    return function


@pytest.mark.parametrize(
    "function",
    [
        lambda z, a, b, c: a * b + c,
        lambda z, a, b, c: c - a * b,
        lambda z, a, b, c: jnp.sum(a[:, :8] * b[:, :8], axis=1),
        lambda z, a, b, c: (a * b).reshape(33, 4) + c.reshape(33, 4),
        looped(lambda product, z: product),
        lambda z, a, b, c: c + -(a * b),
        lambda z, a, b, c: c + jnp.where(a > 0, a * b, b),
        lambda z, a, b, c: jnp.concatenate([c, c]) + jnp.concatenate([a * b, b]),
        changing,
        swapping,
    ],
    ids=[
        *("sum", "difference", "reduction", "moved", "loop"),
        *("negated", "chosen", "joined", "guard that changes", "guards that change places"),
    ],
)
def test_an_unguarded_product_is_named(function: Callable[..., Any]) -> None:
    (line, *_) = unguarded(text(function, Z, ROWS, ROWS, ROWS))
    assert " of " in line, "which sum, and of which product"


@pytest.mark.parametrize(
    "function",
    [
        lambda z, a, b, c: (a * b + z) + c,
        lambda z, a, b, c: c - (z + a * b),
        lambda z, a, b, c: jnp.sum(a * b + z, axis=1),
        lambda z, a, b, c: a * b,
        looped(lambda product, z: product + z),
    ],
    ids=["sum", "difference", "reduction", "alone", "loop"],
)
def test_a_guarded_product_is_not(function: Callable[..., Any]) -> None:
    assert unguarded(text(function, Z, ROWS, ROWS, ROWS)) == []


def test_another_number_than_the_first_argument_is_no_guard() -> None:
    assert unguarded(text(lambda z, other, a, b, c: (a * b + other) + c + z, Z, Z, ROWS, ROWS, ROWS)) != []


def test_a_text_without_products_proves_nothing() -> None:
    assert unguarded("HloModule nothing") == ["no product was recognised"]


def test_what_is_made_exact_is_guarded() -> None:
    def function(a: Any, b: Any) -> Any:
        h = jnp.tanh(a * b + b) / (1 + jnp.exp(-a))
        return jnp.sum(h * h, axis=-1), h @ b.T, lax.scan(lambda s, x: (s * x + b[0], None), a[0], b)[0]

    made = exact(function, *(np.zeros((4, 33), np.float32),) * 2)
    with jax.enable_x64(True):
        compiled = jax.jit(made.__call__).lower(MINUS_ZERO, ROWS, ROWS).compile().as_text()
    assert unguarded(compiled) == []
