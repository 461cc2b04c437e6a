"""An optimised program in XLA's text, read: what it computes by data flow, how many cycles libtpu estimates, what it moves.

The identity is a Merkle digest: of an instruction, of its text without names, sources and placement, over the digests of what it
reads. Two programs of one identity compute the same from the same inputs, whatever their instructions are called.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

_COMPUTATION = re.compile(r"^(ENTRY )?%([\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%([\w.\-]+) = (.*)$")
_NAME = re.compile(r"%([\w.\-]+)")
_PLACEMENT = tuple(
    re.compile(pattern)
    for pattern in (
        r", metadata=\{[^{}]*\}",
        r", sharding=\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}",
        r", control-predecessors=\{[^{}]*\}",
        r", frontend_attributes=\{[^{}]*\}",
        r", channel_id=\d+",
        r"/\*index=\d+\*/",
    )
)
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_LOOP = re.compile(r" while\(.*condition=%([\w.\-]+), body=%([\w.\-]+)")
_LIMIT = re.compile(
    r"^[su]32\[\]\S* constant\((\d+)\)"
)  # a counter of 64 bits is two words, of which the lower has no sign
_CALLS = re.compile(r"calls=%([\w.\-]+)")
_COLLECTIVE = re.compile(r" (all-gather|all-to-all|all-reduce|reduce-scatter|collective-permute)(-start)?\(")
_SPLASH = re.compile(r"splash_m[qh]a_(fwd|dq|dkv)")
_BLOCKS = re.compile(r'\\?"block_q\\?": (\d+)')
_PRODUCTS: Mapping[str, int] = {"fwd": 2, "dq": 3, "dkv": 4}
"""Of the splash attention kernels: products of the size of queries by keys."""
_QUERIES = re.compile(r"operand_layout_constraints=\{.*?(?:bf16|f32)\[([\d,]+)\]")
_GROUPS = re.compile(r"replica_groups=(?:\{\{([\d,]*)\}|\[\d+,(\d+)\]|mesh\[([^\]]*)\] \{([^}]*)\})")
_SHAPE = re.compile(r"\b(pred|[sufb]+\d+|bf16|f8\w+)\[([\d,]*)\]")
_WIDTHS: Mapping[str, float] = {
    "pred": 1,
    "s8": 1,
    "u8": 1,
    "s4": 0.5,
    "u4": 0.5,
    "bf16": 2,
    "f16": 2,
    "s16": 2,
    "u16": 2,
    "f64": 8,
    "s64": 8,
    "u64": 8,
}
"""Bytes of a number where they are not four."""


@dataclass(frozen=True)
class Collective:
    """One movement between devices: ``kind``, the dtype of what it moves, bytes of its result on a device (of a scattered sum:
    of what is summed), how often it is executed, and among how many devices (0: not said)."""

    kind: str
    dtype: str
    bytes: float
    times: int
    group: int = 0


@dataclass(frozen=True)
class Program:
    """A module: instructions by computation, as (name, whether it is the root, text)."""

    computations: Mapping[str, Sequence[tuple[str, bool, str]]]
    entry: str

    @classmethod
    def read(cls, text: str) -> Program:
        """``text`` as ``jax.stages.Compiled.as_text`` gives it."""
        computations: dict[str, list[tuple[str, bool, str]]] = {}
        entry, inside = "", None
        for line in text.splitlines():
            if found := _COMPUTATION.match(line):
                inside = computations.setdefault(found[2], [])
                entry = found[2] if found[1] else entry
            elif inside is not None and (found := _INSTRUCTION.match(line)):
                inside.append((found[2], bool(found[1]), found[3]))
            elif line == "}":
                inside = None
            elif inside:  # a kernel's attributes have lines of their own
                name, is_root, begun = inside[-1]
                inside[-1] = (name, is_root, begun + line)
        return cls(computations, entry)

    @cached_property
    def identity(self) -> str:
        """``sha256:…`` of what the entry computes."""
        known: dict[str, str] = {}

        def computation(name: str) -> str:
            if name not in known:
                known[name] = name  # a computation calls no other that calls it
                own: dict[str, str] = {}
                root = ""
                for called, is_root, text in self.computations[name]:
                    for pattern in _PLACEMENT:
                        text = pattern.sub("", text)
                    text = _NAME.sub(lambda found: own.get(found[1]) or outside(found[1]), text)
                    own[called] = hashlib.sha256(text.encode()).hexdigest()
                    root = own[called] if is_root else root
                known[name] = root
            return known[name]

        def outside(name: str) -> str:
            return computation(name) if name in self.computations else name

        return f"sha256:{computation(self.entry)}"

    @cached_property
    def cycles(self) -> tuple[int, int]:
        """Estimated cycles, loops counted as often as they turn; and how many instructions of weight have no estimate."""
        total = missing = 0
        for _, text, times in self._executed():
            if found := _CYCLES.search(text):
                total += times * int(found[1])
            elif "tpu_custom_call" in text and not _attention(text):
                missing += times
        return total, missing

    @cached_property
    def collectives(self) -> list[Collective]:
        """What moves between devices."""
        found = []
        for _, text, times in self._executed():
            if kind := _COLLECTIVE.search(text):
                shapes = _SHAPE.findall(text[: kind.start()])
                sizes = [_size(dtype, dims) for dtype, dims in shapes]
                # One that is begun here and ended elsewhere names what it is given, too.
                size = max(sizes, default=0.0) if kind[2] else sum(sizes)
                group = _group(text)
                size *= group if kind[1] == "reduce-scatter" and not kind[2] else 1
                found.append(Collective(kind[1], "+".join(sorted({dtype for dtype, _ in shapes})), size, times, group))
        return found

    @cached_property
    def kernel_flops(self) -> float:
        """FLOPs of the splash attention kernels, for which the compiler has no estimate: of causal blocks alone."""
        return sum(times * _attention(text) for _, text, times in self._executed() if "tpu_custom_call" in text)

    def _executed(self, name: str = "", times: int = 1) -> list[tuple[str, str, int]]:
        """Instructions of the entry and of the loops in it, and how often each is executed."""
        made = []
        for called, _, text in self.computations.get(name or self.entry, ()):
            if loop := _LOOP.search(text):
                turns = int(trips[1]) if (trips := _TRIPS.search(text)) else max(self._limits(loop[1]), default=1)
                made += self._executed(loop[2], times * turns)
            else:
                made.append((called, text, times))
        return made

    def _limits(self, condition: str) -> list[int]:
        """Whole numbers that a loop's condition may compare with: XLA's loops over layers and pieces count up to one."""
        found = []
        for _, _, text in self.computations.get(condition, ()):
            found += [int(limit[1]) for limit in _LIMIT.finditer(text)]
            found += [limit for called in _CALLS.findall(text) for limit in self._limits(called)]
        return found


def _group(text: str) -> int:
    """Among how many devices a collective moves."""
    found = _GROUPS.search(text)
    if found is None:
        return 0
    if found[2] or found[1]:
        return int(found[2]) if found[2] else len(found[1].split(","))
    sizes = dict(part.split("=") for part in found[3].split(","))
    return math.prod(int(sizes[axis]) for axis in found[4].split(","))


def _attention(text: str) -> float:
    """FLOPs of a splash attention kernel by the shape [..., positions, size] of its queries; 0 of another kernel."""
    kind, queries = _SPLASH.search(text), _QUERIES.search(text)
    if kind is None or queries is None:
        return 0.0
    shape = [int(side) for side in queries[1].split(",")]
    positions = shape[-2]
    blocks = max(1, positions // int(found[1])) if (found := _BLOCKS.search(text)) else 1
    causal = (blocks + 1) / (2 * blocks)
    return _PRODUCTS[kind[1]] * 2.0 * math.prod(shape) * positions * causal


def _size(dtype: str, dims: str) -> float:
    count = 1
    for side in filter(None, dims.split(",")):
        count *= int(side)
    return count * _WIDTHS.get(dtype, 4)
