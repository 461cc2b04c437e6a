"""What is recorded about the machine: enough to explain other bits, nothing that names it."""

from __future__ import annotations

import getpass
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ledger import canonical_bytes
from marin.process import arithmetic
from marin.provenance import environment
from marin.provenance.processor import X86_64_V3, parse_cpuinfo
from marin.recipe.schema import Execution, from_mapping

PROJECT = Path(__file__).resolve().parents[3]
HASWELL = (
    "processor\t: 0\nmodel name\t: Intel Core Processor (Haswell)\nflags\t\t: fpu sse2 " + " ".join(X86_64_V3) + "\n\n"
    "processor\t: 1\nmodel name\t: another\nflags\t\t: fpu\n"
)


def test_the_first_processor_is_read() -> None:
    cpu = parse_cpuinfo(HASWELL, "x86_64")
    assert (cpu.model, cpu.is_x86_64_v3, cpu.missing_for_v3) == ("Intel Core Processor (Haswell)", True, ())


@pytest.mark.parametrize("missing", X86_64_V3)
def test_each_missing_feature_is_named(missing: str) -> None:
    cpu = parse_cpuinfo(HASWELL.replace(f" {missing} ", " ").replace(f" {missing}\n", "\n"), "x86_64")
    assert cpu.missing_for_v3 == (missing,)
    assert not cpu.is_x86_64_v3


def test_another_architecture_is_not_v3_whatever_it_says() -> None:
    assert not parse_cpuinfo(HASWELL.replace("flags", "Features"), "aarch64").is_x86_64_v3
    assert parse_cpuinfo("", "riscv64").features == ()


def test_only_settings_that_touch_arithmetic_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        os,
        "environ",
        {
            "XLA_FLAGS": "--a",
            "NPROC": "2",
            "JAX_ENABLE_X64": "1",
            "HOME": "/home/somebody",
            "AWS_SECRET_ACCESS_KEY": "s",
            "JAX_COMPILATION_CACHE_DIR": "/home/somebody/cache",
            "WANDB_API_KEY": "k",
            "OMP_NUM_THREADS": "1",
        },
    )
    assert environment.settings() == {"XLA_FLAGS": "--a", "NPROC": "2", "JAX_ENABLE_X64": "1", "OMP_NUM_THREADS": "1"}


def test_the_settings_of_steps_are_told_whichever_process_tells_them(monkeypatch: pytest.MonkeyPatch) -> None:
    in_force = arithmetic.settings(from_mapping({}, where="test").arithmetic, Execution(), {})
    monkeypatch.setattr(os, "environ", {"OMP_NUM_THREADS": "1"})
    outside = environment.describe("sha256:" + "0" * 64, in_force)["settings"]
    monkeypatch.setattr(os, "environ", {"OMP_NUM_THREADS": "1", **in_force})
    assert environment.describe("sha256:" + "0" * 64, in_force)["settings"] == outside
    assert outside["JAX_DEFAULT_MATMUL_PRECISION"] == "highest"


def test_the_description_can_be_an_event_and_names_neither_machine_nor_user() -> None:
    described = environment.describe("sha256:" + "0" * 64)
    assert len(canonical_bytes(described)) < 20_000
    assert described["versions"]["jax"] and described["versions"]["marin-levanter"]
    assert described["cores"]["available"] >= 1
    text = json.dumps(described)
    assert f'"{os.uname().nodename}"' not in text
    assert str(Path.home()) not in text
    assert f'"{getpass.getuser()}"' not in text


def test_describing_the_machine_imports_nothing_heavy() -> None:
    code = (
        "import sys; from marin.provenance import environment; environment.describe('x'); print(sorted(m for m in "
        "('jax', 'numpy', 'levanter', 'ray', 'mlflow') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
