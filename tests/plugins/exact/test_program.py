"""Where two programs differ first, of which one is bytes that anybody may have written."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ledger import canonical_bytes, digest_bytes
from marin.plugins.exact.compiled import exact
from marin.plugins.exact.program import Program, first_difference

ROWS = np.arange(6, dtype=np.float32).reshape(2, 3)


def program(factor: float = 2.0, *, turned: bool = False, within: str = "exp") -> Program:
    def function(x: jax.Array) -> jax.Array:
        total, _ = jax.lax.scan(lambda c, row: (c + getattr(jnp, within)(row), None), x[0], x)
        return jnp.sum((total - x if turned else total + x) * factor)

    return exact(function, ROWS).program


def test_the_plain_form_is_what_is_digested() -> None:
    assert digest_bytes(canonical_bytes(program().plain())) == program().digest


@pytest.mark.parametrize(
    ("recorded", "said"),
    [
        (
            program(within="log"),
            r"^scan, operation \d+: first in operation 0: recorded log\(.*, here exp\(.*test_program\.py",
        ),
        (program(turned=True), r"^first in operation \d+: recorded sub\(.*\) -> float32\[2, 3\], here add\("),
        (program(3.0), "^only the constants differ$"),
    ],
    ids=("in a loop", "outside", "a constant"),
)
def test_the_first_operation_that_differs_is_named(recorded: Program, said: str) -> None:
    assert re.search(said, first_difference(canonical_bytes(recorded.plain()), program()))


@pytest.mark.parametrize(
    "operations", [None, [], [None], [["add"]], [["add", [9], [9], {}, []]], [[{}, {}, {}, {}, {}]] * 3]
)
def test_what_is_no_program_is_said(operations: object) -> None:
    plain = program().plain() | {"operations": operations}
    assert first_difference(canonical_bytes(plain), program())
    assert first_difference(canonical_bytes(operations), program()) == "the recorded one is no program"
    assert first_difference(b"{", program()) == "the recorded one is no program"


def test_operations_that_are_missing_or_too_many_are_named() -> None:
    plain = program().plain()
    fewer, more = (
        plain | {"operations": ops}
        for ops in (plain["operations"][:-1], [*plain["operations"], plain["operations"][0]])
    )
    assert "recorded none, here" in first_difference(canonical_bytes(fewer), program())
    assert first_difference(canonical_bytes(more), program()).endswith("here none")
