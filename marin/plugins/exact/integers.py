"""Sums and contractions as sums of whole numbers, compiled: the order of additions cannot matter.

The definition (docs/exact.md) is of whole numbers and one rounding, and names no way to add them. There are three here:
``float64`` (products and sums of whole numbers below 2**53 are exact), ``int8`` and ``bfloat16`` (a number of 15 bits in
two parts of 8 bits, four products, joined in 64 bits). ``chosen`` is the faster one of the first two for the shape and
this processor. All arrays are float32 where nothing else is said.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from marin.plugins.exact.functions import power_of_two
from marin.plugins.exact.guarded import Guarded
from marin.provenance.processor import processor

F, W, U, D, L = np.float32, np.int32, np.uint32, np.float64, np.int64
Products = Literal["chosen", "float64", "int8", "bfloat16"]

BITS = 15
"""Of a factor of a contraction, its sign apart."""
LARGEST = 2**BITS - 129
"""The largest whole number that a factor becomes: 127 * 256 + 127, so that two signed bytes hold it."""
FACTOR_FLOOR, ADDEND_FLOOR = -45, -90
"""The least power of two that a row's maximum is taken for: results are never below the least number."""
ADDEND_BITS, ROOM = 30, 52
"""Bits of an addend below the row's largest one; bits that a whole sum may have."""
INT8_LONGEST, BFLOAT16_BLOCK = 2**16, 2**10
"""How many products of two bytes int32 can add (twice as many, for the two middle products are added there too), and float32.
More are added in 64 bits, block by block."""
WORTH_BYTES = 256
"""Products in a sum from which on a processor that multiplies bytes is faster with them than with float64; where batches
are multiplied one by one it is not."""
MULTIPLIES_BYTES = frozenset({"avx512_vnni", "avx_vnni"})
"""Flags of such a processor. On others products of bytes take about twice as long as those of float64."""


def addend_bits(count: int) -> int:
    """Bits that each of ``count`` addends is given."""
    return min(ADDEND_BITS, ROOM - (count - 1).bit_length())


def _exponents(to: Guarded, x: jax.Array, axes: Sequence[int]) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Over ``axes``, which stay with size one: the bits of the largest magnitude, the least e with it below 2**e, and
    1.0, or NaN where a number is not finite."""
    size = jnp.where(x == x, jnp.abs(x), F(np.inf))  # XLA is slower with the maximum of their bits
    bits = to.bits(jnp.max(size, axis=tuple(axes), keepdims=True))
    return bits, (bits >> W(23)) - W(126), jnp.where(bits < W(0x7F800000), F(1), F(np.nan))


def _scaled(to: Guarded, x: jax.Array, exponent: jax.Array) -> jax.Array:
    """x 2**exponent as the nearest whole number, ties to even; the product is exact."""
    return lax.round(x * power_of_two(to, exponent), lax.RoundingMethod.TO_NEAREST_EVEN)


def factors(
    to: Guarded, x: jax.Array, axes: Sequence[int], width: int = BITS, words: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """``x`` as whole numbers up to 2**``width``, at most :data:`LARGEST` (float32), and the power of two that each row has
    to be multiplied with. ``words``: random ones to round by, uint32 of the shape of ``x``."""
    bits, e, finite = _exponents(to, x, axes)
    if width == BITS:
        limit = W((LARGEST * 2**9) & 0x7FFFFF)  # the fraction of LARGEST / 2**15 as float32 has it
        e = e + (bits & W(0x7FFFFF) > limit).astype(W)
    e = jnp.maximum(e, W(FACTOR_FLOOR))
    back = finite * power_of_two(to, e - W(width))
    if words is None:
        return _scaled(to, x, W(width) - e), back
    size = jnp.abs(x * power_of_two(to, W(width) - e))
    below = lax.floor(size)
    up = (words >> U(8)).astype(F) < (size - below) * F(2**24)
    whole = below + up.astype(F)
    return jnp.where(x < F(0), -whole, whole), back


def addends(to: Guarded, x: jax.Array, axes: Sequence[int], count: int) -> tuple[jax.Array, jax.Array]:
    """``x`` as whole numbers (float64) of which ``count`` can be added, and the power of two for their sum."""
    _, e, finite = _exponents(to, x, axes)
    e = jnp.maximum(e, W(ADDEND_FLOOR))
    bits = addend_bits(count)
    return _scaled(to, x, W(bits) - e).astype(D), finite * power_of_two(to, e - W(bits))


def total(to: Guarded, x: jax.Array, axes: Sequence[int]) -> jax.Array:
    """The sum over ``axes``."""
    whole, back = addends(to, x, axes, math.prod(x.shape[axis] for axis in axes))
    return lax.squeeze(to.mul(jnp.sum(whole, axis=tuple(axes), keepdims=True).astype(F), back), tuple(axes))


def scattered(
    to: Guarded,
    operand: jax.Array,
    updates: jax.Array,
    count: int,
    scatter: Callable[[jax.Array, jax.Array], jax.Array],
) -> jax.Array:
    """``operand`` plus ``updates``, of which at most ``count`` meet in a place; ``scatter`` gets zeros and the updates as whole
    numbers, both float64, and adds them."""
    whole, back = addends(to, updates, range(updates.ndim), count)
    found = scatter(jnp.zeros(operand.shape, D), whole).astype(F)
    return to.add(operand, to.mul(found, back.reshape(())))


def contraction(
    to: Guarded,
    left: jax.Array,
    right: jax.Array,
    numbers: Any,
    products: Products,
    width: int = BITS,
    words: Sequence[jax.Array | None] = (None, None),
) -> jax.Array:
    """The contraction of ``left`` and ``right``: [batch..., left's free axes, right's free axes]. ``numbers`` as
    ``lax.dot_general`` takes them: ((summed, summed), (batch, batch)). ``width`` and ``words``: of both factors, as
    :func:`factors` takes them."""
    ((left_summed, right_summed), (left_batch, right_batch)) = numbers
    a, a_back = factors(to, left, left_summed, width, words[0])
    b, b_back = factors(to, right, right_summed, width, words[1])
    count = math.prod(left.shape[axis] for axis in left_summed)
    whole = _WAYS[products](a, b, numbers, count)
    a_free, b_free = _free(left, left_summed, left_batch), _free(right, right_summed, right_batch)
    a_back = lax.transpose(a_back, (*left_batch, *a_free, *left_summed))
    b_back = lax.transpose(b_back, (*right_batch, *b_free, *right_summed))
    batch = [left.shape[axis] for axis in left_batch]
    a_back = a_back.reshape(*batch, *(left.shape[axis] for axis in a_free), *(1 for _ in b_free))
    b_back = b_back.reshape(*batch, *(1 for _ in a_free), *(right.shape[axis] for axis in b_free))
    # Made once: XLA would put it together anew for each of its readers.
    return lax.optimization_barrier(to.mul(to.mul(whole, a_back), b_back))


def _free(x: jax.Array, summed: Sequence[int], batch: Sequence[int]) -> list[int]:
    """The axes of a factor that are neither summed nor the batch's."""
    return [axis for axis in range(x.ndim) if axis not in (*summed, *batch)]


def _float64(a: jax.Array, b: jax.Array, numbers: Any, _: int) -> jax.Array:
    return lax.dot_general(a.astype(D), b.astype(D), numbers, preferred_element_type=D).astype(F)


def _bytes(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """High and low part, x = 256 high + low, both from -128 to 127."""
    whole = x.astype(W)
    high = (whole + W(128)) >> W(8)
    return high, whole - (high << W(8))


def _joined(a: jax.Array, b: jax.Array, product: Callable[[jax.Array, jax.Array], jax.Array]) -> jax.Array:
    """The product of whole numbers by four products of their parts, which ``product`` gives in 64 bits."""
    (a_high, a_low), (b_high, b_low) = _bytes(a), _bytes(b)
    middle = product(a_high, b_low) + product(a_low, b_high)
    return ((product(a_high, b_high) << L(16)) + (middle << L(8)) + product(a_low, b_low)).astype(F)


type _Side = tuple[jax.Array, Sequence[int], Sequence[int]]
"""A factor, its summed axes and its batch's."""


def _sides(a: jax.Array, b: jax.Array, numbers: Any) -> tuple[_Side, _Side]:
    ((a_summed, b_summed), (a_batch, b_batch)) = numbers
    return (a, a_summed, a_batch), (b, b_summed, b_batch)


def _arranged(x: jax.Array, summed: Sequence[int], batch: Sequence[int], *, last: bool) -> jax.Array:
    """One factor as [batch..., free, summed], or with what is summed before the free axes."""
    free = _free(x, summed, batch)
    sizes = [math.prod(x.shape[axis] for axis in axes) for axes in (free, summed)]
    order, shape = ((*free, *summed), sizes) if last else ((*summed, *free), sizes[::-1])
    return lax.transpose(x, (*batch, *order)).reshape(*(x.shape[axis] for axis in batch), *shape)


def _shaped(found: jax.Array, sides: tuple[_Side, _Side]) -> jax.Array:
    """[batch..., free axes of the one, free axes of the other] of [batch..., free, free]."""
    return found.reshape(*found.shape[:-2], *(x.shape[axis] for x, *axes in sides for axis in _free(x, *axes)))


def _ends_with(x: jax.Array, summed: Sequence[int]) -> bool:
    """Whether what is summed lies last."""
    return tuple(summed) == tuple(range(x.ndim - len(summed), x.ndim))


def _int8(a: jax.Array, b: jax.Array, numbers: Any, count: int) -> jax.Array:
    sides = _sides(a, b, numbers)
    # XLA's fast products of bytes sum over the last axis of the left factor and the first of the right one. What it has
    # to turn itself it multiplies slowly, in 32 bits; so factors are turned here, as their parts are put together. The
    # product is read by more than one: it is turned only where the left factor would have to be and the right one lies
    # as a left one should, or neither does and the right one is smaller.
    natural = [_ends_with(x, over) for x, over, _ in sides]
    turned = not natural[0] and (natural[1] or a.size > b.size)
    left, right = (sides[1], sides[0]) if turned else sides
    lead = len(sides[0][2])
    axes, blocks = tuple(range(lead)), -(-count // INT8_LONGEST)
    x = [part.astype(jnp.int8) for part in _bytes(_arranged(*left, last=True))]
    y = [part.astype(jnp.int8) for part in _bytes(_arranged(*right, last=False))]

    def product(x: jax.Array, y: jax.Array) -> jax.Array:
        if blocks == 1:
            return lax.dot_general(x, y, (((lead + 1,), (lead,)), (axes, axes)), preferred_element_type=W)
        x, y = (_in_blocks(z, axis, blocks) for z, axis in ((x, lead + 1), (y, lead)))
        numbers = (((lead + 2,), (lead + 1,)), ((*axes, lead + 1), (*axes, lead)))
        return jnp.sum(lax.dot_general(x, y, numbers, preferred_element_type=W), axis=lead, dtype=L)

    if any(natural):
        wide = jnp.concatenate(y, lead + 1)
        (high, first), (second, low) = (jnp.split(product(part, wide), 2, lead + 1) for part in x)
    else:
        tall = jnp.concatenate(x, lead)
        (high, first), (second, low) = (jnp.split(product(tall, part), 2, lead) for part in y)
    middle = (first + second).astype(D)
    found = (high.astype(D) * 2.0**16 + middle * 2.0**8 + low.astype(D)).astype(F)
    found = lax.optimization_barrier(jnp.swapaxes(found, -1, -2) if turned else found)
    return _shaped(found, sides)


def _in_blocks(x: jax.Array, axis: int, blocks: int) -> jax.Array:
    """``axis`` as two: blocks and what is in one, the last filled with zeros."""
    padding = [(0, -x.shape[axis] % blocks if one == axis else 0) for one in range(x.ndim)]
    return jnp.pad(x, padding).reshape(*x.shape[:axis], blocks, -1, *x.shape[axis + 1 :])


def _bfloat16(a: jax.Array, b: jax.Array, numbers: Any, count: int) -> jax.Array:
    sides = _sides(a, b, numbers)
    left, right = _arranged(*sides[0], last=True), _arranged(*sides[1], last=False)
    lead = len(sides[0][2])
    axes = tuple(range(lead))
    inner = (((lead + 1,), (lead,)), (axes, axes))

    def product(x: jax.Array, y: jax.Array) -> jax.Array:
        x, y = x.astype(jnp.bfloat16), y.astype(jnp.bfloat16)
        found = jnp.zeros((), L)
        for start in range(0, count, BFLOAT16_BLOCK):
            end = min(count, start + BFLOAT16_BLOCK)
            part = lax.dot_general(x[..., start:end], y[..., start:end, :], inner, preferred_element_type=F)
            found = found + part.astype(L)
        return found

    return _shaped(_joined(left, right, product), sides)


@cache
def multiplies_bytes() -> bool:
    """Whether this processor has instructions that multiply bytes and add up the products; an accelerator has."""
    return jax.default_backend() != "cpu" or not MULTIPLIES_BYTES.isdisjoint(processor().features)


def _chosen(a: jax.Array, b: jax.Array, numbers: Any, count: int) -> jax.Array:
    """By bytes where the sum is long: what they save in products is more than what four results of each cost."""
    bytes_ = multiplies_bytes() and not numbers[1][0] and WORTH_BYTES <= count <= INT8_LONGEST
    return (_int8 if bytes_ else _float64)(a, b, numbers, count)


_WAYS: dict[Products, Callable[[jax.Array, jax.Array, Any, int], jax.Array]] = {
    "chosen": _chosen,
    "float64": _float64,
    "int8": _int8,
    "bfloat16": _bfloat16,
}
