"""The pinned answers: the reference's, this compiler's, and those of several devices; and what a wrong one does."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from marin.errors import Unsupported
from marin.plugins.exact import compiled, known, reference
from marin.plugins.exact.integers import Products
from marin.plugins.exact.program import Program
from marin.process.cache import compilation_cache
from marin.verify import diagnosis

SHARDED = """
import json, sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from marin.plugins.exact import known, reference

def extremes(x):
    return [jnp.max(x, 0), jnp.max(x, 1), jnp.max(x), jnp.min(x), jnp.argmax(x, 0), jnp.sum(x, 0), x @ x.T, jax.nn.softmax(x)]

def laid(made, arguments, spec):
    given = arguments if spec is None else [jax.device_put(x, NamedSharding(mesh, s)) for x, s in zip(arguments, spec)]
    return known.digest(jax.tree.leaves(made.jitted()(*given)))

mesh = Mesh(np.array(jax.devices()), ("d",))
case = known.cases()["step"]
ways = {
    "one": None,
    "data": (P(), P(), P("d"), P("d")),
    "fsdp": (P(None, "d"), P("d"), P("d"), P("d")),
    "tensor": (P(None, None, "d"), P(None, "d"), P(), P()),
}
found = {name: laid(case.made(), case.arguments, spec) for name, spec in ways.items()}
hard = known.Case(extremes, (known.spread(20, 8, 32),))
told = known.digest(reference.run(hard.made().program, hard.arguments))
others = [laid(hard.made(), hard.arguments, spec) == told for spec in (None, (P("d"),), (P(None, "d"),))]
json.dump([len(jax.devices()), found, others], sys.stdout)
"""


def test_the_reference_gives_the_pinned_answers() -> None:
    assert known.expected() == known.ANSWERS


def test_this_compiler_gives_the_pinned_answers() -> None:
    known.check()


def test_every_operation_has_a_known_answer() -> None:
    asked = {name for case in known.cases().values() for name in case.made().program.names()}
    assert asked == compiled.OPERATIONS


@pytest.mark.long
@pytest.mark.parametrize("products", ["float64", "int8", pytest.param("bfloat16", marks=pytest.mark.determinism)])
def test_every_way_to_multiply_gives_them(products: Products) -> None:
    found = known.answers(products)
    assert {"contractions", "long contractions", "step"} <= found.keys()
    assert known.differing(products) == []


@pytest.mark.long
def test_doctor_executes_them_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert diagnosis.inexact_programs() == ()
    monkeypatch.setenv("JAX_PLATFORMS", "none such")
    assert diagnosis.inexact_programs() == ("all of it",)


@pytest.mark.long
def test_devices_and_shardings_give_the_pinned_answer() -> None:
    """And of numbers that are hard, NaN and infinities among them, the reference's."""
    flags = {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(compilation_cache()),
    }
    done = subprocess.run(
        [sys.executable, "-c", SHARDED], capture_output=True, text=True, env={**os.environ, **flags}, check=True
    )
    devices, found, others = json.loads(done.stdout)
    assert devices == 4
    assert found == dict.fromkeys(("one", "data", "fsdp", "tensor"), known.ANSWERS["step"])
    assert others == [True, True, True]


def test_another_answer_is_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "answers", lambda products: known.ANSWERS | {"sums": "sha256:" + "0" * 64})
    with pytest.raises(Unsupported, match="others in sums"):
        known.check()


def test_one_flipped_bit_changes_the_answer() -> None:
    case = known.cases()["contractions"]
    program = case.made().program
    changed = case.arguments[0].copy()
    changed.view(np.uint32)[5, 7] ^= 1 << 20
    assert known.digest(reference.run(program, (changed, case.arguments[1]))) != known.ANSWERS["contractions"]


def test_a_program_is_named_by_what_it_computes() -> None:
    def made() -> Program:
        return known.cases()["step"].made().program

    assert made().digest == made().digest
    assert len({case.made().program.digest for case in known.cases().values()}) == len(known.cases())
    assert {"dot", "sum", "scan", "scatter_add"} <= made().names()
