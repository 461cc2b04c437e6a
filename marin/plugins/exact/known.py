"""Known answers: does this machine compute the bits of docs/exact.md?

:func:`answers` executes every group of operations on numbers that integers made (rounding ties, tiny, huge, not finite)
and digests what comes out. :data:`ANSWERS` pins the digests. They were computed by ``reference``, in which no compiler
takes part, so they are about no version and no processor: a machine that gives others does not honour the profile.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from marin.errors import Unsupported
from marin.plugins.exact import integers, reference
from marin.plugins.exact.compiled import Exact, exact
from marin.plugins.exact.integers import Products

ANSWERS = {
    "elementwise": "sha256:8a57b25fe9ea008f5fc2c24bd8c5317eb283e57054ee41028c45c00c9c93dea3",
    "functions": "sha256:a1b9655d9b6b0a653b070ea106db11e10096c8c4ff8bbb7648542ab157a2d51d",
    "sums": "sha256:980099eb5283e4ac4672c994fb00392f8dc9b78433e4dfb11ac8ae55e6b2e0ca",
    "contractions": "sha256:4c5237349667cce0a191c647d5a423e29f86e04e5920dd93c809d665515851a2",
    "long contractions": "sha256:20e4d0731a0cf9f626efcd2bfa0145ceed2044e57a8b52e9fad54306560784a5",
    "moves": "sha256:c8b18aff62eb0898db5e0e5e5b9af459fd2ca16c3f9d0fae17c0020d1ce71f60",
    "conversions": "sha256:7592020d3be1ff405ab5595b83831b1d58ec8afbc3690a67b3ab5b8cf650adba",
    "random": "sha256:4baa7d8457da718fafd2bbfcb4f97b23de9db9db2d362d64d736411c648043e9",
    "step": "sha256:c45db1e6709ef10a66e7d8fb3586172fac29a6304dafd444ef6980b8147a29e8",
}
"""Group of operations -> digest of what it gives."""
SIZE, LONG = 1536, 2 * integers.WORTH_BYTES


@dataclass(frozen=True)
class Case:
    """A function and what it is executed on."""

    function: Callable[..., object]
    arguments: tuple[np.ndarray, ...]

    def made(self, products: Products = "chosen") -> Exact:
        """The function, exact."""
        return exact(self.function, *self.arguments, products=products)


def numbers(seed: int, *shape: int) -> np.ndarray:
    """float32 from -1 to 1 that need rounding, from integer arithmetic alone."""
    index = np.arange(int(np.prod(shape)), dtype=np.uint64) + np.uint64(seed << 32)
    mixed = (index * np.uint64(0x9E3779B97F4A7C15)) ^ (index << np.uint64(29))
    mixed = (mixed * np.uint64(0xBF58476D1CE4E5B9)) >> np.uint64(40)
    return (mixed.astype(np.float64) / 2**23 - 1.0).astype(np.float32).reshape(shape)


def spread(seed: int, *shape: int) -> np.ndarray:
    """float32 of all magnitudes and both signs, every 16th from a list of edges."""
    size = int(np.prod(shape))
    words = (np.arange(size, dtype=np.uint64) + np.uint64(seed << 32)) * np.uint64(0x9E3779B97F4A7C15)
    found = (words >> np.uint64(32)).astype(np.uint32).view(np.float32).copy()
    found[np.isnan(found)] = 1.5
    edges = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        np.inf,
        -np.inf,
        np.nan,
        1e-45,
        -1e-40,
        2.0**-126,
        2.0**-125,
        3.4028235e38,
        88.7,
        -87.3,
    ]
    with np.errstate(over="ignore"):
        found[::16] = np.resize(np.asarray(edges, np.float32), found[::16].shape)
    return found.reshape(shape)


def _elementwise(a: jax.Array, b: jax.Array) -> Sequence[jax.Array]:
    least = jnp.minimum(jnp.abs(a), jnp.abs(b))
    return [a * b + a, a - b * b, a / b, jnp.sqrt(jnp.abs(a)), lax.rsqrt(jnp.abs(b)), jnp.maximum(a, -a), least]


def _functions(a: jax.Array, x: jax.Array) -> Sequence[jax.Array]:
    every = (jnp.exp, lax.log, lax.logistic, lax.tanh, lax.erf)
    near = (jnp.sin, jnp.cos, lax.erf_inv)
    return [
        *(f(a) for f in every),
        *(f(x) for f in (*every, *near)),
        lax.pow(jnp.abs(x), 3 * x),
        jnp.sin(900 * x),
        lax.log1p(a),
        lax.log1p(x),
    ]


def _sums(a: jax.Array, x: jax.Array) -> Sequence[jax.Array]:
    places = jnp.asarray(np.arange(48) * 5 % 7, jnp.int32)
    return [
        jnp.sum(x, axis=1),
        jnp.sum(x),
        jnp.sum(a * x, axis=0),
        jnp.zeros((7, 32)).at[places].add(x),
        jnp.max(x, axis=0),
    ]


def _contractions(a: jax.Array, b: jax.Array) -> Sequence[jax.Array]:
    batched = jnp.einsum("bij,bkj->bik", a.reshape(4, 12, 32), b.reshape(4, 12, 32))
    return [a @ b.T, lax.dot_general(a, b, (((0,), (0,)), ((), ()))), (a * 1e-20) @ (b * 1e25).T, batched]


def _long(a: jax.Array, b: jax.Array, lying: jax.Array) -> Sequence[jax.Array]:
    """Sums long enough for products of bytes, with what is summed first or last in each factor, and rows that are not
    finite."""
    return [a.T @ b, lying @ a, lying @ lying.T, b.T @ lying.T]


def _moves(x: jax.Array, whole: jax.Array, places: jax.Array) -> Sequence[object]:
    """What moves, compares, counts and goes round."""
    few = places & 3
    turned = [jnp.flip(x, 1), jnp.concatenate([x[:, :2], x], 1), x[jnp.clip(places, 0, 7)]]
    padded = lax.pad(x, jnp.float32(7), [(1, -1, 1), (-2, 3, 0)])
    parts = [lax.dynamic_slice(x, (few[1], few[2]), (2, 3)), lax.dynamic_update_slice(x, x[:2, :2], (few[2], few[1]))]
    set_ = jnp.zeros((16, 6)).at[jnp.arange(8) * 2].set(x, unique_indices=True)
    bits = [whole & 21, whole | 8, whole ^ 5, ~whole, whole << 3, lax.rem(whole, places), jnp.cumsum(whole)]
    shifted = [lax.shift_right_logical(whole, few + 30), lax.shift_right_arithmetic(whole, few)]
    asked = [x == 1, x != 1, x <= 0, x >= 0, jnp.isfinite(x), jnp.any(x > 2, 0), jnp.all(x > -9, 1), jnp.argmax(x, 1)]
    rounded = [jnp.sign(x), jnp.ceil(x), jnp.min(x, 0)]
    branch = [lax.switch(few[at], [lambda x: x + 1, lambda x: x * 3, lambda x: -x, jnp.abs], x) for at in range(2)]
    loop = lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1] * 1.1), (few[0], x))
    back, rows = lax.scan(lambda c, row: (c + row, c * row), x[0], x, reverse=True)
    return [*turned, padded, *parts, set_, *bits, *shifted, *asked, *rounded, *branch, *loop, back, rows]


def _conversions(a: jax.Array) -> Sequence[jax.Array]:
    whole = [a.astype(jnp.int32), a.astype(jnp.uint32), lax.bitcast_convert_type(a, jnp.int32)]
    return [*whole, *(one.astype(jnp.float32) for one in whole), jnp.round(a), jnp.floor(a), a > 1]


def _random(seed: jax.Array) -> Sequence[jax.Array]:
    key = jax.random.fold_in(jax.random.PRNGKey(seed), 11)
    first, second = jax.random.split(key)
    return [
        jax.random.bits(first, (5, 7)),
        jax.random.truncated_normal(second, -3.0, 3.0, (64,)),
        jax.random.normal(first, (64,)),
    ]


def _step(w: jax.Array, v: jax.Array, x: jax.Array, y: jax.Array) -> Sequence[jax.Array]:
    """A train step of two layers with softmax and Adam's quotient, differentiated."""

    def loss(w: jax.Array, v: jax.Array) -> jax.Array:
        def layer(h: jax.Array, own: jax.Array) -> tuple[jax.Array, None]:
            h = h * lax.rsqrt(jnp.mean(h * h, axis=-1, keepdims=True) + 1e-5)
            return h + jax.nn.silu(h @ own), None

        h, _ = lax.scan(layer, v[x], w)
        return -jnp.sum(jnp.take_along_axis(jax.nn.log_softmax(h @ v.T), y[:, None], axis=1))

    value, (dw, dv) = jax.value_and_grad(loss, (0, 1))(w, v)
    norm = jnp.sqrt(jnp.sum(dw * dw) + jnp.sum(dv * dv))
    return [value, norm, *(p - 0.01 * (g / norm) / (jnp.abs(g / norm) + 1e-8) for p, g in ((w, dw), (v, dv)))]


def cases() -> dict[str, Case]:
    """What is executed, by the name of the group."""
    places = (np.arange(24) * 7 % 16).astype(np.int32)
    a, b, lying = numbers(12, LONG, 20), numbers(13, LONG, 12), numbers(14, 9, LONG)
    a[7, 3], b[5, 2], lying[4] = np.inf, np.nan, np.float32(32639 / 32768)
    whole = (numbers(15, 8) * 2.0**30).astype(np.int32)
    return {
        "elementwise": Case(_elementwise, (spread(1, SIZE), spread(2, SIZE))),
        "functions": Case(_functions, (spread(3, SIZE), numbers(4, SIZE))),
        "sums": Case(_sums, (numbers(5, 48, 32), numbers(6, 48, 32))),
        "contractions": Case(_contractions, (numbers(7, 48, 32), numbers(8, 48, 32))),
        "long contractions": Case(_long, (a, b, lying)),
        "moves": Case(_moves, (spread(16, 8, 6), whole, np.asarray([1, 0, 3, 5, 9, -2, 7, 4], np.int32))),
        "conversions": Case(_conversions, (spread(9, SIZE),)),
        "random": Case(_random, (np.asarray(2463, np.int32),)),
        "step": Case(_step, (numbers(10, 2, 16, 16), numbers(11, 16, 16), places, (places + 3) % 16)),
    }


def digest(outputs: Sequence[object]) -> str:
    """``sha256:`` over the bytes of all outputs, in order."""
    hasher = hashlib.sha256()
    for one in outputs:
        array = np.asarray(one)
        hasher.update(np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
    return "sha256:" + hasher.hexdigest()


def answers(products: Products = "chosen") -> dict[str, str]:
    """What this machine's compiler gives, by group; ``products``: of those with contractions alone, by that way."""
    made = {name: (case, case.made(products)) for name, case in cases().items()}
    return {
        name: digest(jax.tree.leaves(one.jitted()(*case.arguments)))
        for name, (case, one) in made.items()
        if products == "chosen" or "dot" in one.program.names()
    }


def expected() -> dict[str, str]:
    """The same answers by the reference, slowly; :data:`ANSWERS` was made so."""
    return {name: digest(reference.run(case.made().program, case.arguments)) for name, case in cases().items()}


def differing(products: Products = "chosen") -> list[str]:
    """Groups of operations in which this machine gives other bits than docs/exact.md."""
    return [name for name, found in answers(products).items() if found != ANSWERS[name]]


def main() -> None:
    """Print a JSON list of the groups that came out otherwise: `python -m marin.plugins.exact.known`, for a process of its
    own."""
    json.dump(differing(), sys.stdout)


def check() -> None:
    """Refuse to go on where a known answer does not come out.

    Raises:
        Unsupported: this machine, or its compiler, gives other bits.
    """
    wrong = differing()
    if wrong:
        raise Unsupported(
            "this machine does not compute the bits of docs/exact.md",
            where="known-answer test of exact",
            expected="the pinned answers",
            found=f"others in {', '.join(wrong)}",
            cure="another compiler may; please report this one",
        )


if __name__ == "__main__":
    main()
