"""The arithmetic contract of a recipe: what fixes the order and the kind of every floating-point operation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta

from marin.errors import Unsupported, UsageError
from marin.recipe.section import Positive, Section


class Arithmetic(Section, frozen=True):
    """The arithmetic contract: what fixes the order and the kind of every floating-point operation.

    The batch is cut into ``logical_shards`` equal parts whatever the machine has; each part goes through the same
    compiled program in microbatches of ``microbatch_size`` sequences, and the parts' gradients are summed by a fixed
    binary tree. ``profile`` names the environment in which the same bits are promised: ``portable-cpu`` any x86-64-v3
    processor, ``arm-cpu`` one model of an ARM processor (``device_kind`` as ``Processor.arm_model`` says it), ``gpu`` and
    ``tpu`` one ``device_kind``, in the words of ``jax.devices()[0].device_kind``. ``isa`` and ``threads`` are
    about the host's processor, which draws the initial state and the order of the data in every profile.

    ``exact`` promises them on any processor (docs/exact.md): its sums have no order, so there is nothing to cut into
    logical shards (there is one), no flags are needed, and ``isa`` is ``any``. Gradients of microbatches are added one
    after the other, so ``microbatch_size`` decides bits there too. ``factor_bits``: of the factors of contractions,
    where they are not the 15 of the definition; ``factor_rounding``: these rounded up or down by random bits.

    ``gather=layer``: no device ever holds all parameters; each layer's are gathered for its forward and for its backward
    pass, in which the layer is computed again, and its gradient leaves at once (docs/decisions/layer-by-layer.md). The
    tree then goes over halves of the batch. ``attention=splash``: the TPU kernel of that name, in blocks of at most
    ``attention_block`` positions. ``loss_block`` tokens by ``loss_vocabulary`` entries of the vocabulary are how much of
    the logits there is at once; null: all.
    """

    profile: Literal["portable-cpu", "arm-cpu", "gpu", "tpu", "exact"] = "portable-cpu"
    device_kind: Annotated[str, Meta(min_length=1, max_length=128)] | None = None
    logical_shards: Literal[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024] = 8
    microbatch_size: Positive = 1
    reduction: Literal["binary-tree", "integer"] = "binary-tree"
    generator: Literal["threefry2x32-partitionable"] = "threefry2x32-partitionable"
    matmul_precision: Literal["highest", "default"] = "highest"
    param_dtype: Literal["float32"] = "float32"
    compute_dtype: Literal["float32", "bfloat16"] = "float32"
    isa: Literal["x86-64-v3", "aarch64", "any"] = "x86-64-v3"
    threads: Annotated[int, Meta(ge=1, le=1024)] = 2
    xla_flags: tuple[str, ...] = (
        "--xla_cpu_enable_platform_dependent_math=false",
        "--xla_cpu_max_isa=AVX2",
        "--xla_disable_hlo_passes=transpose-folding",
    )
    factor_bits: Annotated[int, Meta(ge=2, le=14)] | None = None
    factor_rounding: Literal["stochastic"] | None = None
    gather: Literal["layer"] | None = None
    attention: Literal["splash"] | None = None
    attention_block: Annotated[int, Meta(ge=128, le=65_536, multiple_of=128)] | None = None
    loss_block: Positive | None = None
    loss_vocabulary: Positive | None = None


EXACT = Arithmetic(profile="exact", logical_shards=1, microbatch_size=8, reduction="integer", isa="any", xla_flags=())
"""As conf/profile/exact.yaml has it."""
CPU_PROFILES = ("portable-cpu", "arm-cpu", "exact")
"""Those that are executed on processors today."""
REQUIRED_FLAGS: Mapping[str, tuple[str, ...]] = {
    "portable-cpu": Arithmetic().xla_flags,
    "arm-cpu": ("--xla_cpu_enable_platform_dependent_math=false", "--xla_disable_hlo_passes=transpose-folding"),
    "gpu": (
        "--xla_gpu_deterministic_ops=true",
        "--xla_gpu_exclude_nondeterministic_ops=true",
        "--xla_gpu_autotune_level=0",
    ),
    "tpu": (),
    "exact": (),
}
"""Flags without which a profile promises nothing; a recipe may have more, but none of these with another value."""
_MORE_FLAGS = re.compile(r"--xla_(cpu|gpu|tpu)_[a-z0-9_]+=(true|false|[0-9]{1,9})")
"""Of those: switches and numbers. A recipe may be a stranger's, and other flags name files that XLA reads and writes,
and options of the compiler below it."""


def check_contract(arithmetic: Arithmetic, where: str) -> None:
    """Refuse flags that allow bits of one processor only (AVX-512, say), or of one run only.

    Raises:
        Unsupported: a flag that the profile needs is missing or contradicted.
        UsageError: one that is not a setting of arithmetic.
    """
    required = REQUIRED_FLAGS[arithmetic.profile]
    decided = {flag.partition("=")[0] for flag in required}
    missing = [flag for flag in required if flag not in arithmetic.xla_flags]
    contrary = [flag for flag in arithmetic.xla_flags if flag not in required and flag.partition("=")[0] in decided]
    if missing or contrary:
        raise Unsupported(
            "the bits would be those of one processor only"
            if arithmetic.profile in CPU_PROFILES
            else "the bits would be those of one run only",
            where=f"{where}: arithmetic.xla_flags",
            expected=" ".join(required),
            found=" ".join(arithmetic.xla_flags) or "no flags",
            cure=f"compose the section from conf/profile/{arithmetic.profile}.yaml",
        )
    known = {flag for flags in REQUIRED_FLAGS.values() for flag in flags}
    odd = [flag for flag in arithmetic.xla_flags if flag not in known and not _MORE_FLAGS.fullmatch(flag)]
    if odd:
        raise UsageError(
            "a flag that is no setting of arithmetic",
            where=f"{where}: arithmetic.xla_flags",
            expected="--xla_cpu_NAME=, --xla_gpu_NAME= or --xla_tpu_NAME= with true, false or a number",
            found=odd[0][:200],
            cure="leave it out",
        )
    isa = {"arm-cpu": "aarch64", "exact": "any"}.get(arithmetic.profile, "x86-64-v3")
    if arithmetic.isa != isa:
        raise UsageError(
            "the profile is for other processors",
            where=f"{where}: arithmetic.isa",
            expected=isa,
            found=arithmetic.isa,
            cure=f"compose the section from conf/profile/{arithmetic.profile}.yaml",
        )
    factors = arithmetic.factor_bits or arithmetic.factor_rounding
    if factors or arithmetic.profile == "exact" or arithmetic.reduction == "integer":
        _check_exact(arithmetic, where)
    anywhere, arm = arithmetic.profile in ("portable-cpu", "exact"), arithmetic.profile == "arm-cpu"
    if anywhere != (arithmetic.device_kind is None):
        kind = "`marin doctor --json`" if arm else "jax.devices()[0].device_kind"
        bound = "ARM are those of one model" if arm else "an accelerator are those of one kind"
        raise UsageError(
            f"{arithmetic.profile} is not about one kind of device" if anywhere else f"the bits of {bound}",
            where=f"{where}: arithmetic.device_kind",
            expected="null" if anywhere else f"what {kind} says there",
            found=str(arithmetic.device_kind),
            cure="leave it out" if anywhere else "set arithmetic.device_kind",
        )


def _check_exact(arithmetic: Arithmetic, where: str) -> None:
    """Raises UsageError where a setting has no meaning under profile exact, or is meant for it alone."""
    wanted: dict[str, object] = {"profile": "exact", "reduction": "integer", "compute_dtype": "float32"}
    wanted |= {"logical_shards": 1, "xla_flags": ()} | ({} if arithmetic.factor_bits else {"factor_rounding": None})
    for name, value in wanted.items():
        if getattr(arithmetic, name) != value:
            raise UsageError(
                "settings that do not go together",
                where=f"{where}: arithmetic.{name}",
                expected=str(value or "none"),
                found=str(getattr(arithmetic, name)),
                cure="compose the section from conf/profile/exact.yaml",
            )


PROFILES = "marin.profiles"
"""The group of plugins that compute under a profile, or in another form of the train step."""


def profile_plugins(arithmetic: Arithmetic) -> tuple[tuple[str, str], ...]:
    """Group and name of the plugin of the profile, where that is one."""
    return ((PROFILES, "exact"),) if arithmetic.profile == "exact" else ()


def step_plugins(arithmetic: Arithmetic) -> tuple[tuple[str, str], ...]:
    """The same of the train step, in whose form no device may hold all parameters."""
    layered = arithmetic.gather == "layer" and arithmetic.profile != "exact"  # which has it in its own step
    return (*profile_plugins(arithmetic), *(((PROFILES, "layered"),) if layered else ()))
