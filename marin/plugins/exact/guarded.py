"""One rounding at a time, compiled: what keeps a compiler from rounding otherwise.

XLA may contract a product with the sum that follows it (one rounding instead of two), turn a quotient into a product
with a reciprocal, or a sum of constants into one. It does so where it sees both; so between two roundings there is
always something that it cannot see through: ``z``, which is -0.0 and known only at run time. x + -0.0 is x for every
x, rounded or not, so ``a * b + z`` contracted into one operation is still the product rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import add, mul, sub

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from marin.plugins.exact.program import LEAST

F, W = np.float32, np.int32
type Operation = Callable[[jax.Array, jax.Array], jax.Array]
MINUS_ZERO = np.float32(-0.0)
"""What every compiled program is given as its first argument."""


class Guarded:
    """An :class:`marin.plugins.exact.functions.Arithmetic` of jax arrays; ``z`` is -0.0, an argument of what is traced."""

    def __init__(self, z: jax.Array) -> None:
        self.z = z

    def rule(self, a: jax.Array) -> jax.Array:
        """``a``, or +0.0 where its magnitude is below the least number's; so there is one zero only."""
        return jnp.where(lax.lt(lax.abs(a), F(LEAST)), F(0), a)

    def add(self, a: jax.Array, b: jax.Array) -> jax.Array:
        return self.rule(_add(a, b))

    def sub(self, a: jax.Array, b: jax.Array) -> jax.Array:
        return self.rule(_sub(a, b))

    def mul(self, a: jax.Array, b: jax.Array) -> jax.Array:
        return self.rule(self._product(a, b))

    def reciprocal(self, a: jax.Array) -> jax.Array:
        return self.rule(lax.add(lax.div(F(1), lax.add(a, self.z)), self.z))

    def sqrt(self, a: jax.Array) -> jax.Array:
        # XLA takes a GPU's float32 root from an instruction that is a unit off; that of float64 is IEEE 754's, and 53 bits
        # are enough to round it again (Figueroa, 1995).
        return lax.platform_dependent(a, cuda=_root_of_float64, default=lax.sqrt)

    def horner(self, a: jax.Array, x: jax.Array, b: jax.Array) -> jax.Array:
        return _add(self._product(a, x), b)

    def _product(self, a: jax.Array, b: jax.Array) -> jax.Array:
        return lax.add(_mul(a, b), self.z)

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


def _at_once(quick: Operation, general: Operation) -> Operation:
    """``quick``, of :mod:`jax.lax`, for what it takes as it is: one dtype, and one shape or a scalar. ``general`` gives the same
    operation, but jax traces it as a program of its own first, which was most of the time that tracing took."""

    def operation(a: jax.Array, b: jax.Array) -> jax.Array:
        known = isinstance(a, np.generic) and isinstance(b, np.generic)
        alike = a.dtype == b.dtype and (a.shape == b.shape or not a.shape or not b.shape)
        return quick(a, b) if alike and not known else general(a, b)

    return operation


_add, _sub, _mul = _at_once(lax.add, add), _at_once(lax.sub, sub), _at_once(lax.mul, mul)


def _root_of_float64(a: jax.Array) -> jax.Array:
    return lax.sqrt(a.astype(jnp.float64)).astype(F)
