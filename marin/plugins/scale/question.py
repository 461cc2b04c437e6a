"""What the compiling process is asked, and what it answers: the two files between it and its parent."""

from __future__ import annotations

from typing import Any

import msgspec

from marin.plugins.scale.hlo import Collective

PRODUCTS = "int8"
"""How a step of profile ``exact`` multiplies on a TPU, which has no numbers of 64 bits: by bytes, added up in 32."""


class Question(msgspec.Struct, frozen=True):
    """``recipe``: as a ledger records it; ``topology``: a slice (``v5p:4x4x8``); ``vocabulary``: tokens. ``stock``: compile the
    step as Levanter's own trainer would shard it, too. ``kept``: a folder of earlier answers. ``moves``: of a step layer by
    layer, compile what moves too; what computes is enough to compare two slices."""

    recipe: dict[str, Any]
    topology: str
    vocabulary: int
    stock: bool = False
    kept: str = ""
    moves: bool = True


class ProgramAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One program. ``identity``: of :mod:`marin.plugins.scale.hlo`; ``transient``: bytes on a chip beside what lies there anyway
    (state, gradient, what goes from layer to layer); ``cycles``: the compiler's estimate; ``kernels``: FLOPs of kernels of
    which it has none, ``without_estimate``: other such instructions; ``error``: its own first line where it made no program,
    and then ``needed``: bytes that it says it would need, beside what lies there."""

    name: str
    computes: bool = False
    executions: int = 1
    identity: str = ""
    transient: int = 0
    arguments: int = 0
    flops: float = 0.0
    cycles: int = 0
    kernels: float = 0.0
    without_estimate: int = 0
    collectives: list[Collective] = []
    error: str = ""
    needed: int = 0


class SlicePrograms(msgspec.Struct, frozen=True):
    """All programs on one slice. ``state``, ``gradient``, ``between``: bytes on a chip of parameters and moments, of the
    gradient's slices, and of what goes from layer to layer."""

    kind: str
    chips: int
    state: int
    gradient: int
    between: int
    programs: list[ProgramAnswer]
    stock: ProgramAnswer | None = None
