"""The pass that made an unguarded product is named; of what is made exact there is none to name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugins.exact.passes import passes

PROGRAM = """
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from marin.plugins.exact.compiled import exact
from marin.plugins.exact.guarded import MINUS_ZERO

def written(z, a, b, c):
    return a * b + c

def power(z, a, b, c):
    return lax.pow(a, jnp.full(a.shape, 2, jnp.float32)) + c

def guarded(z, a, b, c):
    return (a * b + z) + c

def whole(a, b, c):
    return jnp.sum(lax.pow(a, jnp.full(a.shape, 2, jnp.float32)) + c) / jnp.sum(b * b + c, axis=-1)

rows = (np.ones((4, 32), np.float32),) * 3
for function in (written, power, guarded):
    jax.jit(function).lower(MINUS_ZERO, *rows).compile()
made = exact(whole, *rows)

def safe(z, a, b, c):
    return made(z, a, b, c)

with jax.enable_x64(True):
    jax.jit(safe).lower(MINUS_ZERO, *rows).compile()
"""


@pytest.mark.long
def test_the_pass_that_unguarded_a_product_is_named(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    found = {one.module.rpartition("jit_")[2]: one for one in reversed(passes([str(program)]))}
    assert found.keys() == {"written", "power"}
    assert found["written"].after == "before_optimizations"
    assert "algsimp" in found["power"].after, "a power became a product"
    assert " of " in found["power"].products[0]
