"""What a look at recorded states found, without replay: suspicions, and what no honest execution can have done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Check = Literal["state", "counters", "reach", "second moment", "first moment", "norm"]


@dataclass(frozen=True)
class Finding:
    """One suspicion. ``position``: of the segment ``[start, end)`` among all. ``proof``: no honest execution of the
    recipe can have done it; otherwise it is only unusual. ``score`` orders them."""

    position: int
    start: int
    end: int
    check: Check
    tensor: str
    text: str
    proof: bool
    score: float = 0.0

    def describe(self) -> str:
        """One line for people."""
        kind = "impossible" if self.proof else "unusual"
        where = f" in {self.tensor}" if self.tensor else ""
        return f"screening: train steps {self.start} to {self.end - 1}: {kind} {self.check}{where}: {self.text}"


@dataclass(frozen=True)
class Screening:
    """What a look at the recorded states found. ``segments``: how many could be looked at, of ``total``."""

    segments: int
    total: int
    seconds: float
    findings: tuple[Finding, ...]

    @property
    def violations(self) -> tuple[Finding, ...]:
        """Findings that no honest execution explains."""
        return tuple(finding for finding in self.findings if finding.proof)

    @property
    def suspicious(self) -> tuple[int, ...]:
        """Positions of segments with findings, the worst first."""
        ranked = sorted(self.findings, key=lambda finding: (not finding.proof, -finding.score, finding.position))
        return tuple(dict.fromkeys(finding.position for finding in ranked))

    def as_json(self) -> dict[str, Any]:
        """As ``marin verify --json`` prints it."""
        return {
            "segments": self.segments,
            "segments_total": self.total,
            "seconds": round(self.seconds, 3),
            "findings": [
                {"steps": [f.start, f.end], "check": f.check, "tensor": f.tensor, "proof": f.proof, "text": f.text}
                for f in self.findings
            ],
        }
