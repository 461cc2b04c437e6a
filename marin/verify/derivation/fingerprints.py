"""The fingerprint of a train step, derived from what else is recorded of the step. Pure.

``train.segment`` has one digest per step: over the loss and the gradient norm (float32) and the fingerprints of all
tensors after the step, which the stored trace holds. Where all three are recorded, the digest follows from them, so that
a changed loss, norm or trace is found without executing anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from marin.record.events import TrainSegment
from marin.record.fingerprint import step_fingerprint


@dataclass(frozen=True)
class Unfounded:
    """A train step whose recorded fingerprint is not that of its recorded loss, gradient norm and trace."""

    step: int
    expected: str
    found: str

    def __str__(self) -> str:
        return (
            f"train step {self.step}: loss, gradient norm and trace as recorded have the fingerprint {self.expected}, "
            f"recorded is {self.found}"
        )


def underivable_steps(segment: TrainSegment, norms: Mapping[int, str], trace: bytes) -> list[Unfounded]:
    """The steps of a segment whose fingerprint does not follow from the rest of the record."""
    length = segment.end - segment.start
    width = len(trace) // length if length > 0 else 0
    found = []
    for offset, (loss, recorded) in enumerate(zip(segment.losses, segment.fingerprints, strict=False)):
        norm = norms.get(segment.start + offset)
        if norm is None:
            continue
        row = trace[offset * width : (offset + 1) * width]
        try:
            derived = step_fingerprint(float.fromhex(loss), float.fromhex(norm), row)
        except OverflowError:
            derived = "no float32"
        if derived != recorded:
            found.append(Unfounded(segment.start + offset, derived, recorded))
    return found
