"""What exact arithmetic asks of a device, asked of this one: `python -m bench.gpu.probes [--pairs N]`, one JSON list.

Every probe computes on the first device that jax finds and compares, bit for bit, with NumPy's whole numbers or with
IEEE 754 as this machine's processor has it. ``needed`` says whether profile ``exact`` rests on it; the others tell what to
do where one of these fails.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from marin.plugins.exact import known
from marin.plugins.exact.guarded import MINUS_ZERO, Guarded
from marin.plugins.exact.integers import BFLOAT16_BLOCK, INT8_LONGEST, LARGEST, Products
from marin.plugins.exact.program import LEAST

PAIRS = 2**24
CHUNK = 2**20
WAYS: tuple[Products, ...] = ("chosen", "float64", "int8", "bfloat16")


@dataclass(frozen=True)
class Probe:
    """One question. ``differing`` of ``compared`` results had other bits; ``error``: what the compiler said instead of an
    answer, or which outputs of a group differ from the processor's."""

    name: str
    needed: bool
    differing: int
    compared: int
    seconds: float
    error: str = ""

    @property
    def holds(self) -> bool:
        """Every bit was right."""
        return not self.differing and not self.error


class Others(Exception):
    """Other bits than the known answer's, and where."""


type Question = tuple[str, bool, Callable[[], tuple[int, int]]]


def asked(questions: Iterator[Question]) -> Iterator[Probe]:
    """Ask one after the other; what fails to compile is an answer too."""
    for name, needed, ask in questions:
        started = time.perf_counter()
        try:
            differing, compared = ask()
            error = ""
        except Others as others:
            differing, compared, error = 1, 1, str(others)
        except Exception as failure:  # a compiler's errors are of no one type
            differing, compared, error = 0, 0, f"{type(failure).__name__}: {str(failure)[:300]}"
        yield Probe(name, needed, differing, compared, round(time.perf_counter() - started, 2), error)


def probes(pairs: int = PAIRS) -> Iterator[Probe]:
    """Everything that is asked; ``pairs``: of random numbers for each operation of two numbers."""
    yield from asked(answers())
    yield from asked(accumulations())
    yield from asked(roundings(pairs))


def answers() -> Iterator[Question]:
    """The known answers of every group of operations and of a tiny train step, multiplied in every way. Needed is what a
    train step chooses, by float64 or by bytes."""
    for way in WAYS:
        for name, case in known.cases().items():

            def ask(way: Products = way, name: str = name, case: known.Case = case) -> tuple[int, int]:
                execute = case.made(way).jitted()
                made = jax.tree.leaves(execute(*case.arguments))
                if known.digest(made) != known.ANSWERS[name]:
                    here = jax.tree.leaves(execute(*jax.device_put(case.arguments, jax.devices("cpu")[0])))
                    counts = [_differing(np.asarray(x), np.asarray(y)) for x, y in zip(made, here, strict=True)]
                    raise Others(f"output: numbers that differ: {dict(enumerate(counts))}")
                return 0, 1

            yield f"known answer of {name}, products by {way}", way == "chosen", ask


def accumulations() -> Iterator[Question]:
    """Are sums of products of whole numbers exact: of bytes in int32, of bytes as bfloat16 in float32, of 15 bits in
    float64?"""
    generator = np.random.default_rng(3)
    kinds = (
        ("int8", jnp.int8, jnp.int32, 127, (64, 4096, INT8_LONGEST)),
        ("bfloat16", jnp.bfloat16, jnp.float32, 127, (64, BFLOAT16_BLOCK)),
        ("float64", jnp.float64, jnp.float64, LARGEST, (64, 4096, 65536)),
    )
    for kind, given, sums, largest, lengths in kinds:
        for length in lengths:
            for values in ("random", "largest", "in turn"):

                def ask(
                    given: Any = given,
                    sums: Any = sums,
                    largest: int = largest,
                    length: int = length,
                    values: str = values,
                ) -> tuple[int, int]:
                    shape = (128, length)
                    left, right = (generator.integers(-largest, largest + 1, shape) for _ in range(2))
                    if values != "random":
                        left, right = np.full(shape, largest), np.full(shape, largest)
                    if values == "in turn":
                        left[:, ::2] *= -1
                        left[:, -1] = 1
                    with jax.enable_x64(True):
                        product = jax.jit(
                            lambda x, y: lax.dot_general(x, y, (((1,), (1,)), ((), ())), preferred_element_type=sums)
                        )
                        found = np.asarray(product(jnp.asarray(left).astype(given), jnp.asarray(right).astype(given)))
                    wanted = left.astype(np.float64) @ right.astype(np.float64).T  # exact: below 2**53
                    return int((found.astype(np.float64) != wanted).sum()), wanted.size

                yield f"{kind} sums of {length} products, {values}", kind != "bfloat16", ask


def roundings(pairs: int) -> Iterator[Question]:
    """Single operations on random pairs against IEEE 754, small numbers left to the rule. The first are as exact
    programs write them, the last as nobody should."""
    one = np.float32(1)
    z = MINUS_ZERO

    def programs(to: Guarded) -> list[tuple[str, bool, Callable[..., Any], Callable[..., Any]]]:
        wide = jnp.float64
        return [
            ("a + b", True, to.add, np.add),
            ("a - b", True, to.sub, np.subtract),
            ("a b", True, to.mul, np.multiply),
            ("a b + b, two roundings", True, lambda a, b: to.add(to.mul(a, b), b), lambda a, b: _ruled(a * b) + b),
            ("1 / b", True, lambda a, b: to.reciprocal(b), lambda a, b: one / b),
            ("square root", True, lambda a, b: to.sqrt(jnp.abs(a)), lambda a, b: np.sqrt(np.abs(a))),
            ("nearest whole number", True, lambda a, b: to.nearest(a), lambda a, b: np.rint(a)),
            (
                "int32 to float32",
                True,
                lambda a, b: to.number(to.bits(a)),
                lambda a, b: a.view(np.int32).astype(np.float32),
            ),
            (
                "float64 to float32",
                True,
                lambda a, b: to.rule((a.astype(wide) * b.astype(wide)).astype(jnp.float32)),
                lambda a, b: (a.astype(np.float64) * b.astype(np.float64)).astype(np.float32),
            ),
            (
                "1 / b by float64",
                False,
                lambda a, b: to.rule((wide(1) / b.astype(wide)).astype(jnp.float32)),
                lambda a, b: one / b,
            ),
            ("a / b as it comes", False, lambda a, b: to.rule(a / b), lambda a, b: a / b),
            (
                "rsqrt as it comes",
                False,
                lambda a, b: to.rule(lax.rsqrt(jnp.abs(a))),
                lambda a, b: one / np.sqrt(np.abs(a)),
            ),
            ("a b + b as it comes", False, lambda a, b: to.rule(a * b + b), lambda a, b: a * b + b),
        ]

    for number, (name, needed, _, wanted) in enumerate(programs(Guarded(z))):

        def ask(number: int = number, wanted: Callable[..., Any] = wanted) -> tuple[int, int]:
            compiled = jax.jit(lambda z, a, b: programs(Guarded(z))[number][2](a, b))
            differing = done = 0
            while done < pairs:
                a, b = _pairs(done, min(CHUNK, pairs - done))
                with jax.enable_x64(True):
                    found = np.asarray(compiled(z, a, b))
                with np.errstate(all="ignore"):
                    expected = _ruled(wanted(a, b))
                differing += int((_bits(found) != _bits(expected)).sum())
                done += a.size
            return differing, done

        yield f"{name}, {pairs} pairs", needed, ask


def _pairs(start: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Random numbers that obey the rule: the first half of all magnitudes, the second of like ones."""
    generator = np.random.default_rng([17, start])
    words = generator.integers(0, 2**32, (2, count), dtype=np.uint64).astype(np.uint32)
    words[:, count // 2 :] = (words[:, count // 2 :] & np.uint32(0x83FFFFFF)) | np.uint32(0x3C000000)
    left, right = (_ruled(half.view(np.float32)) for half in words)
    return left, right


def _ruled(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < np.float32(LEAST), np.float32(0), x)


def _differing(x: np.ndarray, y: np.ndarray) -> int:
    floats = x.dtype == np.float32
    return int(((_bits(x) != _bits(y)) if floats else (x != y)).sum())


def _bits(x: np.ndarray) -> np.ndarray:
    """All NaNs are one."""
    bits: np.ndarray = np.where(np.isnan(x), np.float32(np.nan), x).view(np.uint32)
    return bits


def main() -> None:
    """Ask this device and write what it answered."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.probes", description=__doc__)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    options = parser.parse_args()
    device = jax.devices()[0]
    found = []
    for probe in probes(options.pairs):
        sys.stderr.write(f"{'holds' if probe.holds else 'DIFFERS':<8}{probe.name}  {probe.error}\n")
        found.append(asdict(probe) | {"holds": probe.holds})
    json.dump({"platform": device.platform, "device": device.device_kind, "probes": found}, sys.stdout)


if __name__ == "__main__":
    main()
