"""Exact arithmetic in JavaScript: the pinned answers of docs/exact.md, and a train step of a Llama, bit for bit."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ledger import tensor_digest
from marin.plugins.exact import known, reference
from marin.plugins.exact.program import Form, Operation, Program
from tests.plugins.sharing.judge.node import WITH_OR_WITHOUT, evaluated, needs_node

pytestmark = needs_node

RUN = """
async () => {
  const told = JSON.parse(given);
  const bytes = (text) => new Uint8Array(Buffer.from(text, "base64"));
  const kinds = { float32: Float32Array, int32: Int32Array, uint32: Uint32Array, bool: Uint8Array };
  const array = ([dtype, text]) => judge.ruled(new kinds[dtype](bytes(text).buffer));
  const constants = new Map(Object.entries(told.constants).map(([digest, one]) => [digest, array(one)]));
  const found = await judge.execute(told.program, told.inputs.map(array), constants);
  return found.map((one) => Buffer.from(one.buffer, one.byteOffset, one.byteLength).toString("base64"));
}
"""


def coded(value: Any) -> list[str]:
    array = np.ascontiguousarray(value)
    return [str(array.dtype), base64.b64encode(array.tobytes()).decode()]


def executed(program: Program, inputs: list[np.ndarray], options: tuple[str, ...] = ()) -> list[np.ndarray]:
    told = {
        "program": program.plain(),
        "inputs": [
            coded(np.asarray(value, form.dtype)) for value, form in zip(inputs, program.of(program.inputs), strict=True)
        ],
        "constants": {tensor_digest(value): coded(value) for value in program.values()},
    }
    found = evaluated(RUN, given=json.dumps(told), options=options)
    forms = program.of(program.outputs)
    return [
        np.frombuffer(base64.b64decode(text), form.dtype).reshape(form.shape)
        for text, form in zip(found, forms, strict=True)
    ]


@WITH_OR_WITHOUT
@pytest.mark.parametrize("name", known.ANSWERS)
def test_the_pinned_answers_come_out(name: str, options: tuple[str, ...]) -> None:
    case = known.cases()[name]
    assert known.digest(executed(case.made().program, list(case.arguments), options)) == known.ANSWERS[name]


def hard(draw: np.random.Generator, *shape: int) -> np.ndarray:
    """Any float32, the smallest and the largest among them; half of them of ordinary size."""
    ordinary = (draw.standard_normal(shape) * 8).astype(np.float32)
    return np.where(draw.random(shape) < 0.5, ordinary, draw.integers(0, 2**32, shape, np.uint32).view(np.float32))


def program(
    inputs: list[np.ndarray], *steps: tuple[str, tuple[int, ...], tuple[int, ...], dict[str, object]]
) -> Program:
    """Operations on these values: the name, the numbers of what it takes, the shape of what it gives, and its settings."""
    first = len(inputs)
    shapes = [*(one.shape for one in inputs), *(shape for _, _, shape, _ in steps)]
    return Program(
        forms=tuple(Form("float32", shape) for shape in shapes),
        inputs=tuple(range(first)),
        constants=(),
        operations=tuple(
            Operation(name, taken, (first + n,), settings) for n, (name, taken, _, settings) in enumerate(steps)
        ),
        outputs=tuple(range(first, len(shapes))),
    )


def same_as_the_reference(one: Program, given: list[np.ndarray], options: tuple[str, ...]) -> None:
    theirs, ours = executed(one, given, options), reference.run(one, given)
    for number, found, expected in zip(one.outputs, theirs, ours, strict=True):
        assert found.tobytes() == expected.tobytes(), f"value {number}"


LONG = 9001  # more than two blocks of the kernels, and no multiple of four
ROWS, SUMMED = (7, 5), 10_003  # odd, and no multiple of eight
BEYOND = 600_001  # products whose sums of sums would leave 32 bits


@WITH_OR_WITHOUT
def test_long_values_have_the_bits_of_the_reference(options: tuple[str, ...]) -> None:
    """Beyond a block, at the ends that fill no vector, and with every kind of number."""
    draw = np.random.default_rng(5)
    x, y, rows = hard(draw, LONG), hard(draw, LONG), hard(draw, 3, LONG)
    finite = np.nan_to_num(rows, nan=1, posinf=2, neginf=3)
    pairs = [(name, (0, 1), (LONG,), {}) for name in ("add", "sub", "mul", "div")]
    single = [(name, (0,), (LONG,), {}) for name in ("exp", "logistic", "sqrt", "neg")]
    sums = [("sum", (number,), (3,), {"axes": [1]}) for number in (2, 3)]
    moved = [
        ("broadcast", (1,), (3, LONG), {"axes": [1]}),
        ("transpose", (2,), (LONG, 3), {"axes": [1, 0]}),
        ("maximum", (3,), (3,), {"axes": [1]}),
    ]
    given = [x, y, rows, finite]
    same_as_the_reference(program(given, *pairs, *single, *sums, *moved), given, options)


@WITH_OR_WITHOUT
@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        *(
            ("dot", {"summed": [[0], [0]], "batch": [[], []], "bits": bits}, "2 to 15 bits")
            for bits in (1, 16, 2.5, "8")
        ),
        *((name, {}, "an operation that this page does not have") for name in ("largest", "memory")),
    ],
)
def test_what_no_program_of_ours_has_is_not_executed(
    name: str, settings: dict[str, object], said: str, options: tuple[str, ...]
) -> None:
    given = [np.ones(LONG, np.float32)] * 2
    one = program(given, (name, (0, 1), () if name == "dot" else (LONG,), settings))
    with pytest.raises(AssertionError, match=said):
        executed(one, given, options)


@WITH_OR_WITHOUT
def test_long_products_have_the_bits_of_the_reference(options: tuple[str, ...]) -> None:
    """Rows of the largest factors, whose sums leave 32 bits, of any numbers, of what is no number, and of zeros."""
    draw = np.random.default_rng(6)
    first, second = ((draw.standard_normal((rows, SUMMED)) * 8).astype(np.float32) for rows in ROWS)
    first[0], second[0] = 1.5, 1.5
    first[1], second[1] = -1.5, hard(draw, SUMMED)
    first[2] = np.nan_to_num(hard(draw, SUMMED)) * np.float32(2**-60)
    first[3], second[2] = 0, np.nan_to_num(hard(draw, SUMMED))
    same = np.float32([32639, -32639, 3])
    given = [first, second, same]
    products: dict[str, object] = {"summed": [[1], [1]], "batch": [[], []]}
    one = program(
        given,
        ("dot", (0, 1), ROWS, products),
        ("dot", (0, 1), ROWS, products | {"bits": 8}),
        ("broadcast", (2,), (3, BEYOND), {"axes": [0]}),
        ("dot", (5, 5), (3, 3), products),
    )
    same_as_the_reference(replace(one, outputs=(3, 4, 6)), given, options)
