"""What this machine is, as far as it can matter to the bits: processor, system, versions, settings.

Recorded with every run and compared when a replay differs. Nothing here names the machine or its user, and nothing
imports jax: versions are read from the installed packages' metadata.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from marin.provenance.processor import processor

PACKAGES = (
    "jax",
    "jaxlib",
    "marin-levanter",
    "marin-haliax",
    "equinox",
    "jaxtyping",
    "optax",
    "numpy",
    "ml_dtypes",
    "tensorstore",
    "tokenizers",
    "transformers",
    "safetensors",
    "rfc8785",
    "cryptography",
    "msgspec",
)
"""Packages whose code touches the bits of a result or of the ledger."""

SETTINGS = (
    "XLA_FLAGS",
    "NPROC",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "LIBTPU_INIT_ARGS",
    "TF_XLA_FLAGS",
    "CUDA_VISIBLE_DEVICES",
    "PYTHONHASHSEED",
    "RAYON_NUM_THREADS",
    "TOKENIZERS_PARALLELISM",
)
SETTING_PREFIXES = ("JAX_", "XLA_", "NVIDIA_TF32", "CUBLAS_", "CUDNN_", "NCCL_")

_PLACES = ("_DIR", "_PATH", "_FILE", "_CACHE")
"""Endings of variables that say where something lies: no arithmetic, and nobody's business."""


def available_cores() -> int:
    """How many cores this process may use (its affinity, not what the machine has)."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def versions() -> dict[str, str]:
    """The installed versions of :data:`PACKAGES`; a package that is absent is left out."""
    return {name: found for name in PACKAGES if (found := _version(name))}


@cache
def _version(package: str) -> str:
    """Of what this process imports, or would; "" for what is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)")


def pinned(lock: str) -> dict[str, str]:
    """Exact version by normalised name, as a lock file lists them."""
    found = (_PINNED.match(line) for line in lock.splitlines())
    return {_normal(match[1]): match[2] for match in found if match}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def differing(wanted: Mapping[str, str], names: Collection[str], installed: Callable[[str], str]) -> Iterator[str]:
    """The packages that are not installed as they are wanted (by normalised names), a line each."""
    for name in names:
        expected, found = wanted.get(_normal(name)), installed(name) or "nothing"
        if expected is not None and expected != found:
            yield f"{name}: expected {expected}, found {found}"


def beside(lock: Path) -> list[str]:
    """The packages that touch the bits and are installed in other versions than a lock file has; none where there is no such
    file."""
    wanted = pinned(lock.read_text("utf-8")) if lock.is_file() else {}
    return list(differing(wanted, versions(), _version))


def settings(in_force: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment variables that touch arithmetic: those of this process, and over them ``in_force``, which its steps
    are executed under."""
    return {
        name: value
        for name, value in sorted({**os.environ, **(in_force or {})}.items())
        if (name in SETTINGS or name.startswith(SETTING_PREFIXES)) and not name.endswith(_PLACES)
    }


def describe(lock: str, in_force: Mapping[str, str] | None = None) -> dict[str, Any]:
    """As ``run.started`` and ``replay.completed`` hold it. ``lock`` is the digest of the locked dependencies, ``in_force``
    the settings that steps are executed under, whatever this process has."""
    cpu = processor()
    libc = "-".join(part for part in platform.libc_ver() if part)
    return {
        "processor": {
            "architecture": cpu.architecture,
            "model": cpu.model,
            "features": list(cpu.features),
            "x86_64_v3": cpu.is_x86_64_v3,
        },
        "cores": {"machine": os.cpu_count() or 1, "available": available_cores()},
        "system": {"name": platform.system(), "release": platform.release(), "libc": libc},
        "python": {"version": platform.python_version(), "implementation": sys.implementation.name},
        "versions": versions(),
        "lock": lock,
        "settings": settings(in_force),
    }
