"""The processor of this machine, as Linux describes it in /proc/cpuinfo, and whether it is of the level x86-64-v3.

The arithmetic contract asks this before a step is executed, and every run records it. Nothing here imports jax.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

X86_64_V3 = ("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave")
"""What the psABI level x86-64-v3 adds, in the words of /proc/cpuinfo (``abm`` is LZCNT; ``xsave`` stands for
OSXSAVE)."""

SKYLAKE = frozenset({78, 94, 142, 158, 165, 166})
"""Model numbers of Intel's family 6 without AVX-512 for which LLVM makes the code of a Skylake. Where a processor has
nothing above the ceiling, the compiler makes code for the model that it finds; this one's was seen to round otherwise
(docs/determinism.md)."""

X86 = ("x86_64", "AMD64")
"""What systems call the architecture."""

_CPUINFO = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class Processor:
    """The processor: its model in words, and the features that compilers choose instructions by.

    ``numbers`` are the vendor, family and model number of an x86 processor; ``arm_model`` is that of an ARM processor,
    as ``implementer 0x41 part 0xd0c`` (Arm's MIDR_EL1). Where there are several ARM models in one machine, all are named,
    for a program may run on any of them.
    """

    architecture: str
    model: str
    features: tuple[str, ...]
    numbers: tuple[str, str, str] = ("", "", "")
    arm_model: str | None = None

    @property
    def missing_for_v3(self) -> tuple[str, ...]:
        """The features of x86-64-v3 that this processor lacks; all of them on another architecture."""
        if self.architecture not in X86:
            return X86_64_V3
        return tuple(name for name in X86_64_V3 if name not in self.features)

    @property
    def is_x86_64_v3(self) -> bool:
        """Whether programs limited to AVX2 run here as they run on every machine of that level."""
        return not self.missing_for_v3

    @property
    def is_skylake(self) -> bool:
        """Whether this is of :data:`SKYLAKE`."""
        vendor, family, number = self.numbers
        return (vendor, family) == ("GenuineIntel", "6") and number in {str(model) for model in SKYLAKE}


@cache
def processor() -> Processor:
    """The processor of this machine, from /proc/cpuinfo where there is one."""
    try:
        text = _CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    return parse_cpuinfo(text, platform.machine())


def parse_cpuinfo(text: str, architecture: str) -> Processor:
    """The first processor that a /proc/cpuinfo describes."""
    fields = dict(reversed(list(_fields(text))))  # of each name the first
    features = fields.get("flags", fields.get("features", "")).split()
    return Processor(
        architecture=architecture,
        model=fields.get("model name", platform.processor() or architecture),
        features=tuple(sorted(set(features))),
        numbers=(fields.get("vendor_id", ""), fields.get("cpu family", ""), fields.get("model", "")),
        arm_model=", ".join(sorted(set(_arm_models(text)))) or None,
    )


def _fields(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        name, separator, value = line.partition(":")
        if separator:
            yield name.strip().lower(), value.strip()


def _arm_models(text: str) -> Iterator[str]:
    implementer = ""
    for name, value in _fields(text):
        if name == "cpu implementer":
            implementer = value
        elif name == "cpu part":
            yield f"implementer {implementer} part {value}"
