"""Distances in units in the last place, against NumPy's own walk from number to number; operations of a traced program
against the program itself."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.plugins.exact.tracing import written_at
from marin.plugins.explain import interpreter, opened
from marin.verify.jax import tensors


@given(st.floats(width=32, allow_nan=False, allow_infinity=False), st.integers(0, 50), st.booleans())
def test_ulps_are_steps_to_the_next_number(value: float, steps: int, up: bool) -> None:
    start = there = np.float32(value)
    for _ in range(steps):
        there = np.nextafter(there, np.float32(np.inf if up else -np.inf))
    if np.isfinite(there):
        assert tensors.ulp_distance(np.array([start]), np.array([there])) == steps


def test_what_differs_is_counted_and_ordered() -> None:
    before = {
        "model/lm_head/weight": np.zeros((2, 3), np.float32),
        "step": np.array(4, np.int32),
        "model/transformer/layers/stacked/mlp/up_proj/weight": np.ones((3, 4), np.float32),
    }
    after = {name: value.copy() for name, value in before.items()}
    after["model/lm_head/weight"][1, 1] = np.float32(1e-45)
    after["model/transformer/layers/stacked/mlp/up_proj/weight"][2, 0] = np.nextafter(np.float32(1), np.float32(2))
    after["model/transformer/layers/stacked/mlp/up_proj/weight"][0, 3] = np.nan
    found = tensors.compare(before, after)
    assert [(d.path.split("/")[-2], d.differing, d.largest_ulp, d.layers) for d in found] == [
        ("up_proj", 2, -1, (0, 2)),
        ("lm_head", 1, 1, ()),
    ]
    assert tensors.compare(before, before) == []


def program(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    def body(carry: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
        return carry + jax.nn.silu(row), jnp.sum(row)

    carry, sums = jax.lax.scan(jax.checkpoint(body), jnp.zeros(y.shape[1]), y, reverse=True)
    counted = (
        jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2), (0, jax.lax.stop_gradient(x)))[1] * x
    )
    chosen = jax.lax.cond(x[0] > 0, lambda v: v + 1, lambda v: v - 1, counted)
    return jax.nn.relu(chosen) + jnp.sum(carry), sums


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_operations_one_by_one_make_the_program(sign: float) -> None:
    x, y = sign * jnp.arange(1.0, 4.0), jnp.arange(12.0).reshape(4, 3) / 7
    traced = jax.make_jaxpr(jax.jit(lambda a, b: jax.value_and_grad(lambda a: jnp.sum(program(a, b)[0]))(a)))(x, y)
    seen: list[str] = []
    places: list[str] = []

    def visit(name: str, equation: object, given: object, made: object) -> None:
        seen.append(name)
        places.append(written_at(equation))

    value, gradient = interpreter.execute(traced, [x, y], visit)
    expected = jax.value_and_grad(lambda a: jnp.sum(program(a, y)[0]))(x)
    np.testing.assert_allclose(value, expected[0], rtol=1e-6)
    np.testing.assert_allclose(gradient, expected[1], rtol=1e-6)
    assert len(seen) == len(set(seen)) > 20
    assert any("[3]" in name for name in seen), "the turns of a loop are told apart"
    assert any("test_tensors.py" in place for place in places)
    count = interpreter.length(traced)
    equation, made = interpreter.prefix(traced, [x, y], count)
    assert len(made) == len(equation.outvars)


def test_a_key_has_the_digest_of_its_words() -> None:
    """Typed keys, as they occur inside the initial state's program, are no numpy arrays."""
    key = jax.random.key(7)
    assert opened.digest_of(key) == opened.digest_of(np.asarray(jax.random.key_data(key)))
