"""What is changed, one thing at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

STACK = "x" * 3001
AVX512 = "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR X86_V4"


@dataclass(frozen=True)
class Change:
    """``setting``: fields of the training's setting (bench/census/journal.py); ``variables``: of its environment, where None
    takes one away; ``prefix``: before its command; ``earlier``: with the previous minor release of its library."""

    name: str
    title: str
    says: str
    setting: Mapping[str, Any] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    prefix: tuple[str, ...] = ()
    halves: bool = False
    earlier: bool = False
    elsewhere: bool = False


AS_IS = Change("as-it-is", "as it is", "two processors, one process, one device, nothing set")
CHANGES = (
    Change("repeated", "repeated", "the same again, in another process"),
    Change(
        "one-thread",
        "one thread",
        "one processor: affinity, OMP_NUM_THREADS, RAYON_NUM_THREADS",
        variables={"OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"},
        prefix=("taskset", "-c", "0"),
    ),
    Change(
        "devices",
        "devices",
        "two devices of jax (`jax-data-parallel`: eight), two processes of torch, two workers elsewhere; the same global batch",
        setting={"devices": 2},
    ),
    Change("cut", "batch cut", "two microbatches for one; the same global batch", setting={"cut": 2}),
    Change("resumed", "resumed", "stopped after four steps, its checkpoint loaded by another process", halves=True),
    Change(
        "environment",
        "environment",
        "PYTHONHASHSEED, locale, time zone, home and working folder, 3 kB of variables, memory filled by malloc",
        variables={
            "PYTHONHASHSEED": "1",
            "LC_ALL": "C",
            "TZ": "Asia/Tokyo",
            "MALLOC_PERTURB_": "165",
            "MALLOC_ARENA_MAX": "1",
            "CENSUS_STACK": STACK,
        },
        elsewhere=True,
    ),
    Change("earlier", "earlier release", "the previous minor release of the library", earlier=True),
    Change(
        "processor",
        "as a Haswell",
        "the libraries' own switches: no instructions above AVX2",
        variables={
            "XLA_FLAGS": "--xla_cpu_max_isa=AVX2",
            "ATEN_CPU_CAPABILITY": "avx2",
            "ONEDNN_MAX_CPU_ISA": "AVX2",
            "MKL_ENABLE_INSTRUCTIONS": "AVX2",
            "OPENBLAS_CORETYPE": "Haswell",
            "NPY_DISABLE_CPU_FEATURES": AVX512,
        },
    ),
    Change("evaluation", "evaluation batch", "5 rows of the evaluation at once for 16", setting={"evaluation": 5}),
)
