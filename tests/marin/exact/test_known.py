"""The pinned answers: the reference's, this compiler's, and those of several devices; and what a wrong one does."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from marin.errors import Unsupported
from marin.exact import compiled, known, reference
from marin.exact.integers import Products
from marin.exact.program import Program
from marin.process.cache import compilation_cache
from marin.verify import diagnosis

SHARDED = """
import json, sys
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from marin.exact import known
case = known.cases()["step"]
found = {}
ways = {
    "one": None,
    "data": (P(), P(), P("d"), P("d")),
    "fsdp": (P(None, "d"), P("d"), P("d"), P("d")),
    "tensor": (P(None, None, "d"), P(None, "d"), P(), P()),
}
for name, spec in ways.items():
    mesh = Mesh(np.array(jax.devices()), ("d",))
    given = case.arguments if spec is None else [jax.device_put(x, NamedSharding(mesh, s)) for x, s in zip(case.arguments, spec)]
    found[name] = known.digest(jax.tree.leaves(case.made().jitted()(*given)))
json.dump([len(jax.devices()), found], sys.stdout)
"""


def test_the_reference_gives_the_pinned_answers() -> None:
    assert known.expected() == known.ANSWERS


def test_this_compiler_gives_the_pinned_answers() -> None:
    known.check()


def test_every_operation_has_a_known_answer() -> None:
    asked = {name for case in known.cases().values() for name in case.made().program.names()}
    assert asked == compiled.OPERATIONS


@pytest.mark.parametrize("products", ["float64", "int8", pytest.param("bfloat16", marks=pytest.mark.determinism)])
def test_every_way_to_multiply_gives_them(products: Products) -> None:
    found = known.answers(products)
    assert {"contractions", "long contractions", "step"} <= found.keys()
    assert known.differing(products) == []


def test_doctor_executes_them_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert diagnosis._inexact() == ()
    monkeypatch.setenv("JAX_PLATFORMS", "none such")
    assert diagnosis._inexact() == ("all of it",)


def test_devices_and_shardings_give_the_pinned_answer() -> None:
    flags = {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(compilation_cache()),
    }
    done = subprocess.run(
        [sys.executable, "-c", SHARDED], capture_output=True, text=True, env={**os.environ, **flags}, check=True
    )
    devices, found = json.loads(done.stdout)
    assert devices == 4
    assert found == dict.fromkeys(("one", "data", "fsdp", "tensor"), known.ANSWERS["step"])


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
