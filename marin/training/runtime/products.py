"""Every matrix product in the one form whose bits do not depend on the processor.

XLA's CPU compiler gives a product to its own library (YNN), which under
``--xla_cpu_enable_platform_dependent_math=false`` computes the same bits on every x86-64-v3 processor, but only if
each operand has its summed axis where that library wants it. Other products, above all the gradients of weights, which
sum over the *first* axis of both operands, go to Eigen, which cuts its sums by the sizes of the caches and the number
of threads: they differ between a Haswell and an EPYC, whatever the flags.

So products are lowered here with the summed axes of the left operand last and those of the right operand first (after
batch axes), with explicit transpositions, which move and do not compute. The contract's flag
``--xla_disable_hlo_passes=transpose-folding`` keeps the compiler from folding them back.
:func:`foreign_products` looks into a compiled program for products that went elsewhere.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import jax
from jax._src.interpreters import mlir
from jax.extend.core import primitives

Dimensions = tuple[tuple[tuple[int, ...], tuple[int, ...]], tuple[tuple[int, ...], tuple[int, ...]]]


@cache
def canonical_products() -> None:
    """From here on, this process lowers matrix products for CPUs in canonical form. Programs for GPUs and TPUs stay."""
    ordinary = mlir._platform_specific_lowerings["cpu"][primitives.dot_general_p].rule

    def rule(ctx: Any, lhs: Any, rhs: Any, *, dimension_numbers: Dimensions, **params: Any) -> Any:
        ranks = tuple(len(aval.shape) for aval in ctx.avals_in)
        if is_canonical(dimension_numbers, *ranks):
            return ordinary(ctx, lhs, rhs, dimension_numbers=dimension_numbers, **params)

        def transposed(lhs: jax.Array, rhs: jax.Array) -> jax.Array:
            return product(lhs, rhs, dimension_numbers, params)

        return mlir.lower_fun(transposed, multiple_results=False)(ctx, lhs, rhs)

    mlir.register_lowering(primitives.dot_general_p, rule, platform="cpu")


def is_canonical(numbers: Dimensions, left_rank: int, right_rank: int) -> bool:
    """Left operand: batch, free, summed axes in this order; right operand: batch, summed, free axes."""
    (left, right), (left_batch, right_batch) = numbers
    batch = tuple(range(len(left_batch)))
    return (
        left_batch == batch
        and right_batch == batch
        and left == tuple(range(left_rank - len(left), left_rank))
        and right == tuple(range(len(batch), len(batch) + len(right)))
    )


def product(lhs: jax.Array, rhs: jax.Array, numbers: Dimensions, params: dict[str, Any]) -> jax.Array:
    """The same product, canonical: axes in order of (batch, left free, right free), as ``dot_general`` promises."""
    (left, right), (left_batch, right_batch) = numbers
    left_free = tuple(i for i in range(lhs.ndim) if i not in left and i not in left_batch)
    right_free = tuple(i for i in range(rhs.ndim) if i not in right and i not in right_batch)
    lhs = jax.lax.transpose(lhs, (*left_batch, *left_free, *left))
    rhs = jax.lax.transpose(rhs, (*right_batch, *right, *right_free))
    batch, summed = len(left_batch), len(left)
    canonical = (
        (tuple(range(lhs.ndim - summed, lhs.ndim)), tuple(range(batch, batch + summed))),
        (tuple(range(batch)),) * 2,
    )
    # Without the barrier a transposition of the result would be folded in: (AB)' = B'A', no canonical product.
    result: jax.Array = jax.lax.optimization_barrier(
        primitives.dot_general_p.bind(lhs, rhs, dimension_numbers=canonical, **params)
    )
    return result


_COMPUTATION = re.compile(r"^(?:ENTRY )?(%[\w.\-]+) \(")
_LIBRARY = re.compile(r"kind=kCustom, calls=(%[\w.\-]+)")
_PRODUCT = re.compile(r"(%[\w.\-]+) = \S+ (?:dot|convolution)\(")


def foreign_products(optimized: str) -> list[str]:
    """Names of products in the optimized HLO text of a CPU program that are not computed by XLA's own library.

    A text without any product proves nothing (a compiler that writes it otherwise): that is said like a foreign one.
    """
    inside = set(_LIBRARY.findall(optimized))
    current, found, known = "", [], 0
    for line in optimized.splitlines():
        if opening := _COMPUTATION.match(line):
            current = opening.group(1)
        elif hit := _PRODUCT.search(line):
            known += current in inside
            found += [hit.group(1)] if current not in inside else []
    return found if found or known else ["no product was recognised"]
