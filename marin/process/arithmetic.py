"""The arithmetic contract's settings, put in force before jax starts, in this one place.

A recipe names a profile. ``portable-cpu`` promises the same bits on any x86-64-v3 processor with any number of cores:
XLA may use no instruction above AVX2, must not pick matrix kernels by the processor it finds
(``--xla_cpu_enable_platform_dependent_math=false``), and splits its work as if for a fixed number of threads
(``NPROC``), because the split decides the order of some sums. How many virtual devices there are is execution and not
part of the contract: the training program gives the same bits for every number of them.

``arm-cpu`` promises less: the same bits on ARM processors of the one model that the recipe names, with any number of
cores or devices, by the same settings but for the ceiling, which XLA has for x86 alone; the compiler makes code for the
model that it finds. It was written from what an emulated ARM showed of an older jaxlib, and has not been executed on a
machine.

``gpu`` and ``tpu`` promise less: repeats on devices of the one kind that the recipe names. On a GPU, operations whose
result depends on the order of threads are refused (``--xla_gpu_deterministic_ops``,
``--xla_gpu_exclude_nondeterministic_ops``), no algorithm is chosen by timing (``--xla_gpu_autotune_level=0``), and
products keep float32 (TF32 off). ``gpu`` was executed on an H100 (bench/RESULTS.md); ``tpu`` was written from the
documentation of XLA and of the vendor, is compiled by its own compiler in tests/tpu, and has not been executed yet.

``exact`` promises the same bits on any device, whatever a compiler does; so of its settings only the generator, the types
and the precision are fixed. ``JAX_PLATFORMS``, ``XLA_FLAGS`` and ``NPROC`` of the user hold: they decide how it is computed
and not what (on a GPU, with its exact division). The known answers, and the reading of the compiled programs, judge
what comes of it.

Variables that change what jax traces (:data:`TRACING`) are refused under every profile.

The settings live in environment variables that jaxlib reads once, when it is loaded. So :func:`apply` refuses to run
after jax was imported, and refuses settings of the user that contradict the contract instead of overriding them.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path

import msgspec

from marin.errors import Unsupported, UsageError
from marin.provenance.plugins import load_plugin
from marin.provenance.processor import X86, Processor, processor
from marin.recipe.arithmetic import profile_plugins
from marin.recipe.schema import CPU_PROFILES, Arithmetic, Execution, Recipe

DEVICE_COUNT_FLAG = "--xla_force_host_platform_device_count"
PATIENCE_FLAGS = (
    "--xla_cpu_collective_call_warn_stuck_timeout_seconds=600",
    "--xla_cpu_collective_call_terminate_timeout_seconds=86400",
)
"""Virtual devices wait for each other. On a busy machine that takes longer than XLA's 40 seconds, after which it ends
the process; how long one waits decides no bits, so this is execution and not part of a recipe."""
BACKEND_FLAG = "--xla_backend_extra_options"
IEEE_DIVISION = f"{BACKEND_FLAG}=-nvptx-prec-divf32=2"
"""XLA has a GPU divide float32 by an instruction that is a unit off in one of eight reciprocals; with this, by one that
is not (bench/RESULTS.md, "On a GPU")."""
TRACING = {
    "JAX_RANDOM_SEED_OFFSET": "0",
    "JAX_ENABLE_CUSTOM_PRNG": "0",
    "JAX_HIGH_DYNAMIC_RANGE_GUMBEL": "0",
    "JAX_SOFTMAX_CUSTOM_JVP": "0",
    "JAX_USE_SIMPLIFIED_JAXPR_CONSTANTS": "0",
    "JAX_USE_DIRECT_LINEARIZE": "1",
    "JAX_SCAN3": "0",
    "JAX_REMAT3": "0",
    "JAX_CUSTOM_VJP3": "0",
    "JAX_CUSTOM_JVP3": "0",
    "JAX_REMAT_BARRIER_NO_COTANGENTS": "0",
    "EAGER_CONSTANT_FOLDING": "0",
    "JAX_NUMPY_RANK_PROMOTION": "allow",
    "JAX_LEGACY_PRNG_KEY": "allow",
    "JAX_EXPLICIT_X64_DTYPES": "warn",
    "JAX_ERROR_CHECKING_BEHAVIOR_NAN": "ignore",
    "JAX_ERROR_CHECKING_BEHAVIOR_DIVIDE": "ignore",
    "JAX_ERROR_CHECKING_BEHAVIOR_OOB": "ignore",
}
"""Variables that change what jax traces, with jax's defaults, which stay in force: one adds to every seed, others write the
derivative of a softmax or what is drawn otherwise, or checks between the operations. Set otherwise, a recipe would be
another program or none, under any profile. What marin.plugins.exact decides while it reads is here or among :func:`settings`."""
APPLIED = "MARIN_ARITHMETIC"
"""Set by :func:`apply` to what it put in force, so that child processes and tests can tell."""


def xla_flags(arithmetic: Arithmetic, execution: Execution, environ: Mapping[str, str] = os.environ) -> str:
    """The value of ``XLA_FLAGS``: the contract's flags in their recorded order, then those of the execution: how long
    virtual devices wait for each other, and how many there are. Under ``exact`` those of the user come first, and a GPU is
    told to divide as IEEE 754 says unless they say something about it."""
    flags = list(arithmetic.xla_flags)
    if arithmetic.profile in CPU_PROFILES:
        flags += [*PATIENCE_FLAGS, f"{DEVICE_COUNT_FLAG}={execution.local_devices}"]
    if arithmetic.profile == "exact":
        own = environ.get("XLA_FLAGS", "").split()
        own = [flag for flag in own if flag not in flags and not flag.startswith(DEVICE_COUNT_FLAG)]
        on_a_gpu = {"cuda", "gpu"} & set(environ.get("JAX_PLATFORMS", "").split(","))
        if on_a_gpu and not any(flag.startswith(BACKEND_FLAG) for flag in own):
            own.append(IEEE_DIVISION)
        flags = own + flags
    return " ".join(flags)


def settings(arithmetic: Arithmetic, execution: Execution, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Environment variables that put the contract in force; ``environ`` holds the user's."""
    values = {
        "XLA_FLAGS": xla_flags(arithmetic, execution, environ),
        "JAX_ENABLE_X64": "0",
        "JAX_THREEFRY_PARTITIONABLE": "1",
        "JAX_DEFAULT_MATMUL_PRECISION": arithmetic.matmul_precision,
        "JAX_DEFAULT_PRNG_IMPL": "threefry2x32",
        "JAX_NUMPY_DTYPE_PROMOTION": "standard",
        "JAX_DISABLE_JIT": "0",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "0",
        "JAX_OPTIMIZATION_LEVEL": "UNKNOWN",
    }
    match arithmetic.profile:
        case "portable-cpu" | "arm-cpu":
            values |= {"JAX_PLATFORMS": "cpu", "NPROC": str(arithmetic.threads)}
        case "exact":
            values |= {"JAX_PLATFORMS": "cpu", "NPROC": str(arithmetic.threads)}
            values |= {name: environ[name] for name in ("JAX_PLATFORMS", "NPROC") if environ.get(name)}
        case "gpu":
            values |= {
                "JAX_PLATFORMS": "cuda,cpu",
                "NPROC": str(arithmetic.threads),
                "NVIDIA_TF32_OVERRIDE": "0",
                "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
            }
        case "tpu":
            values |= {"JAX_PLATFORMS": "tpu,cpu", "NPROC": str(arithmetic.threads)}
            # A kernel's program has the paths of the files that made it inside, and would be another one on each machine.
            values |= {"JAX_TRACEBACK_IN_LOCATIONS_LIMIT": "0"}
    return values


_WANTED = {
    "portable-cpu": "an x86-64-v3 processor under Linux",
    "arm-cpu": "an ARM processor of the recipe's model under Linux",
    "gpu": "a GPU with its driver",
    "tpu": "a TPU",
    "exact": "any processor",
}


def unsupported(arithmetic: Arithmetic, cpu: Processor | None = None) -> str | None:
    """Why this machine, or one with the processor ``cpu``, can not honour ``arithmetic``; None when it can."""
    if arithmetic.profile == "exact":
        return None  # the known answers are asked for by anyone who computes (marin.plugins.exact.known)
    if arithmetic.profile == "arm-cpu":
        return _other_arm(arithmetic)
    if arithmetic.profile != "portable-cpu":
        present = _accelerator(arithmetic.profile)
        return None if present else f"no {arithmetic.profile.upper()} is visible here"
    cpu = cpu or processor()
    if cpu.architecture not in X86:
        return f"the processor is {cpu.architecture}; its bits are others (docs/determinism.md; ARM has the profile arm-cpu)"
    if sys.platform != "linux":
        return f"profile portable-cpu was proven on Linux only, this is {sys.platform}"
    if cpu.missing_for_v3:
        return f"the processor lacks {', '.join(cpu.missing_for_v3)} (x86-64-v3 is needed)"
    if cpu.is_skylake:
        return "the processor is a Skylake without AVX-512, for which the compiler makes code that rounds otherwise"
    return None


def _other_arm(arithmetic: Arithmetic) -> str | None:
    """Why this is not the ARM processor that a recipe names, or None when it is."""
    if sys.platform != "linux" or platform.machine() not in ("aarch64", "arm64"):
        return f"the processor is {platform.machine()} under {sys.platform}"
    found = processor().arm_model
    return None if found == arithmetic.device_kind else f"the processor is {found or 'an ARM of no known model'}"


def _accelerator(profile: str) -> bool:
    """Whether a device of the profile's platform can be seen, without loading jax: its device files."""
    patterns = {"gpu": ("nvidia[0-9]*", "kfd"), "tpu": ("accel[0-9]*", "vfio/[0-9]*")}[profile]
    return any(next(Path("/dev").glob(pattern), None) is not None for pattern in patterns)


def check_device(arithmetic: Arithmetic, found: str) -> None:
    """Refuse to execute a recipe of an accelerator on another kind of it; ``found``: ``jax.devices()[0].device_kind``.

    Raises:
        Unsupported: the recipe names another kind.
    """
    if arithmetic.profile == "arm-cpu":
        found = processor().arm_model or found  # jax calls every processor "cpu"
    if arithmetic.device_kind is not None and arithmetic.device_kind != found:
        raise Unsupported(
            "this machine can not honour the arithmetic contract",
            where=arithmetic.profile,
            expected=f"the device kind {arithmetic.device_kind}",
            found=found,
            cure="replay on that kind; other kinds round differently",
        )


def check_devices(recipe: Recipe, execution: Execution) -> None:
    """Raises ``UsageError`` where logical shards, or under ``exact`` a batch, do not divide over the devices, or devices would
    share matrices or experts that do not divide, or whose sums have an order."""
    _check_shards(recipe.arithmetic, execution)
    for plugin in profile_plugins(recipe.arithmetic):
        load_plugin(*plugin, "arithmetic.profile").check_devices(recipe, execution)


def _check_shards(arithmetic: Arithmetic, execution: Execution) -> None:
    shared, apart = execution.tensor_parallel, execution.expert_parallel
    for option, size in (("--tensor-parallel", shared), ("--expert-parallel", apart)):
        if size > 1 and arithmetic.profile != "exact":
            raise UsageError(
                "sums in the order of a device's share have other bits",
                where=option,
                expected="profile=exact, whose sums have no order",
                found=f"profile {arithmetic.profile}",
                cure="leave it out, or train with profile=exact",
            )
    if arithmetic.profile != "exact" and arithmetic.logical_shards % execution.devices:
        raise UsageError(
            "logical shards do not divide over the devices",
            where="--devices",
            expected=f"a divisor of arithmetic.logical_shards ({arithmetic.logical_shards})",
            found=str(execution.devices),
            cure="use a power of two up to the number of logical shards",
        )


def check(recipe: Recipe, execution: Execution, environ: Mapping[str, str] = os.environ) -> None:
    """Refuse what :func:`apply` would refuse in a process of its own, before anything is executed. Where training is a
    job of a Ray, processor and settings are those of its workers, and only the devices are looked at.

    Raises:
        Unsupported: the processor can not honour the contract, or a variable of the user lifts one of its flags.
        UsageError: as :func:`check_devices`, or the user's environment contradicts the contract.
    """
    check_devices(recipe, execution)
    _check_process(recipe.arithmetic, execution, environ)


def _check_process(arithmetic: Arithmetic, execution: Execution, environ: Mapping[str, str]) -> None:
    if execution.runner == "ray":
        return
    check_variables(environ, *(("LIBTPU_INIT_ARGS",) if arithmetic.profile == "tpu" else ()))
    reason = unsupported(arithmetic)
    if reason:
        raise Unsupported(
            "this machine can not honour the arithmetic contract",
            where=arithmetic.profile,
            expected=_WANTED[arithmetic.profile],
            found=reason,
            cure="`marin doctor` says more",
        )
    wanted = TRACING if APPLIED in environ else TRACING | settings(arithmetic, execution, environ)
    for name, value in wanted.items():
        present = environ.get(name)
        if present is not None and not _agrees(name, present, value):
            found = _contrary(name, present, value)
            decided = {flag.partition("=")[0] for flag in arithmetic.xla_flags}
            others = any(
                flag.partition("=")[0] in decided for flag in found.split()
            )  # AVX-512, say: bits of this processor
            raise (Unsupported if others else UsageError)(
                "a setting of yours contradicts the arithmetic contract",
                where=f"environment variable {name}",
                expected=value,
                found=found,
                cure=f"unset {name}",
            )


CHANGING = ("TF_XLA_FLAGS", "LEVANTER_CE_XLA_FAST_BWD", "LEVANTER_PALLAS_CE_AUTOTUNE_ON_MISS")
"""Variables that change what is traced or compiled, and that no recipe knows of; under profile tpu ``LIBTPU_INIT_ARGS`` too."""


def check_variables(environ: Mapping[str, str], *more: str) -> None:
    """Refuse variables of the environment that change programs; ``more`` besides :data:`CHANGING`.

    Raises:
        Unsupported: one of them is set.
    """
    for name in (*CHANGING, *more):
        if environ.get(name):
            raise Unsupported(
                "a variable of the environment changes programs",
                where=name,
                expected="not set: the recipe decides them",
                found=environ[name][:120],
                cure=f"unset {name}; flags of the recipe are in arithmetic.xla_flags",
            )


def apply(arithmetic: Arithmetic, execution: Execution, environ: MutableMapping[str, str] = os.environ) -> None:
    """Put the contract in force for this process.

    Raises:
        Unsupported: as :func:`check`, which asks a whole recipe.
        UsageError: the devices do not divide the logical shards, jax is already loaded under other settings, or the
            user's environment contradicts the contract.
    """
    _check_shards(arithmetic, execution)
    _check_process(arithmetic, msgspec.structs.replace(execution, runner="local"), environ)
    wanted = settings(arithmetic, execution, environ)
    if _covers(environ, wanted, execution.local_devices):
        return
    if "jax" in sys.modules and environ is os.environ:
        raise UsageError(
            "the arithmetic contract must be in force before jax starts",
            where="marin.process.arithmetic.apply",
            expected="a process in which jax was not imported",
            found="jax is loaded under other settings",
            cure="run this in a process of its own (`marin stage train` does)",
        )
    environ.update(wanted)
    environ[APPLIED] = wanted["XLA_FLAGS"]


def _covers(environ: Mapping[str, str], wanted: Mapping[str, str], devices: int) -> bool:
    """Whether an earlier :func:`apply` put the same contract in force, with at least as many devices."""
    if APPLIED not in environ or any(
        environ.get(name) != value for name, value in wanted.items() if name != "XLA_FLAGS"
    ):
        return False
    present, needed = (flags.split() for flags in (environ.get("XLA_FLAGS", ""), wanted["XLA_FLAGS"]))
    contract = [flag for flag in needed if not flag.startswith(DEVICE_COUNT_FLAG)]
    counts = [int(flag.partition("=")[2]) for flag in present if flag.startswith(DEVICE_COUNT_FLAG)]
    return [flag for flag in present if not flag.startswith(DEVICE_COUNT_FLAG)] == contract and max(
        counts, default=1
    ) >= devices


_SWITCHES = {"0": ("0", "false", "f", "no", "n", "off"), "1": ("1", "true", "t", "yes", "y", "on")}
"""How jax reads a variable that is on or off."""


def _agrees(name: str, present: str, wanted: str) -> bool:
    if name == "XLA_FLAGS":
        return set(present.split()) <= set(wanted.split())
    given = present.strip().lower()
    if (name.startswith("JAX_") or name in TRACING) and wanted in ("0", "1"):
        return given in _SWITCHES[wanted]
    return given == wanted.lower()


def _contrary(name: str, present: str, wanted: str) -> str:
    """What of a variable's value is not the contract's: single flags of XLA_FLAGS, the whole value of others."""
    if name != "XLA_FLAGS":
        return present
    return " ".join(flag for flag in present.split() if flag not in wanted.split())


def in_force(arithmetic: Arithmetic, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether :func:`apply` (here or in a parent) put exactly these settings into the environment."""
    present = environ.get("XLA_FLAGS", "").split()
    return all(flag in present for flag in arithmetic.xla_flags) and APPLIED in environ
