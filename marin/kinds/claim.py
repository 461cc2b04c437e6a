"""What the record of a run amounts to: sentences that can be established, and where it contradicts itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Basis = Literal["signature", "hash", "execution", "claimed"]
Status = Literal["established", "contradicted", "open", "claimed"]


@dataclass(frozen=True)
class Claim:
    """One sentence that the record amounts to.

    ``verdict``: which one looks at it; "" where none can. ``event``: where in the log it is said. ``steps``:
    the train steps it is about, if it is about some. ``status``: what came of it (``open``: it could be established and
    was not).
    """

    text: str
    basis: Basis
    verdict: str = ""
    event: int | None = None
    steps: tuple[int, int] | None = None
    status: Status = "open"

    def as_json(self) -> dict[str, Any]:
        """As ``marin verify --json`` prints it."""
        return {
            "claim": self.text,
            "by": self.basis,
            "verdict": self.verdict or None,
            "event": self.event,
            "status": self.status,
        }


@dataclass(frozen=True)
class Contradiction:
    """One event that does not agree with the others: its index, the field, and the step of the pipeline it is about."""

    index: int
    field: str
    expected: str
    found: str
    step: str = ""

    def __str__(self) -> str:
        about = f" of step {self.step}" if self.step else ""
        return f"event {self.index}, {self.field}{about}: expected {self.expected}, found {self.found}"
