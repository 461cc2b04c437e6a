"""exp, log and all else that takes more than one rounding: a sequence of single roundings, in one order.

Each formula is written once, over an :class:`Arithmetic` that rounds: compiled (``marin.plugins.exact.guarded``) or in NumPy
(``marin.plugins.exact.reference``). The polynomials were fitted to the functions at Chebyshev nodes and their coefficients
rounded to float32; docs/exact.md states the errors that remain, and a test measures them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

F, W = np.float32, np.int32
Array = Any
"""NumPy's or jax's, float32 where nothing else is said."""


class Arithmetic(Protocol):
    """One rounding to nearest even for each call, then the rule for small numbers (``program.LEAST``)."""

    def add(self, a: Array, b: Array) -> Array: ...
    def sub(self, a: Array, b: Array) -> Array: ...
    def mul(self, a: Array, b: Array) -> Array: ...
    def reciprocal(self, a: Array) -> Array: ...
    def sqrt(self, a: Array) -> Array: ...
    def horner(self, a: Array, x: Array, b: Array) -> Array:
        """a x + b, each rounded. The rule would change nothing: no coefficient here is small enough to feel it."""
        ...

    def nearest(self, a: Array) -> Array:
        """The nearest whole number, ties to even; exact."""
        ...

    def where(self, condition: Array, a: Array, b: Array) -> Array: ...
    def bits(self, a: Array) -> Array:
        """int32 with the same bits."""
        ...

    def floats(self, a: Array) -> Array:
        """float32 with the bits of an int32, whatever they mean."""
        ...

    def whole(self, a: Array) -> Array:
        """int32 of a float32 that is a whole number below 2**24."""
        ...

    def number(self, a: Array) -> Array:
        """float32 of an int32 below 2**24."""
        ...


def polynomial(to: Arithmetic, x: Array, coefficients: tuple[float, ...]) -> Array:
    """Horner's rule, highest power first."""
    value = F(coefficients[0])
    for one in coefficients[1:]:
        value = to.horner(value, x, F(one))
    return value


def magnitude(to: Arithmetic, x: Array) -> Array:
    """|x|, by its bits."""
    return to.floats(to.bits(x) & W(0x7FFFFFFF))


def power_of_two(to: Arithmetic, exponent: Array) -> Array:
    """2**exponent, int32 from -126 to 127."""
    return to.floats((exponent + W(127)) << W(23))


def div(to: Arithmetic, a: Array, b: Array) -> Array:
    """a times the rounded reciprocal of b: two roundings, at most 1.5 units in the last place."""
    return to.mul(a, to.reciprocal(b))


LOG2_E = F(1.4426950408889634)
LN2_HIGH, LN2_LOW = F(0.693359375), F(-2.12194440e-4)
EXP = (0.00019900444, 0.0013934545, 0.0083332974, 0.041666456, 0.16666667, 0.5)


def exp(to: Arithmetic, x: Array) -> Array:
    """2**k (1 + r + r² P(r)), k the nearest whole number to x log2(e), r what is left of x in two parts of ln 2."""
    inside = to.where(x > F(-87.5), x, F(-87.5))
    inside = to.where(inside < F(89.0), inside, F(89.0))
    k = to.nearest(to.mul(inside, LOG2_E))
    r = to.sub(to.sub(inside, to.mul(k, LN2_HIGH)), to.mul(k, LN2_LOW))
    y = to.add(to.add(to.mul(to.mul(r, r), polynomial(to, r, EXP)), r), F(1))
    half = to.whole(k) >> W(1)
    scaled = to.mul(to.mul(y, power_of_two(to, half)), power_of_two(to, to.whole(k) - half))
    return to.where(x == x, scaled, x)


LOG = (0.07149754, -0.11571201, 0.116615117, -0.124110505, 0.14249936, -0.1666848, 0.20000708, -0.2499999, 0.3333333)


def log(to: Arithmetic, x: Array) -> Array:
    """x = m 2**e with m from sqrt(1/2) to sqrt(2), f = m - 1: e ln 2 + (f - f²/2 + f³ P(f)), the small parts first."""
    bits = to.bits(x)
    e = ((bits >> W(23)) & W(255)) - W(126)
    m = to.floats((bits & W(0x7FFFFF)) | W(0x3F000000))
    small = m < F(0.70710678)
    e = to.number(e - to.where(small, W(1), W(0)))
    y = _log_near(to, to.sub(to.where(small, to.add(m, m), m), F(1)), e)
    y = to.where(x == F(np.inf), x, y)
    return to.where(x > F(0), y, to.where(x == F(0), F(-np.inf), F(np.nan)))


def log1p(to: Arithmetic, x: Array) -> Array:
    """The series of log with f = x, e = 0 where 1 + x is from sqrt(1/2) to sqrt(2); log(1 + x) elsewhere."""
    near = (x > F(-0.29289322)) & (x < F(0.41421354))
    return to.where(near, _log_near(to, x, F(0)), log(to, to.add(F(1), x)))


def _log_near(to: Arithmetic, f: Array, e: Array) -> Array:
    s = to.mul(f, f)
    y = to.add(to.mul(to.mul(polynomial(to, f, LOG), f), s), to.mul(e, LN2_LOW))
    return to.add(to.add(to.sub(y, to.mul(s, F(0.5))), f), to.mul(e, LN2_HIGH))


def logistic(to: Arithmetic, x: Array) -> Array:
    """1 / (1 + exp(-x))."""
    return to.reciprocal(to.add(F(1), exp(to, to.sub(F(0), x))))


TANH = (0.0022958347, -0.008346973, 0.021769958, -0.053959407, 0.13333304, -0.33333334)


def tanh(to: Arithmetic, x: Array) -> Array:
    """x + x³ P(x²) below 0.625; from there (1 - e) / (1 + e) with e = exp(-2|x|) and the sign of x."""
    size = magnitude(to, x)
    e = exp(to, to.mul(F(-2), size))
    large = div(to, to.sub(F(1), e), to.add(F(1), e))
    signed = to.where(x < F(0), to.sub(F(0), large), large)
    s = to.mul(x, x)
    small = to.add(to.mul(to.mul(polynomial(to, s, TANH), s), x), x)
    return to.where(size < F(0.625), small, signed)


HALF_PI = (F(1.5703125), F(0.0004837512969970703), F(7.549533620476723e-08), F(2.5632829192545614e-12))
"""pi/2 in parts of at most 12 bits: their products with whole numbers up to 4096 are exact."""
SIN = (2.7237736e-06, -0.00019839991, 0.008333332, -0.16666667)
COS = (2.4537409e-05, -0.0013888252, 0.041666664)


def turned(to: Arithmetic, x: Array, quarter: int) -> Array:
    """sin(x + quarter pi/2): x less the nearest multiple of pi/2, part by part; then one of two polynomials."""
    k = to.nearest(to.mul(x, F(0.6366197723675814)))
    r = x
    for part in HALF_PI:
        r = to.sub(r, to.mul(k, part))
    q = (to.whole(to.where(magnitude(to, k) < F(2.0**24), k, F(0))) + W(quarter)) & W(3)
    s = to.mul(r, r)
    sine = to.add(to.mul(to.mul(polynomial(to, s, SIN), s), r), r)
    cosine = to.add(to.sub(to.mul(to.mul(polynomial(to, s, COS), s), s), to.mul(s, F(0.5))), F(1))
    value = to.where((q & W(1)) == W(1), cosine, sine)
    return to.where(q >= W(2), to.sub(F(0), value), value)


def sin(to: Arithmetic, x: Array) -> Array:
    """sin(x)."""
    return turned(to, x, 0)


def cos(to: Arithmetic, x: Array) -> Array:
    """cos(x)."""
    return turned(to, x, 1)


ERF_SMALL = (
    -9.673590e-06,
    0.00011268254,
    -0.00084843964,
    0.0052210535,
    -0.026865438,
    0.11283783,
    -0.37612638,
    1.1283792,
)
ERF_LARGE = (
    0.017141648,
    0.05142973,
    -0.3544716,
    0.4496223,
    -0.03505697,
    0.32156438,
    0.26591065,
    0.2840762,
    -0.000105416067,
)


def erf(to: Arithmetic, x: Array) -> Array:
    """x P(x²) below 1; from there 1 - exp(-x²) Q(1 / (1 + |x|/2)) with the sign of x; 1 from 4 on."""
    size = magnitude(to, x)
    s = to.mul(x, x)
    small = to.mul(x, polynomial(to, s, ERF_SMALL))
    t = to.reciprocal(to.add(F(1), to.mul(size, F(0.5))))
    tail = to.mul(exp(to, to.sub(F(0), s)), polynomial(to, t, ERF_LARGE))
    large = to.where(size < F(4), to.sub(F(1), tail), F(1))
    signed = to.where(x < F(0), to.sub(F(0), large), large)
    return to.where(size < F(1), small, to.where(x == x, signed, x))


ERF_INV_CENTRE = (
    -8.739831e-09,
    2.3285844e-08,
    4.6542874e-07,
    -3.4633563e-06,
    -4.9597434e-06,
    0.00021834692,
    -0.0012527484,
    -0.0041773897,
    0.2466403,
    1.5014094,
)
ERF_INV_TAIL = (
    -0.00012693107,
    4.4778320e-05,
    0.0012554284,
    -0.0036147824,
    0.0057794126,
    -0.007639483,
    0.009433081,
    1.0016752,
    2.832977,
)


def erf_inv(to: Arithmetic, x: Array) -> Array:
    """x P(w - 2.5) for w = -log((1 - x)(1 + x)) below 5, x Q(sqrt(w) - 3) from there; infinity at 1."""
    w = to.sub(F(0), log(to, to.mul(to.sub(F(1), x), to.add(F(1), x))))
    centre = polynomial(to, to.sub(w, F(2.5)), ERF_INV_CENTRE)
    tail = polynomial(to, to.sub(to.sqrt(w), F(3)), ERF_INV_TAIL)
    value = to.mul(x, to.where(w < F(5), centre, tail))
    edge = to.where(x < F(0), F(-np.inf), F(np.inf))
    return to.where(magnitude(to, x) == F(1), edge, value)


def power(to: Arithmetic, a: Array, b: Array) -> Array:
    """exp(b log a) for a >= 0; 1 where b = 0."""
    return to.where(b == F(0), F(1), exp(to, to.mul(b, log(to, a))))


def rsqrt(to: Arithmetic, x: Array) -> Array:
    """The rounded reciprocal of the rounded square root."""
    return to.reciprocal(to.sqrt(x))


def next_after(to: Arithmetic, x: Array, towards: Array) -> Array:
    """The neighbour of x in the direction of ``towards``; the neighbours of zero are the least numbers."""
    bits = to.bits(x)
    away = (x > F(0)) == (towards > x)
    stepped = to.floats(bits + to.where(away, W(1), W(-1)))
    least = to.where(towards > x, F(2.0**-125), F(-(2.0**-125)))
    moved = to.where(x == F(0), least, stepped)
    moved = to.where(x == towards, towards, moved)
    return to.where((x == x) & (towards == towards), to.add(moved, F(0)), F(np.nan))


NAMED: dict[str, Callable[..., Array]] = {
    "div": div,
    "erf": erf,
    "erf_inv": erf_inv,
    "exp": exp,
    "log": log,
    "log1p": log1p,
    "logistic": logistic,
    "tanh": tanh,
    "sin": sin,
    "cos": cos,
    "pow": power,
    "rsqrt": rsqrt,
    "nextafter": next_after,
}
"""Every function of this file that is an operation of a program, by its name there."""
