"""What the compiling process is asked, and what it answers: the two files between it and whoever started it."""

from __future__ import annotations

from typing import Any

import msgspec


class Question(msgspec.Struct, frozen=True):
    """``stock``: compile the step as Levanter's own trainer would shard it, too. ``kept``: a folder of earlier answers.
    ``moves``: of a step layer by layer, compile what moves too; what computes is enough to compare two slices."""

    recipe: dict[str, Any]
    topology: str
    vocabulary: int
    stock: bool = False
    kept: str = ""
    moves: bool = True


class Moved(msgspec.Struct, frozen=True):
    """A collective: dtype and bytes that it brings to a device, over how many devices, how often it is executed."""

    kind: str
    dtype: str
    bytes: float
    times: int
    group: int = 0


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """One program. ``transient``: bytes on a chip beside what lies there anyway (state, gradient, what goes from layer to
    layer); ``kernels``: FLOPs of kernels of which the compiler has no estimate; ``error``: the compiler's own first line where
    it made none, and then ``needed``: bytes that it says it would need."""

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
    collectives: list[Moved] = []
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
    programs: list[Made]
    stock: Made | None = None
