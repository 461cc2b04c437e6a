"""Canonical products: the same function, in the one form, and foreign ones found in what the compiler made."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marin.training.runtime.products import canonical_products, foreign_products, is_canonical, product

FORMS = [
    ((3, 4), (4, 5), (((1,), (0,)), ((), ()))),
    ((4, 3), (4, 5), (((0,), (0,)), ((), ()))),
    ((4, 3), (5, 4), (((0,), (1,)), ((), ()))),
    ((2, 7, 3), (2, 7, 5), (((0, 1), (0, 1)), ((), ()))),
    ((7, 2, 3), (3, 5, 2), (((2,), (0,)), ((1,), (2,)))),
    ((2, 6, 4, 3), (2, 6, 4, 5), (((2,), (2,)), ((0, 1), (0, 1)))),
]


@pytest.mark.parametrize(("left", "right", "numbers"), FORMS)
def test_it_is_the_same_product(left: tuple[int, ...], right: tuple[int, ...], numbers: Any) -> None:
    generator = np.random.default_rng(3)
    a, b = (jnp.asarray(generator.integers(-8, 8, shape).astype(np.float32)) for shape in (left, right))
    params = {"precision": None, "preferred_element_type": None, "out_sharding": None}
    (summed_left, summed_right), (batch_left, batch_right) = numbers
    names = iter("abcdefgh")
    of_left = [next(names) for _ in left]
    pairs = dict(zip(summed_right + batch_right, summed_left + batch_left, strict=True))
    of_right = [of_left[pairs[i]] if i in pairs else next(names) for i in range(len(right))]
    free = [x for i, x in enumerate(of_left) if i not in summed_left + batch_left]
    result = (
        [of_left[i] for i in batch_left]
        + free
        + [x for i, x in enumerate(of_right) if i not in summed_right + batch_right]
    )
    equation = f"{''.join(of_left)},{''.join(of_right)}->{''.join(result)}"
    assert (
        np.asarray(product(a, b, numbers, params)).tolist()
        == np.einsum(equation, np.asarray(a), np.asarray(b)).tolist()
    )


def test_only_the_first_form_is_canonical() -> None:
    assert [is_canonical(numbers, len(left), len(right)) for left, right, numbers in FORMS] == [True] + [False] * 5


def test_what_is_lowered_sums_last_and_first() -> None:
    canonical_products()

    def loss(weight: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.sum(jnp.tanh(x @ weight))

    text = jax.jit(jax.grad(loss)).lower(jnp.ones((8, 16)), jnp.ones((4, 8))).as_text()
    products = [line for line in text.splitlines() if "stablehlo.dot_general" in line]
    assert len(products) == 2
    assert all("contracting_dims = [1] x [0]" in line for line in products), products


def test_products_outside_the_library_are_named() -> None:
    text = """
%fused_computation (p0: f32[4,8], p1: f32[8,2]) -> f32[4,2] {
  ROOT %dot.1 = f32[4,2]{1,0} dot(%p0, %p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

ENTRY %main.3 (a: f32[4,8], b: f32[8,2]) -> f32[4,2] {
  %ynn_fusion = f32[4,2]{1,0} fusion(%a, %b), kind=kCustom, calls=%fused_computation
  %dot.7 = f32[8,2]{1,0} dot(%a, %ynn_fusion), lhs_contracting_dims={0}, rhs_contracting_dims={0}
}
"""
    assert foreign_products(text) == ["%dot.7"]
    without = "\n".join(line for line in text.splitlines() if "%dot.7" not in line)
    assert foreign_products(without) == []
    assert foreign_products("") == ["no product was recognised"]
