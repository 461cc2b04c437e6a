"""The contract's settings: what is put in force, what contradicts it, which machine is refused. No jax in here."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest

from marin.errors import MarinError, Unsupported, UsageError
from marin.process.arithmetic import (
    APPLIED,
    BACKEND_FLAG,
    DEVICE_COUNT_FLAG,
    IEEE_DIVISION,
    apply,
    check,
    check_device,
    in_force,
    settings,
    unsupported,
    xla_flags,
)
from marin.provenance.processor import X86_64_V3, Processor, parse_cpuinfo
from marin.recipe.arithmetic import REQUIRED_FLAGS
from marin.recipe.schema import Arithmetic, Execution, Recipe, from_mapping

CONTRACT = Arithmetic()
pytestmark = pytest.mark.skipif(
    unsupported(CONTRACT) is not None, reason=f"this machine is none of the contract: {unsupported(CONTRACT)}"
)


def applied(environ: dict[str, str], devices: int = 1) -> dict[str, str]:
    apply(CONTRACT, Execution(devices=devices), environ)
    return environ


def test_every_flag_of_the_recipe_is_in_the_environment() -> None:
    environ = applied({}, devices=4)
    assert environ["XLA_FLAGS"].split()[: len(CONTRACT.xla_flags)] == list(CONTRACT.xla_flags)
    assert f"{DEVICE_COUNT_FLAG}=4" in environ["XLA_FLAGS"].split()
    assert environ["NPROC"] == str(CONTRACT.threads) and environ["JAX_PLATFORMS"] == "cpu"
    assert in_force(CONTRACT, environ) and not in_force(CONTRACT, {})


def test_the_flags_without_which_processors_disagree_are_in_the_default() -> None:
    assert {
        "--xla_cpu_enable_platform_dependent_math=false",
        "--xla_cpu_max_isa=AVX2",
        "--xla_disable_hlo_passes=transpose-folding",
    } <= set(xla_flags(CONTRACT, Execution()).split())


CPUINFO = "processor\t: 0\nvendor_id\t: {}\ncpu family\t: {}\nmodel\t\t: {}\nmodel name\t: any\n\nprocessor\t: 1\nmodel\t\t: 94\n"


@pytest.mark.parametrize(
    ("vendor", "family", "model", "expected"),
    [
        ("GenuineIntel", 6, 94, True),
        ("GenuineIntel", 6, 158, True),
        ("GenuineIntel", 6, 85, False),
        ("GenuineIntel", 6, 60, False),
        ("AuthenticAMD", 6, 94, False),
        ("GenuineIntel", 15, 94, False),
    ],
)
def test_a_skylake_is_known_by_its_numbers(vendor: str, family: int, model: int, expected: bool) -> None:
    assert parse_cpuinfo(CPUINFO.format(vendor, family, model), "x86_64").is_skylake is expected
    assert not parse_cpuinfo("Features : asimd\n", "aarch64").is_skylake


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("XLA_FLAGS", "--xla_cpu_enable_platform_dependent_math=true"),
        ("XLA_FLAGS", "--xla_cpu_max_isa=AVX512"),
        ("XLA_FLAGS", "--xla_cpu_enable_fast_math=true"),
        ("NPROC", "7"),
        ("JAX_PLATFORMS", "cuda"),
        ("JAX_ENABLE_X64", "1"),
        ("JAX_DEFAULT_MATMUL_PRECISION", "bfloat16"),
        ("JAX_DEFAULT_PRNG_IMPL", "rbg"),
        ("JAX_THREEFRY_PARTITIONABLE", "0"),
        ("JAX_DISABLE_JIT", "1"),
        ("JAX_NUMPY_DTYPE_PROMOTION", "strict"),
        ("JAX_DISABLE_MOST_OPTIMIZATIONS", "true"),
        ("JAX_OPTIMIZATION_LEVEL", "O0"),
        ("JAX_RANDOM_SEED_OFFSET", "1"),
        ("JAX_SOFTMAX_CUSTOM_JVP", "true"),
        ("JAX_HIGH_DYNAMIC_RANGE_GUMBEL", "1"),
        ("EAGER_CONSTANT_FOLDING", "1"),
        ("JAX_ENABLE_CUSTOM_PRNG", "1"),
        ("JAX_ERROR_CHECKING_BEHAVIOR_OOB", "raise"),
        ("JAX_LEGACY_PRNG_KEY", "error"),
    ],
)
def test_a_contradicting_setting_is_refused_by_name_and_left_alone(name: str, value: str) -> None:
    environ = {name: value}
    message = rf"contradicts the arithmetic contract: environment variable {name}: .*found {value}; unset {name}"
    with pytest.raises(MarinError, match=message) as raised:
        applied(environ)
    lifted = any(flag.partition("=")[0] in value for flag in CONTRACT.xla_flags)
    assert type(raised.value) is (Unsupported if lifted else UsageError)
    assert environ == {name: value}
    with pytest.raises(MarinError, match=message):
        check(Recipe(arithmetic=CONTRACT), Execution(), environ)
    check(Recipe(arithmetic=CONTRACT), Execution(runner="ray"), environ)  # there the settings of the workers count


@pytest.mark.parametrize(
    "environ",
    [
        {"XLA_FLAGS": "--xla_cpu_max_isa=AVX2"},
        {"XLA_FLAGS": ""},
        {"JAX_PLATFORMS": "CPU"},
        {"NPROC": "2", "HOME": "/h"},
        {"JAX_ENABLE_X64": "False", "JAX_THREEFRY_PARTITIONABLE": "on"},
        {"JAX_SOFTMAX_CUSTOM_JVP": "off", "JAX_RANDOM_SEED_OFFSET": "0"},
    ],
)
def test_an_agreeing_setting_is_no_contradiction(environ: dict[str, str]) -> None:
    applied(environ)
    assert in_force(CONTRACT, environ)


def test_of_many_flags_the_contrary_one_is_named() -> None:
    given = "--xla_cpu_max_isa=AVX2 --xla_cpu_enable_fast_math=true"
    with pytest.raises(
        UsageError, match=r"environment variable XLA_FLAGS: .*found --xla_cpu_enable_fast_math=true; unset"
    ):
        applied({"XLA_FLAGS": given})


def test_a_child_takes_what_its_parent_put_in_force_with_as_many_devices() -> None:
    parent = applied({}, devices=2)
    before = dict(parent)
    applied(parent, devices=1)
    assert parent == before
    applied(parent, devices=8)
    assert f"{DEVICE_COUNT_FLAG}=8" in parent["XLA_FLAGS"]


def test_a_child_elsewhere_with_another_trace_is_refused() -> None:
    with pytest.raises(UsageError, match="variable JAX_RANDOM_SEED_OFFSET: expected 0, found 1"):
        applied(applied({}) | {"JAX_RANDOM_SEED_OFFSET": "1"})


def test_after_jax_it_is_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", sys.modules[__name__])
    monkeypatch.delenv(APPLIED, raising=False)
    with pytest.raises(UsageError, match="before jax starts"):
        apply(CONTRACT, Execution())


@pytest.mark.parametrize("lacking", X86_64_V3)
def test_a_processor_without_a_needed_feature_is_unsupported(lacking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    old = Processor("x86_64", "any", tuple(set(X86_64_V3) - {lacking}))
    assert unsupported(CONTRACT, replace(old, features=X86_64_V3)) is None
    assert lacking in str(unsupported(CONTRACT, old))
    monkeypatch.setattr("marin.process.arithmetic.processor", lambda: old)
    with pytest.raises(Unsupported, match=lacking) as raised:
        applied({})
    assert raised.value.exit_code == 3


def test_flags_are_read_from_cpuinfo() -> None:
    two = "processor\t: 0\nflags\t\t: fpu avx2 fma\n\nprocessor\t: 1\nflags : other\n"
    assert parse_cpuinfo(two, "x86_64").features == ("avx2", "fma", "fpu")
    assert parse_cpuinfo("Features : asimd\n", "aarch64").features == ("asimd",)
    assert "the processor is aarch64" in str(unsupported(CONTRACT, parse_cpuinfo("Features : asimd\n", "aarch64")))


def test_what_is_execution_is_in_no_recipe() -> None:
    one, eight = (settings(CONTRACT, Execution(devices=n)) for n in (1, 8))
    different: dict[str, Any] = {name: value for name, value in one.items() if eight[name] != value}
    assert list(different) == ["XLA_FLAGS"]
    assert not any("device_count" in flag or "collective" in flag for flag in CONTRACT.xla_flags)


@pytest.mark.parametrize(("profile", "platforms"), [("gpu", "cuda,cpu"), ("tpu", "tpu,cpu")])
def test_an_accelerator_that_is_not_here_is_unsupported(
    profile: Any, platforms: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = from_mapping(
        {"arithmetic": {"profile": profile, "device_kind": "some", "xla_flags": REQUIRED_FLAGS[profile]}}, where="test"
    )
    monkeypatch.setattr("marin.process.arithmetic._accelerator", lambda profile: False)
    with pytest.raises(Unsupported, match=f"no {profile.upper()} is visible here"):
        apply(recipe.arithmetic, Execution(), {})
    monkeypatch.setattr("marin.process.arithmetic._accelerator", lambda profile: True)
    environ: dict[str, str] = {}
    apply(recipe.arithmetic, Execution(), environ)
    assert environ["JAX_PLATFORMS"] == platforms and environ["XLA_FLAGS"].split() == list(REQUIRED_FLAGS[profile])
    check_device(recipe.arithmetic, "some")
    with pytest.raises(Unsupported, match="expected the device kind some, found other"):
        check_device(recipe.arithmetic, "other")


def exact() -> Any:
    return from_mapping(
        {
            "trainer": {"batch_size": 8},
            "arithmetic": {
                "profile": "exact",
                "logical_shards": 1,
                "microbatch_size": 8,
                "reduction": "integer",
                "isa": "any",
                "xla_flags": [],
            },
        },
        where="test",
    ).arithmetic


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, []),
        ({"JAX_PLATFORMS": "cpu"}, []),
        ({"JAX_PLATFORMS": "cuda,cpu"}, [IEEE_DIVISION]),
        ({"JAX_PLATFORMS": "gpu", "XLA_FLAGS": "--xla_gpu_enable_triton_gemm=false"}, [IEEE_DIVISION]),
        ({"JAX_PLATFORMS": "cuda", "XLA_FLAGS": f"{BACKEND_FLAG}=-x=1"}, [f"{BACKEND_FLAG}=-x=1"]),
    ],
)
def test_under_exact_a_gpu_is_told_to_divide_as_ieee_says(environ: dict[str, str], said: list[str]) -> None:
    assert [flag for flag in xla_flags(exact(), Execution(), environ).split() if BACKEND_FLAG in flag] == said
    again = environ | {"XLA_FLAGS": xla_flags(exact(), Execution(), environ)}
    assert xla_flags(exact(), Execution(), again) == again["XLA_FLAGS"], "a child says it once more"


def test_under_exact_what_decides_no_bits_is_the_users() -> None:
    own = {"XLA_FLAGS": "--xla_disable_hlo_passes=algsimp", "JAX_PLATFORMS": "cuda", "NPROC": "1"}
    environ = dict(own)
    apply(exact(), Execution(devices=2), environ)
    assert {name: environ[name] for name in ("JAX_PLATFORMS", "NPROC")} == {"JAX_PLATFORMS": "cuda", "NPROC": "1"}
    assert environ["XLA_FLAGS"].split()[0] == own["XLA_FLAGS"]
    assert environ["XLA_FLAGS"].split()[-1] == "--xla_force_host_platform_device_count=2"
    before = dict(environ)
    apply(exact(), Execution(devices=1), environ)
    assert environ == before, "a second time changes nothing"
    alone: dict[str, str] = {}
    apply(exact(), Execution(), alone)
    assert (alone["JAX_PLATFORMS"], alone["NPROC"]) == ("cpu", "2")
    for wrong in ({"JAX_ENABLE_X64": "1"}, {"JAX_DEFAULT_PRNG_IMPL": "rbg"}):
        with pytest.raises(UsageError, match="contradicts the arithmetic contract"):
            check(Recipe(arithmetic=exact()), Execution(), wrong)
    with pytest.raises(UsageError, match="environment variable JAX_PLATFORMS"):
        check(Recipe(arithmetic=CONTRACT), Execution(), {"JAX_PLATFORMS": "cuda"})


def test_another_architecture_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("marin.process.arithmetic.processor", lambda: parse_cpuinfo("", "aarch64"))
    with pytest.raises(Unsupported, match="the processor is aarch64"):
        apply(CONTRACT, Execution(), {})


NEOVERSE = "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\n\n"
BIG = NEOVERSE.replace("0xd0c", "0xd0d").replace("processor\t: 0", "processor\t: 1")


def arm(kind: str) -> Any:
    return from_mapping(
        {
            "arithmetic": {
                "profile": "arm-cpu",
                "isa": "aarch64",
                "device_kind": kind,
                "xla_flags": REQUIRED_FLAGS["arm-cpu"],
            }
        },
        where="test",
    ).arithmetic


def arm_processor(text: str) -> Processor:
    return parse_cpuinfo(text, "aarch64")


def test_the_model_of_an_arm_processor_is_read() -> None:
    assert arm_processor(NEOVERSE * 4).arm_model == "implementer 0x41 part 0xd0c"
    assert arm_processor(NEOVERSE + BIG).arm_model == "implementer 0x41 part 0xd0c, implementer 0x41 part 0xd0d"
    assert parse_cpuinfo("processor\t: 0\nflags\t\t: fpu avx2 fma\n", "x86_64").arm_model is None


def test_arm_is_a_profile_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    contract = arm("implementer 0x41 part 0xd0c")
    with pytest.raises(
        Unsupported, match=r"expected an ARM processor of the recipe's model.*found the processor is x86_64"
    ):
        apply(contract, Execution(), {})
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    monkeypatch.setattr("marin.process.arithmetic.processor", lambda: arm_processor(BIG))
    with pytest.raises(Unsupported, match="implementer 0x41 part 0xd0d"):
        apply(contract, Execution(), {})
    with pytest.raises(Unsupported, match=r"expected the device kind .* part 0xd0c, found implementer 0x41 part 0xd0d"):
        check_device(contract, "cpu")
    monkeypatch.setattr("marin.process.arithmetic.processor", lambda: arm_processor(NEOVERSE))
    environ: dict[str, str] = {}
    apply(contract, Execution(devices=2), environ)
    check_device(contract, "cpu")
    assert environ["JAX_PLATFORMS"] == "cpu" and environ["NPROC"] == "2"
    assert set(REQUIRED_FLAGS["arm-cpu"]) < set(environ["XLA_FLAGS"].split())
    assert "max_isa" not in environ["XLA_FLAGS"]
    with pytest.raises(UsageError, match="--xla_cpu_enable_platform_dependent_math"):
        check(Recipe(arithmetic=contract), Execution(), {"XLA_FLAGS": "--xla_dump_to=x"})


@pytest.mark.parametrize(
    "change", [{"device_kind": None}, {"isa": "x86-64-v3"}, {"profile": "portable-cpu", "device_kind": None}]
)
def test_an_arm_recipe_without_its_parts_is_refused(change: dict[str, Any]) -> None:
    whole = {"profile": "arm-cpu", "isa": "aarch64", "device_kind": "some", "xla_flags": REQUIRED_FLAGS["arm-cpu"]}
    with pytest.raises((UsageError, Unsupported), match=r"arithmetic\.(device_kind|isa|xla_flags)"):
        from_mapping({"arithmetic": whole | change}, where="test")


@pytest.mark.parametrize("devices", [3, 16])
def test_devices_that_do_not_divide_the_shards_are_refused_before_jax_starts(devices: int) -> None:
    environ: dict[str, str] = {}
    with pytest.raises(
        UsageError, match=rf"logical shards do not divide over the devices: --devices: .*found {devices}"
    ):
        apply(CONTRACT, Execution(devices=devices), environ)
    assert environ == {}
