"""What was recorded against what was found: pure comparisons that name the first difference.

The order of questions is that of causes: are the records themselves a chain, did the step see the same tokens, does
the state after it differ and in which tensors, is only the recorded number wrong.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from ledger import digest_bytes
from marin.process.text import clipped
from marin.record.events import TrainSegment, is_one_value
from marin.verify.derivation.series import Measured
from marin.verify.segments.ordering import by_execution

COMPILED = ("optimised", "device_kind", "compiler")
"""Of a recorded program, what came with the step layer by layer."""
TOKENS = "the step saw other tokens (data)"
INITIAL = "the initial state differs"
MEASURED = "the recorded measurement is not what the step gives"
NO_CHAIN = "the recorded segments do not follow each other"
BROKEN = "a segment starts from another state than the one before it ended in"
NOT_EACH = "a segment does not hold one record per train step"
MISSING = "train steps are missing from the record"
ELSEWHERE = "the last segment ends in another state than the step's output"
ANOTHER_START = "the segment starts from another state"
STATE, SCALARS = "the state after the step differs", "loss or gradient norm differ"
LOSS = "the recorded loss is not the one that its own fingerprint covers"
END = "the recorded state is not the one that the steps lead to"
TRACE = "the recorded trace is not the one that the fingerprints cover"
"""What a divergence is about, where others ask."""


@dataclass(frozen=True)
class TensorDifference:
    """How one tensor differs. ``differing``: elements with other bits. ``largest_ulp``: the greatest distance of two
    such elements in units in the last place; -1 where one of them is not a number. ``layers``: for tensors that stack all
    layers, those that differ."""

    path: str
    dtype: str
    shape: tuple[int, ...]
    differing: int
    largest_ulp: int
    layers: tuple[int, ...] = ()

    def describe(self) -> str:
        """One line for people."""
        far = "one is not a number" if self.largest_ulp < 0 else f"by at most {self.largest_ulp} ulp"
        layers = f", layers {', '.join(map(str, self.layers[:8]))}" if self.layers else ""
        return f"{self.path} {self.dtype}{list(self.shape)}: {self.differing} of {math.prod(self.shape)} elements, {far}{layers}"


@dataclass(frozen=True)
class Divergence:
    """The first difference. ``step``: train step, or None when it is not about one. ``tensors``: paths, in order of
    execution; empty when it is not about the state. ``details``: element by element, in the state after train step
    ``details_after``, which is the next one after ``step`` whose state was stored."""

    step: int | None
    tensors: tuple[str, ...]
    expected: str
    found: str
    explanation: str
    details: tuple[TensorDifference, ...] = ()
    details_after: int | None = None

    def describe(self) -> str:
        """One line for people."""
        at = f"train step {self.step}: " if self.step is not None else ""
        shown = ", ".join(self.tensors[:4]) + (f" and {len(self.tensors) - 4} more" if len(self.tensors) > 4 else "")
        tensors = f" in {shown}" if self.tensors else ""
        return f"{at}{self.explanation}{tensors}: expected {self.expected}, found {self.found}"

    def lines(self) -> tuple[str, ...]:
        """:meth:`describe`, and a line for each of the first tensors that could be compared element by element."""
        return (
            self.describe(),
            *(f"after train step {self.details_after}: {detail.describe()}" for detail in self.details[:8]),
        )


@dataclass(frozen=True)
class ReplayedSegment:
    """What a replay of a segment computed, in the terms of ``train.segment``; ``trace`` is its per-tensor record, ``measured``
    what was measured of each train step, by name."""

    losses: Sequence[str]
    batches: Sequence[str]
    fingerprints: Sequence[str]
    start_state: str
    end_state: str
    trace: bytes
    measured: Mapping[str, Sequence[float]] = field(default_factory=dict)


def chain(
    segments: Sequence[TrainSegment],
    num_steps: int,
    final_state: str,
    *,
    first: int = 0,
    first_state: str | None = None,
) -> Divergence | None:
    """Whether the recorded segments follow each other without a gap, from train step ``first`` to before ``num_steps``
    in the final state. ``first_state``: what they begin with, where that is recorded elsewhere too (a phase)."""
    at, state = first, first_state
    for segment in segments:
        start = segment.start
        if start != at:
            return Divergence(min(at, start), (), f"a segment from step {at}", f"one from step {start}", NO_CHAIN)
        if state is not None and segment.start_state != state:
            return Divergence(start, (), state, segment.start_state, BROKEN)
        if not segment.is_whole:
            return Divergence(start, (), f"{segment.end - start} records of each kind", segment.counts, NOT_EACH)
        at, state = segment.end, segment.end_state
    if at != num_steps:
        return Divergence(at, (), f"segments up to step {num_steps}", f"up to step {at}", MISSING)
    if state != final_state:
        return Divergence(num_steps - 1, (), final_state, str(state), ELSEWHERE)
    return None


def segment(
    recorded: TrainSegment,
    found: ReplayedSegment,
    recorded_trace: bytes | None,
    tensors: Sequence[str],
    end_tensors: Sequence[str] = (),
    measured: Measured | None = None,
) -> Divergence | None:
    """The first train step of a segment that differs, or None. ``tensors``: paths in the order of the traces;
    ``end_tensors``: those in which the recorded end state differs from the found one, as far as its list is there;
    ``measured``: what is recorded of that."""
    if recorded.start_state != found.start_state:
        return Divergence(recorded.start, (), recorded.start_state, found.start_state, ANOTHER_START)
    for offset, step in enumerate(range(recorded.start, recorded.end)):
        if recorded.batches[offset] != found.batches[offset]:
            return Divergence(step, (), recorded.batches[offset], found.batches[offset], TOKENS)
        expected, made = recorded.fingerprints[offset], found.fingerprints[offset]
        if expected != made:
            differing = trace_difference(recorded_trace, found.trace, offset, tensors)
            return Divergence(step, differing, expected, made, STATE if differing else SCALARS)
        if recorded.losses[offset] != found.losses[offset]:
            return Divergence(step, (), recorded.losses[offset], found.losses[offset], LOSS)
    if recorded.end_state != found.end_state:
        last = recorded.end - 1
        return Divergence(last, by_execution(end_tensors), recorded.end_state, found.end_state, END)
    if recorded.trace != digest_bytes(found.trace):  # by the record: a stored trace may be kept back
        width, stored = 8 * len(tensors), recorded_trace or found.trace
        rows = (slice(at * width, (at + 1) * width) for at in range(recorded.end - recorded.start))
        offset = next((at for at, row in enumerate(rows) if stored[row] != found.trace[row]), 0)
        differing = trace_difference(recorded_trace, found.trace, offset, tensors)
        return Divergence(recorded.start + offset, differing, recorded.trace, digest_bytes(found.trace), TRACE)
    for name, values in found.measured.items():
        said = (measured or {}).get(name, {})
        for step, value in enumerate(values, recorded.start):
            if step in said and not is_one_value(name, float.fromhex(said[step]), value):
                return Divergence(step, (), said[step], value.hex(), f"{name}: {MEASURED}")
    return None


def trace_difference(recorded: bytes | None, found: bytes, offset: int, tensors: Sequence[str]) -> tuple[str, ...]:
    """Tensors whose fingerprints after step ``offset`` of the segment differ; empty when the recorded trace is gone."""
    width = 8 * len(tensors)
    if recorded is None or len(recorded) != len(found):
        return ()
    mine, theirs = (trace[offset * width : (offset + 1) * width] for trace in (recorded, found))
    return by_execution(name for i, name in enumerate(tensors) if mine[8 * i : 8 * i + 8] != theirs[8 * i : 8 * i + 8])


def differences(recorded: object, present: object, prefix: str = "") -> list[str]:
    """Lines ``path: recorded X, here Y`` for every leaf in which two JSON-shaped values differ."""
    if isinstance(recorded, dict) and isinstance(present, dict):
        lines = []
        for key in sorted(recorded.keys() | present.keys()):
            lines += differences(recorded.get(key), present.get(key), f"{prefix}.{key}" if prefix else str(key))
        return lines
    if recorded == present:
        return []
    return [f"{prefix}: recorded {_encoded(recorded)}, here {_encoded(present)}"]


def programs(recorded: Mapping[str, object], present: Mapping[str, object]) -> list[str]:
    """:func:`differences` of what was compiled. What an older release did not record does not differ: a function's program, or
    what the compiler made of it."""
    known, functions = recorded.get("functions"), present.get("functions")
    if isinstance(known, dict) and isinstance(functions, dict):
        functions = {name: digest for name, digest in functions.items() if name in known}
    present = {name: value for name, value in present.items() if name in recorded or name not in COMPILED}
    return differences(dict(recorded), {**present, "functions": functions})


def compiled(recorded: Mapping[str, object], present: Mapping[str, object]) -> list[str]:
    """:func:`programs` of what is known without tracing a program again: ``present`` has no functions."""
    return programs({name: value for name, value in recorded.items() if name != "functions"}, present)


def _encoded(value: object) -> str:
    text = msgspec.json.encode(value).decode() if not isinstance(value, str) else value
    return clipped(text, 80)
