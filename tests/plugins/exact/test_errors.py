"""The errors that docs/exact.md states, measured against float64 and against exact fractions."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from scipy import special

from marin.plugins.exact import functions, reference

DRAWN = np.random.default_rng(2463)


def ulps(found: np.ndarray, wanted: np.ndarray) -> float:
    """The largest error in units of the last place of the result."""
    unit = np.spacing(np.maximum(np.abs(wanted), 2.0**-100).astype(np.float32)).astype(np.float64)
    return float(np.max(np.abs(found.astype(np.float64) - wanted) / unit))


BOUNDS: dict[str, tuple[Callable[[Any], Any], tuple[float, float], float]] = {
    "exp": (np.exp, (-86, 88), 2),
    "log": (np.log, (1e-3, 5000), 2),
    "log1p": (np.log1p, (-0.999, 5000), 3),
    "logistic": (special.expit, (-80, 80), 4),
    "tanh": (np.tanh, (-10, 10), 4),
    "erf": (special.erf, (-5, 5), 4),
    "rsqrt": (lambda x: 1 / np.sqrt(x), (1e-6, 1e6), 1.5),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_functions_are_as_near_as_is_said(name: str) -> None:
    function, (low, high), bound = BOUNDS[name]
    x = np.concatenate([DRAWN.uniform(low, high, 40_000), DRAWN.uniform(max(low, -1), 1, 20_000)]).astype(np.float32)
    x = x[x > 0] if low > 0 else x
    found = functions.NAMED[name](reference.TO, x)
    assert ulps(found, function(x.astype(np.float64))) <= bound


def test_sine_cosine_and_the_inverse_error_function_are_as_near_as_is_said() -> None:
    x = DRAWN.uniform(-4096, 4096, 40_000).astype(np.float32)
    for name, function in (("sin", np.sin), ("cos", np.cos)):
        found = functions.NAMED[name](reference.TO, x)
        assert np.max(np.abs(found - function(x.astype(np.float64)))) <= 2.0**-23
    x = DRAWN.uniform(-0.9999, 0.9999, 40_000).astype(np.float32)
    wanted = special.erfinv(x.astype(np.float64))
    assert np.max(np.abs(functions.erf_inv(reference.TO, x) - wanted) / np.abs(wanted)) <= 2.0**-20


def test_a_quotient_is_as_near_as_is_said_as_long_as_its_divisor_has_a_reciprocal() -> None:
    signs = DRAWN.choice([-1.0, 1.0], 40_000)
    b = (signs * 2.0 ** DRAWN.uniform(-124, 125, 40_000)).astype(np.float32)
    with np.errstate(over="ignore"):
        a = (DRAWN.uniform(1, 2, 40_000) * np.abs(b) * 2.0 ** DRAWN.uniform(-20, 20, 40_000)).astype(np.float32)
    usual = np.isfinite(a) & (np.abs(a) >= 2.0**-125)
    a, b = a[usual], b[usual]
    found = functions.div(reference.TO, a, b)
    assert len(a) > 30_000 and ulps(found, a.astype(np.float64) / b.astype(np.float64)) <= 1.5
    with np.errstate(all="ignore"):
        assert functions.div(reference.TO, np.float32(1.2e9), np.float32(4.8e37)) == 0, (
            "1 / b is below the least number"
        )


def test_a_power_is_as_near_as_is_said() -> None:
    a = 2.0 ** DRAWN.uniform(-30, 30, 60_000)
    b = DRAWN.uniform(-1, 1, 60_000) * 10.0 ** DRAWN.uniform(-2, 2, 60_000)
    a, b = a.astype(np.float32).astype(np.float64), b.astype(np.float32).astype(np.float64)
    exponent = b * np.log(a)
    inside = np.abs(exponent) < 86
    wanted = np.exp(exponent[inside])
    with np.errstate(all="ignore"):
        found = functions.power(reference.TO, a[inside].astype(np.float32), b[inside].astype(np.float32))
    unit = np.spacing(wanted.astype(np.float32)).astype(np.float64)
    wrong = np.abs(found.astype(np.float64) - wanted) / unit
    assert np.all(wrong <= 2 + 5 * np.abs(exponent[inside]))
    assert wrong.max() > 20, "which is more than exp's own"


FINITE = st.floats(-1e6, 1e6, width=32)


@given(st.lists(st.tuples(FINITE, FINITE), min_size=1, max_size=40))
def test_a_contraction_is_as_near_as_is_said(pairs: list[tuple[float, float]]) -> None:
    a, b = (np.asarray(column, np.float32) for column in zip(*pairs, strict=True))
    whole, back = reference.factors(np.stack([a, b]))
    found = float(np.float32(np.float32(int(np.dot(whole[0], whole[1]))) * back[0]) * back[1])
    exact = sum((Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a, b, strict=True)), Fraction(0))
    largest = [max(float(np.max(np.abs(x))), 2.0**-46) for x in (a, b)]
    bound = len(pairs) * largest[0] * largest[1] * 2.0**-12.9 + abs(float(exact)) * 2.0**-23
    assert abs(found - float(exact)) <= bound


@given(st.lists(FINITE, min_size=1, max_size=60))
def test_a_sum_is_as_near_as_is_said(values: list[float]) -> None:
    x = np.asarray(values, np.float32)
    whole, back = reference.addends(x, len(values))
    found = float(np.float32(int(whole.sum())) * back)
    exact = sum((Fraction(float(value)) for value in x), Fraction(0))
    largest = max(float(np.max(np.abs(x))), 2.0**-90)
    assert abs(found - float(exact)) <= len(values) * largest * 2.0**-30 + abs(float(exact)) * 2.0**-23
