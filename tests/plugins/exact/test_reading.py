"""What is read of jax: names that a release lacks, and where two programs differ, of which one is bytes that anybody may have
written."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ledger import canonical_bytes, digest_bytes
from marin.errors import UsageError
from marin.plugins.exact import tracing
from marin.plugins.exact.compiled import exact
from marin.plugins.exact.program import Program, first_difference
from marin.plugins.exact.reading import program_of

ROWS = np.arange(6, dtype=np.float32).reshape(2, 3)


def function(x: jax.Array) -> jax.Array:
    """Calls, loops and moves."""
    total, _ = jax.lax.scan(lambda c, row: (c + jax.nn.softmax(row), None), x[0], x)
    return jnp.sum(total * x.T[0, 0])


def test_a_setting_that_this_jax_lacks_is_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = exact(function, ROWS).program.digest
    monkeypatch.setitem(tracing.DECIDED, "of_another_release", True)
    monkeypatch.setitem(tracing.DECIDED, "_of_no_release", 7)
    assert exact(function, ROWS).program.digest == before


def test_without_a_setting_that_decides_dtypes_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "NEEDED", ("enable_x64", "gone"))
    monkeypatch.setitem(tracing.DECIDED, "gone", False)
    with pytest.raises(UsageError, match=f"the setting gone of jax, found none in jax {jax.__version__}"):
        exact(function, ROWS)


@pytest.mark.parametrize(("primitive", "parameter"), [("transpose", "permutation"), ("scan", "jaxpr")])
def test_a_parameter_that_this_jax_lacks_is_refused_with_its_name(primitive: str, parameter: str) -> None:
    closed = jax.make_jaxpr(function)(ROWS)
    equations = [
        one.replace(params={key: value for key, value in one.params.items() if key != parameter})
        if one.primitive.name == primitive
        else one
        for one in closed.jaxpr.eqns
    ]
    with pytest.raises(UsageError, match=f"the parameter '{parameter}' of {primitive}"):
        program_of(closed.replace(jaxpr=closed.jaxpr.replace(eqns=equations)))


def test_what_goes_round_in_a_loop_is_read_as_older_releases_said_it() -> None:
    assert tracing.loop_parts({"num_consts": 2, "num_carry": 3}, list(range(9))) == (2, 3)


def test_without_the_line_of_an_operation_there_is_none_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "private", lambda _: None)
    (equation,) = jax.make_jaxpr(lambda x: x + 1)(ROWS).jaxpr.eqns
    assert tracing.written_at(equation) == ""


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
            r"^scan, operation \d+: first in operation 0: recorded log\(.*, here exp\(.*test_reading\.py",
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
    assert first_difference(canonical_bytes(more), program()).endswith("not here")
