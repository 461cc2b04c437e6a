"""Compiled programs against the reference: every operation, on the values that are hard, and in any composition."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra.numpy import arrays
from jax import lax

from marin.errors import UsageError
from marin.plugins.exact import compiled, functions, integers, known, reference, tracing
from marin.plugins.exact.compiled import exact
from marin.plugins.exact.guarded import MINUS_ZERO
from marin.plugins.exact.program import Factors
from marin.process import arithmetic
from marin.recipe.schema import Execution, Recipe

EDGES = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1.5,
    2.5,
    float("inf"),
    float("-inf"),
    float("nan"),
    1e-45,
    -1e-40,
    2.0**-126,
    2.0**-125,
)
HARD = st.one_of(
    st.floats(width=32), st.sampled_from([float(np.float32(x)) for x in EDGES]), st.floats(-9, 9, width=32)
)
LENGTH = 24
ROWS = arrays(np.float32, (LENGTH,), elements=HARD)


def same(one: Any, other: Any) -> bool:
    return len(one) == len(other) and all(
        np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in zip(one, other, strict=True)
    )


def both(function: Callable[..., Any], *arguments: np.ndarray) -> list[np.ndarray]:
    """What a function gives, after the compiled and the reference's bits were seen to be equal."""
    made = exact(function, *arguments)
    found = [np.asarray(x) for x in jax.tree.leaves(made.jitted()(*arguments))]
    assert same(found, reference.run(made.program, arguments))
    return found


def elementwise(a: jax.Array, b: jax.Array) -> list[jax.Array]:
    to_whole = [a.astype(jnp.int32), a.astype(jnp.uint32), lax.bitcast_convert_type(b, jnp.int32)]
    one = [f(a) for f in (jnp.exp, lax.log, lax.logistic, lax.tanh, lax.erf, lax.erf_inv, jnp.sin, jnp.cos, jnp.sqrt)]
    two = [
        a + b,
        a - b,
        a * b,
        a / b,
        jnp.maximum(a, b),
        jnp.minimum(a, b),
        lax.pow(jnp.abs(a), b),
        lax.nextafter(a, b),
    ]
    three = [
        a * b + a,
        a * b - a * a,
        a / b / b,
        -a,
        jnp.sign(a),
        jnp.round(a),
        jnp.floor(a),
        jnp.ceil(b),
        lax.rsqrt(a),
        a**-3,
    ]
    return [*one, *two, *three, *to_whole, *(x.astype(jnp.float32) for x in to_whole), a < b, a == b, jnp.isfinite(a)]


MADE = exact(elementwise, np.zeros(LENGTH, np.float32), np.zeros(LENGTH, np.float32))
CALL = MADE.jitted()


@given(ROWS, ROWS)
def test_element_by_element_on_hard_values(a: np.ndarray, b: np.ndarray) -> None:
    assert same(CALL(a, b), reference.run(MADE.program, [a, b]))


def rows_and_products(a: jax.Array, b: jax.Array) -> list[jax.Array]:
    x, y = a.reshape(4, 6), b.reshape(6, 4)
    places = jnp.asarray([3, 0, 3, 1], jnp.int32)
    return [
        jnp.sum(a),
        jnp.sum(x, axis=0),
        jnp.sum(x, axis=1),
        x @ y,
        y @ x,
        x @ x.T,
        jnp.zeros((5, 6)).at[places].add(x),
        jnp.max(x, 1),
    ]


REDUCED = exact(rows_and_products, np.zeros(LENGTH, np.float32), np.zeros(LENGTH, np.float32))
REDUCE = REDUCED.jitted()


@given(ROWS, ROWS)
def test_sums_and_contractions_on_hard_values(a: np.ndarray, b: np.ndarray) -> None:
    assert same(REDUCE(a, b), reference.run(REDUCED.program, [a, b]))


def test_a_factor_that_would_need_sixteen_bits_takes_the_next_power_of_two() -> None:
    top = np.float32(32639 / 32768)
    ties = np.asarray(
        [top, np.nextafter(top, np.float32(2)), 0.5 / 32768, 1.5 / 32768, 2.5 / 32768, -0.5 / 32768], np.float32
    )
    for largest in ties[:2]:
        row = np.asarray([[largest, *ties[2:]]], np.float32)
        both(lambda x: x @ x.T, row)
    whole, back = reference.factors(row)
    assert whole.tolist() == [[16320, 0, 1, 1, 0]] and back.tolist() == [2.0**-14]  # ties are to even


CHAIN: dict[str, Callable[[jax.Array], jax.Array]] = {
    "exp": jnp.exp,
    "tanh": jnp.tanh,
    "normal": lambda x: x * lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-5),
    "softmax": lambda x: jax.nn.softmax(x, axis=-1),
    "product": lambda x: x @ x.T @ x,
    "divided": lambda x: x / (1 + jnp.abs(x)) / 3,
    "turned": lambda x: x[::-1] * x - x[:, ::-1],
}


@pytest.mark.long
@settings(max_examples=6)
@given(
    st.lists(st.sampled_from(sorted(CHAIN)), min_size=2, max_size=3),
    arrays(np.float32, (3, 8), elements=st.floats(-4, 4, width=32)),
)
def test_compositions_and_their_gradients(names: list[str], x: np.ndarray) -> None:
    def chain(x: jax.Array) -> jax.Array:
        for name in names:
            x = CHAIN[name](x)
        return jnp.sum(x * x)

    both(jax.value_and_grad(chain), x)


def test_moves_loops_and_branches() -> None:
    def moved(x: jax.Array, n: jax.Array) -> list[Any]:
        count = jnp.cumsum(n)
        loop = lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1] * 1.1), (jnp.int32(0), x))
        branch = lax.switch(n[0], [lambda x: x + 1, lambda x: x * 3, lambda x: -x], x)
        back, rows = lax.scan(lambda c, row: (c + row, c * row), x[0], x, reverse=True)
        taken = jnp.take(x, n, axis=0, mode="fill"), jnp.take(x, n, axis=1, mode="clip"), x[n & 3]
        padded = lax.pad(x, jnp.float32(7), [(1, -1, 1), (-2, 3, 0)])
        parts = lax.dynamic_slice(x, (n[1], n[2]), (2, 3)), lax.dynamic_update_slice(x, x[:2, :2], (n[2], n[1]))
        outside = (
            lax.dynamic_slice(x, (n[0] - 6, n[2]), (2, 3)),
            lax.dynamic_update_slice(x, x[:2, :2], (n[1], n[1] - 9)),
        )
        shifts = n << 3, lax.shift_right_logical(n, n + 30), lax.shift_right_arithmetic(-n, n), n ^ 5, ~n & 3, n | 8
        return [
            count,
            lax.cumsum(n, reverse=True),
            loop,
            branch,
            back,
            rows,
            taken,
            padded,
            parts,
            outside,
            shifts,
            jnp.argmax(x, 1),
            lax.argmax(x, 0, jnp.uint32),
            jnp.any(x > 2, 0),
        ]

    both(moved, known.numbers(1, 4, 6), np.asarray([1, 0, 3, 5], np.int32))


def test_random_bits_are_those_of_jax() -> None:
    def drawn(seed: jax.Array) -> Any:
        key = jax.random.fold_in(jax.random.PRNGKey(seed), 3)
        first, second, _ = jax.random.split(key, 3)
        return (
            jax.random.key_data(first),
            jax.random.bits(second, (7, 5)),
            jax.vmap(lambda k: jax.random.bits(k, (3,)))(jax.random.split(first, 2)),
        )

    seed = np.asarray(77, np.int32)
    with jax.threefry_partitionable(True):
        plain = jax.tree.leaves(jax.jit(drawn)(seed))
        assert same(both(drawn, seed), plain)


@pytest.mark.parametrize("stochastic", [False, True], ids=["nearest", "random"])
@pytest.mark.parametrize("bits", [2, 8, 14])
def test_factors_of_fewer_bits_are_those_of_the_reference(bits: int, stochastic: bool) -> None:
    case = known.cases()["contractions"]
    arguments = [np.where(np.isfinite(x), x, 0) for x in case.arguments]
    arguments[0][3], arguments[0][5, 2] = 0, 1e-40
    key = np.asarray([77, 5], np.uint32)
    made = exact(case.function, *arguments, factors=Factors(bits, stochastic))
    with jax.enable_x64(True):
        found = jax.jit(made.__call__)(MINUS_ZERO, *arguments, key=key)
    assert same(jax.tree.leaves(found), reference.run(made.program, arguments, (77, 5)))
    plain = exact(case.function, *arguments)
    assert plain.program.digest != made.program.digest
    assert exact(case.function, *arguments, factors=Factors()).program.digest == plain.program.digest


def test_random_rounding_has_no_bias_and_differs_from_step_to_step() -> None:
    x, one = np.full((400, 16), 1.0, np.float32), np.ones((16, 1), np.float32)
    x[:, 1:] = 1 / 2048  # a sixteenth of the way to the next whole number
    made = exact(lambda x, one: x @ one, x, one, factors=Factors(8, True))
    first, second = (np.asarray(reference.run(made.program, [x, one], (1, step))[0]) for step in (0, 1))
    assert not np.array_equal(first, second)
    assert abs(first.mean() - (1 + 15 / 2048)) < 0.0012


@pytest.mark.parametrize("sizes", [(3, 8), (8, 3)], ids=["wide", "tall"])
@pytest.mark.parametrize("bytes_", [True, False], ids=["bytes", "float64"])
def test_long_contractions_go_by_bytes_where_a_processor_multiplies_them(
    sizes: tuple[int, int], bytes_: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integers, "multiplies_bytes", lambda: bytes_)
    count = 2 * integers.WORTH_BYTES
    a, b = known.numbers(3, count, sizes[0]), known.numbers(4, count, sizes[1])
    a[7, 1], b[5, 2], b[6] = 1.0, -1.0, 32639 / 32768

    def products(a: jax.Array, b: jax.Array) -> list[jax.Array]:
        halves = (2, count // 2, -1)
        batched = jnp.einsum("hki,hkj->hij", a.reshape(halves), b.reshape(halves))
        two_axes = lax.dot_general(a.reshape(halves), b.reshape(halves), (((0, 1), (0, 1)), ((), ())))
        return [a.T @ b, b.T @ a, batched, two_axes, jnp.einsum("ki,kj->ij", a, b)]

    def lying(a: jax.Array, b: jax.Array, a_last: jax.Array, b_last: jax.Array) -> list[jax.Array]:
        """What is summed lies last in one factor, the other, both: each has its own way by bytes."""
        return [a_last @ b, b_last @ a, a_last @ b_last.T, b_last @ a_last.T, jnp.einsum("ki,jk->ij", a, b_last)]

    for function, arguments in ((products, (a, b)), (lying, (a, b, a.T.copy(), b.T.copy()))):
        text = jax.jit(exact(function, *arguments).__call__).lower(MINUS_ZERO, *arguments).as_text()
        assert ("xi8>" in text) == bytes_
        both(function, *arguments)


def test_a_sum_of_bfloat16_may_be_longer_than_int32_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ones, whose sums are exact in float32 in blocks of any length: 2**12 each, of the high bytes."""
    monkeypatch.setattr(integers, "BFLOAT16_BLOCK", 2**17)
    count = 5 * 2**17
    a, b = np.ones((1, count), np.float32), np.ones((count, 1), np.float32)
    assert exact(lambda a, b: a @ b, a, b, products="bfloat16").jitted()(a, b) == count


@pytest.mark.parametrize("shape", [(3, 2**16 + 5), (2, 2, 2**17 + 3), (3, 2**16)])
@pytest.mark.parametrize("summed", ["ik,jk->ij", "ki,kj->ij"])
def test_a_sum_of_bytes_may_be_longer_than_int32_holds(shape: tuple[int, ...], summed: str) -> None:
    generator = np.random.default_rng(len(shape))
    factors = [generator.normal(size=(*shape[:-2], rows, shape[-1])).astype(np.float32) for rows in (shape[-2], 5)]
    if summed.startswith("k"):
        factors = [np.swapaxes(x, -1, -2) for x in factors]
    left, right, out = summed.replace("->", ",").split(",")

    def product(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.einsum(f"...{left},...{right}->...{out}", a, b)

    ways = [exact(product, *factors, products=way).jitted()(*factors) for way in ("int8", "float64")]
    assert same(*[[found] for found in ways])


def test_the_order_of_what_is_summed_cannot_matter() -> None:
    a, b, order = known.spread(3, 9, 64), known.numbers(4, 64, 7), np.random.default_rng(0).permutation(64)
    a = np.where(np.isfinite(a), a, np.float32(1e30)).astype(np.float32)

    def found(a: jax.Array, b: jax.Array) -> list[jax.Array]:
        return [a @ b, jnp.sum(a, axis=1)]

    plain = both(found, a, b)
    assert same(plain, both(found, a[:, order], b[order]))
    assert same(plain, both(lambda a, b: found(a.T, b.T), np.ascontiguousarray(a.T), np.ascontiguousarray(b.T)))


ONE_EACH = lax.GatherDimensionNumbers(offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,))
ONE_HOT = lax.GatherScatterMode.ONE_HOT


def _ahead(under: Any) -> jax.Array:
    """What a device would compute as it rounds, under either name of the context that asks it to."""
    with under.ensure_compile_time_eval():
        return jnp.exp(jnp.arange(4) / 3)


@pytest.mark.parametrize(
    ("function", "example", "named"),
    [
        (lambda x: jnp.cumsum(x), np.zeros(3, np.float32), "cumsum"),
        (lambda x: jnp.sort(x), np.zeros(3, np.float32), "sort of float32"),
        (lambda x: x * 2, np.zeros(3, np.float16), "float16"),
        (lambda x: lax.digamma(x), np.zeros(3, np.float32), "digamma"),
        (lambda x: x @ x.T, np.zeros((3, 0), np.float32), "dot_general: over nothing"),
        (lambda x: (jax.debug.print("{}", x), x)[1], np.zeros(3, np.float32), "debug.* of float32"),
        (lambda x: x * int(jnp.sum(x)), np.zeros(3, np.float32), "a number that the function asks for"),
        (lambda x: x * np.asarray(_ahead(jax)), np.zeros(4, np.float32), "a number that the function asks for"),
        (lambda x: x * np.asarray(_ahead(jax.core)), np.zeros(4, np.float32), "a number that the function asks for"),
        (lambda x: jnp.zeros(3).at[x].set(1.0), np.zeros(2, np.int32), "scatter: one of several values"),
        (
            lambda x: lax.gather(x, jnp.zeros((2, 1), jnp.int32), ONE_EACH, (1,), mode=ONE_HOT),
            np.zeros(3, np.float32),
            "ONE_HOT",
        ),
    ],
)
def test_what_has_no_exact_form_is_refused_by_name(function: Any, example: np.ndarray, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        exact(function, example)


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: jnp.sum(x, axis=1), (0, 3)),
        (lambda x: x @ np.ones((3, 2), np.float32), (0, 3)),
        (lambda x: jnp.einsum("bij,bjk->bik", x, x), (0, 3, 3)),
        (lambda x: lax.scan(lambda c, row: (c + row, (c, row > c)), jnp.float32(2), x), (0,)),
        (lambda x: jnp.ones(3).at[jnp.zeros(0, jnp.int32)].add(x), (0,)),
    ],
    ids=["sum", "dot", "batches", "scan", "scatter"],
)
def test_where_there_are_no_elements_both_ways_give_none(function: Any, shape: tuple[int, ...]) -> None:
    both(function, np.zeros(shape, np.float32))


def test_what_a_function_computes_ahead_is_part_of_the_program() -> None:
    def turned(x: jax.Array) -> jax.Array:
        with jax.ensure_compile_time_eval():
            frequencies = 1.0 / 10000.0 ** (jnp.arange(0, 32, 2) / 32)
            assert isinstance(frequencies, jax.core.Tracer)
        return x * frequencies

    x = np.linspace(-1, 1, 16, dtype=np.float32)
    program = exact(turned, x).program
    assert "pow" in program.names()
    assert all(value.ndim == 0 or value.dtype != np.float32 for _, value in program.constants)
    both(turned, x)
    ahead: list[bool] = []

    def here(x: jax.Array) -> jax.Array:
        with jax.ensure_compile_time_eval():
            ahead.append(not isinstance(jnp.float32(2) ** 3, jax.core.Tracer))
        return x

    jax.make_jaxpr(here)(x)
    assert ahead == [True], "other readers of functions are left alone"


def test_what_was_traced_before_does_not_matter() -> None:
    """jax keeps what a ``jit`` inside of a function was traced to; elsewhere that has numbers of the device in it."""

    @jax.jit
    def turned(x: jax.Array) -> jax.Array:
        with jax.ensure_compile_time_eval():
            power = jnp.exp(jnp.arange(4) / 3)
        return x * power

    def program() -> str:
        return exact(lambda x: turned(x), np.ones(4, np.float32)).program.digest

    def constants() -> int:
        closed = jax.make_jaxpr(lambda x: turned(x))(np.ones(4, np.float32))
        return str(closed).count("exp")

    first = program()
    assert constants() == 0, "an ordinary reader has the numbers, whatever was read before"
    assert program() == first
    jax.clear_caches()
    assert constants() == 0 and program() == first


def test_two_threads_read_and_compute_ahead_beside_each_other() -> None:
    together, ahead = threading.Barrier(2, timeout=600), []

    def turned(x: jax.Array) -> jax.Array:
        together.wait()
        with jax.ensure_compile_time_eval():
            power = jnp.exp(jnp.arange(4) / 3)
            together.wait()
        ahead.append(not isinstance(power, jax.core.Tracer))
        return x * power

    x = np.ones(4, np.float32)
    with ThreadPoolExecutor(2) as threads:
        read = threads.submit(lambda: exact(turned, x).program)
        traced = threads.submit(lambda: jax.make_jaxpr(turned)(x))
        assert "exp" in read.result().names() and "exp" not in str(traced.result())
    assert sorted(ahead) == [False, True]


def _everywhere(x: jax.Array) -> Any:
    """What jax writes otherwise if it is told so."""
    key = jax.random.PRNGKey(7)
    drawn = jax.random.gumbel(jax.random.fold_in(key, 3), x.shape)
    return jax.grad(lambda x: jnp.sum(jax.nn.softmax(x) * drawn))(x), jax.checkpoint(jnp.sin)(x)


@pytest.mark.parametrize(
    "changed",
    [
        {"random_seed_offset": 1},
        {"use_high_dynamic_range_gumbel": True},
        {"softmax_custom_jvp": True},
        {"use_simplified_jaxpr_constants": True},
        {"eager_constant_folding": True},
        {"default_prng_impl": "rbg"},
        {"enable_custom_prng": True},
        {"threefry_partitionable": False},
        {"use_direct_linearize": False},
        {"numpy_rank_promotion": "raise"},
        {"numpy_dtype_promotion": "strict"},
        {"legacy_prng_key": "error"},
        {"explicit_x64_dtypes": "allow"},
        {"error_checking_behavior_oob": "raise"},
        {"remat3": True},
        {"scan3": True},
        {"disable_jit": True},
        {"enable_x64": True},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_how_jax_is_configured_is_no_part_of_a_program(changed: dict[str, Any]) -> None:
    x = np.linspace(-1, 1, 8, dtype=np.float32)
    here = exact(_everywhere, x).program.digest
    ((name, value),) = changed.items()
    with getattr(jax._src.config, name)(value):
        assert exact(_everywhere, x).program.digest == here


def test_what_is_decided_while_a_function_is_read_is_asked_of_the_environment_too() -> None:
    """Under every other profile jax traces as its variables say."""
    asked = arithmetic.TRACING | arithmetic.settings(Recipe().arithmetic, Execution(), {})
    for name, value in tracing.DECIDED.items():
        variable = getattr(jax._src.config, name).name.upper()
        assert asked.get(variable) == str(int(value) if isinstance(value, bool) else value), variable


def test_what_a_device_computed_is_no_constant_of_a_program() -> None:
    there = jnp.exp(jnp.linspace(0.0, 1.0, 8))
    for value in (there, there[3], jnp.floor(9 * there).astype(jnp.int32), there > 2):
        with pytest.raises(UsageError, match=rf"constant {value.dtype}.*a device computed it"):
            exact(lambda x, value=value: x * value, np.ones(8, np.float32))
    exact(lambda x: x * np.ones(8, np.float32), np.ones(8, np.float32))


def test_both_ways_know_the_same_operations() -> None:
    assert compiled.OPERATIONS == reference.OPERATIONS
    assert set(functions.NAMED) <= compiled.OPERATIONS


@pytest.mark.parametrize("group", ["elementwise", "functions", "step"])
def test_a_gpu_takes_no_root_of_float32(group: str) -> None:
    """Its instruction for that is a unit off (docs/exact.md); lowering for one needs none."""
    case = known.cases()[group]
    with jax.enable_x64(True):
        traced = jax.jit(case.made().__call__).trace(MINUS_ZERO, *case.arguments)
        lines = {
            platform: traced.lower(lowering_platforms=(platform,)).as_text().splitlines()
            for platform in ("cuda", "cpu")
        }
    roots = {platform: [line for line in text if "stablehlo.sqrt" in line] for platform, text in lines.items()}
    assert roots["cuda"] and all(line.endswith(("xf64>", "<f64>")) for line in roots["cuda"])
    assert len(roots["cpu"]) == len(roots["cuda"]) and not any("f64" in line for line in roots["cpu"])
    assert not any("rsqrt" in line for line in (*lines["cuda"], *lines["cpu"]))


def test_logarithms_of_sums_joined_as_a_large_vocabulary_asks() -> None:
    """Levanter's cross entropy by blocks of the vocabulary joins their logarithms of sums, and is differentiated."""

    def joined(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.sum(jnp.logaddexp(a, b))

    def function(a: jax.Array, b: jax.Array) -> Any:
        return jax.value_and_grad(joined, (0, 1))(a, b)

    a, b = known.numbers(21, 64) * 90, known.numbers(22, 64) * 90
    made = exact(function, a, b)
    assert "log1p" in made.program.names()
    found = jax.tree.leaves(made.jitted()(a, b))
    for one, other in zip(found, reference.run(made.program, (a, b)), strict=True):
        assert np.array_equal(np.asarray(one), other)
    assert np.allclose(found[0], np.logaddexp(a.astype(np.float64), b).sum(), rtol=1e-4)
