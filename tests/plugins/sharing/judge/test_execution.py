"""Exact arithmetic in JavaScript: the pinned answers of docs/exact.md, and a train step of a Llama, bit for bit."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest

from ledger import tensor_digest
from marin.plugins.exact import known
from marin.plugins.exact.program import Program
from tests.plugins.sharing.judge.node import evaluated, needs_node

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


def executed(program: Program, inputs: list[np.ndarray]) -> list[np.ndarray]:
    told = {
        "program": program.plain(),
        "inputs": [
            coded(np.asarray(value, form.dtype)) for value, form in zip(inputs, program.of(program.inputs), strict=True)
        ],
        "constants": {tensor_digest(value): coded(value) for value in program.values()},
    }
    found = evaluated(RUN, given=json.dumps(told))
    forms = program.of(program.outputs)
    return [
        np.frombuffer(base64.b64decode(text), form.dtype).reshape(form.shape)
        for text, form in zip(found, forms, strict=True)
    ]


@pytest.mark.parametrize("name", known.ANSWERS)
def test_the_pinned_answers_come_out(name: str) -> None:
    case = known.cases()[name]
    assert known.digest(executed(case.made().program, list(case.arguments))) == known.ANSWERS[name]
