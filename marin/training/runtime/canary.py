"""A known-answer test of the arithmetic: does this machine, under these flags, compute the bits of the contract?

A flag in an environment variable proves little: a library may have read its settings earlier, ignore one, or have
renamed it. So before training a small program is executed (matrix products of shapes for which processors are known to
disagree, sums, exponentials, reciprocal roots) and the digest of its results compared with the one that the contract
pins for this version of the compiler. On a processor with AVX-512 the answer is another one without
``--xla_cpu_enable_platform_dependent_math=false``.
"""

from __future__ import annotations

import hashlib
from importlib.metadata import version

import jax
import jax.numpy as jnp
import numpy as np

from marin.errors import Unsupported
from marin.recipe.schema import Arithmetic
from marin.training.runtime.products import canonical_products
from marin.training.runtime.profile import exact_profile

ANSWERS = {("portable-cpu", "0.11.2"): "sha256:643070a7c2fe1497348cec7ac672044d97146552a759672c776775928590664a"}
"""(profile, version of jaxlib) -> the digest of the results, equal on every processor that was tried
(docs/determinism.md)."""

SHAPES = ((256, 128, 352), (256, 352, 128), (16, 128, 352), (33, 129, 65), (4, 300, 200), (1, 128, 512))


def answer() -> str:
    """``sha256:`` over the results, computed here and now."""
    canonical_products()
    hasher = hashlib.sha256()
    for rows, inner, columns in SHAPES:
        left, right = _numbers(rows, inner), _numbers(inner, columns)
        for result in _program(left, right):
            hasher.update(np.ascontiguousarray(result, dtype="<f4").tobytes())
    return "sha256:" + hasher.hexdigest()


@jax.jit
def _program(left: jax.Array, right: jax.Array) -> tuple[jax.Array, ...]:
    product = left @ right
    scaled = product * jax.lax.rsqrt(jnp.mean(jnp.square(product), axis=-1, keepdims=True) + 1e-5)
    chances = jax.nn.softmax(scaled, axis=-1)
    weights = jax.lax.dot_general(chances, jnp.tanh(left), (((0,), (0,)), ((), ())))  # as the gradient of a weight
    return product, chances, weights, jnp.sum(product)


def _numbers(rows: int, columns: int) -> np.ndarray:
    """float32 of about size one that need rounding, from integer arithmetic alone."""
    index = np.arange(rows * columns, dtype=np.uint64)
    mixed = (index * np.uint64(0x9E3779B97F4A7C15) + np.uint64(rows)) >> np.uint64(40)
    return ((mixed.astype(np.float64) / 2**23 - 1.0).astype(np.float32)).reshape(rows, columns)


def check(arithmetic: Arithmetic) -> None:
    """Refuse to go on where the known answer does not come out.

    Raises:
        Unsupported: the answer is another one, or this compiler has none yet.
    """
    if arithmetic.profile == "exact":
        exact_profile().check()
    if arithmetic.profile != "portable-cpu":
        return
    compiler = version("jaxlib")
    expected = ANSWERS.get((arithmetic.profile, compiler))
    if expected is None:
        raise Unsupported(
            "no known answer of the arithmetic contract for this compiler",
            where=f"jaxlib {compiler}",
            expected="jaxlib " + ", ".join(known for _, known in ANSWERS),
            found=f"jaxlib {compiler}",
            cure="install requirements.lock",
        )
    found = answer()
    if found != expected:
        raise Unsupported(
            "this machine does not compute the bits of the arithmetic contract",
            where=f"known-answer test of {arithmetic.profile}, jaxlib {compiler}",
            expected=expected,
            found=found,
            cure="`marin doctor` says more; another processor or compiler may honour it",
        )
