"""Kinds of TPU by the name that libtpu knows them by, and the slices that they come in.

Memory, peak and links are those of cloud.google.com/tpu/docs/system-architecture-tpu-vm (pages v5e, v5p, v6e), read in November
2026; the clock is the one that turns libtpu's estimated cycles into seconds.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass

from marin.errors import UsageError


@dataclass(frozen=True)
class Chip:
    """``kind`` as jax says it. ``hbm``: bytes that programs may use; ``peak``: bfloat16 FLOP/s; ``link``: bytes/s of all of a
    chip's links together; ``hertz``: cycles a second; ``slices``: the shapes that can be had."""

    kind: str
    hbm: int
    peak: float
    link: float
    hertz: float
    slices: tuple[str, ...]


_CUBES = ("1x1x1", "2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4", "4x4x8", "4x8x8", "8x8x8", "8x8x16", "8x16x16")
_FLAT = ("1x1", "2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16")
_GIB = 2**30
CHIPS: Mapping[str, Chip] = {
    "v5e": Chip("TPU v5 lite", int(15.75 * _GIB), 197e12, 1600e9 / 8, 1.5e9, _FLAT),
    "v5p": Chip("TPU v5", int(95.74 * _GIB), 459e12, 4800e9 / 8, 1.75e9, _CUBES),
    "v6e": Chip("TPU v6 lite", int(31.25 * _GIB), 918e12, 3200e9 / 8, 1.75e9, _FLAT),
}


def chip_of(topology: str, where: str = "--topology") -> Chip:
    """The kind of chip of ``topology`` (``v5p:4x4x8``).

    Raises:
        UsageError: there is no such slice.
    """
    known = [f"{name}:{shape}" for name, chip in CHIPS.items() for shape in chip.slices]
    if topology not in known:
        near = difflib.get_close_matches(topology, known, n=3, cutoff=0.5) or known[:3]
        raise UsageError(
            "there is no such slice of TPUs",
            where=where,
            expected="a kind and a shape, such as v5p:4x4x8 or v5e:16x16",
            found=repr(topology[:60]),
            cure=f"did you mean {', '.join(near)}?",
        )
    return CHIPS[topology.partition(":")[0]]


def count_of(topology: str) -> int:
    """How many chips a slice has."""
    return math.prod(sides_of(topology))


def sides_of(topology: str) -> tuple[int, ...]:
    """How many chips a slice has along each axis."""
    return tuple(int(side) for side in topology.partition(":")[2].split("x"))


def bounds_of(topology: str) -> tuple[int, int, int] | None:
    """Chips of a host along each axis where it is not libtpu's own 2x2x1: a slice of one chip."""
    return (1, 1, 1) if count_of(topology) == 1 else None
