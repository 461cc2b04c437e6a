"""One rounding at a time, compiled: what keeps a compiler from rounding otherwise.

XLA may contract a product with the sum that follows it (one rounding instead of two), turn a quotient into a product
with a reciprocal, or a sum of constants into one. It does so where it sees both; so between two roundings there is
always something that it cannot see through: ``z``, which is -0.0 and known only at run time. x + -0.0 is x for every
x, rounded or not, so ``a * b + z`` contracted into one operation is still the product rounded once.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from marin.exact.program import LEAST

F, W = jnp.float32, jnp.int32
MINUS_ZERO = np.float32(-0.0)
"""What every compiled program is given as its first argument."""


class Guarded:
    """An :class:`marin.exact.functions.Arithmetic` of jax arrays; ``z`` is -0.0, an argument of what is traced."""

    def __init__(self, z: jax.Array) -> None:
        self.z = z

    def rule(self, a: jax.Array) -> jax.Array:
        """``a``, or +0.0 where its magnitude is below the least number's; so there is one zero only."""
        return jnp.where(jnp.abs(a) < F(LEAST), F(0), a)

    def add(self, a: jax.Array, b: jax.Array) -> jax.Array:
        return self.rule(a + b)

    def sub(self, a: jax.Array, b: jax.Array) -> jax.Array:
        return self.rule(a - b)

    def mul(self, a: jax.Array, b: jax.Array) -> jax.Array:
        return self.rule(a * b + self.z)

    def reciprocal(self, a: jax.Array) -> jax.Array:
        return self.rule(F(1) / (a + self.z) + self.z)

    def sqrt(self, a: jax.Array) -> jax.Array:
        # XLA takes a GPU's float32 root from an instruction that is a unit off; that of float64 is IEEE 754's, and 53 bits
        # are enough to round it again (Figueroa, 1995).
        return lax.platform_dependent(a, cuda=_root_of_float64, default=lax.sqrt)

    def horner(self, a: jax.Array, x: jax.Array, b: jax.Array) -> jax.Array:
        return (a * x + self.z) + b

    def nearest(self, a: jax.Array) -> jax.Array:
        return self.rule(lax.round(a, lax.RoundingMethod.TO_NEAREST_EVEN))

    def where(self, condition: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.where(condition, a, b)

    def bits(self, a: jax.Array) -> jax.Array:
        return lax.bitcast_convert_type(a, W)

    def floats(self, a: jax.Array) -> jax.Array:
        return lax.bitcast_convert_type(a, F)

    def whole(self, a: jax.Array) -> jax.Array:
        return a.astype(W)

    def number(self, a: jax.Array) -> jax.Array:
        return a.astype(F)


def _root_of_float64(a: jax.Array) -> jax.Array:
    return lax.sqrt(a.astype(jnp.float64)).astype(F)
