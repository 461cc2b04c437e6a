"""Verdicts and the report of a verification: plain values, as JSON and as lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ledger import LedgerError, NotFound, StorageFailed, Unavailable
from marin.errors import DataMissing, MissingEvidence, Unsupported, UsageError
from marin.replay.compare import Divergence
from marin.replay.explanation import Explanation
from marin.replay.screening import Screening

Outcome = Literal["PASS", "FAIL", "NOT_RUN", "UNAVAILABLE", "UNSUPPORTED"]
NAMES = ("ledger", "artifacts", "data", "training", "model")


@dataclass(frozen=True)
class Verdict:
    """One of the five answers. ``lines`` say what was looked at or, on failure, what is wrong and where."""

    outcome: Outcome
    lines: tuple[str, ...] = ()


NOT_RUN = Verdict("NOT_RUN")


def outcome_of(error: LedgerError) -> Outcome:
    """The verdict that an error means when it stops a judge."""
    if isinstance(error, Unsupported | UsageError):  # a setting of this machine or user: it says nothing about the run
        return "UNSUPPORTED"
    if isinstance(error, Unavailable | MissingEvidence | NotFound | DataMissing | StorageFailed):
        return "UNAVAILABLE"
    return "FAIL"


@dataclass(frozen=True)
class TrainingSummary:
    """How training was replayed. ``mode``: every segment, a drawn sample, those that cover a range of train steps, or
    none. ``seconds``: wall time. ``segments_taken``: taken from the reproducer's own earlier events."""

    mode: Literal["full", "sampled", "range", "none"]
    segments_total: int
    segments_replayed: int
    workers: int
    seconds: float
    segments_taken: int = 0


@dataclass(frozen=True)
class Report:
    """Everything a verification found. ``event``: index of its replay.completed, None when it was not recorded.
    ``remarks``: differences of code and environment that explain or qualify the verdicts. ``losses``: train step -> loss
    that was found. ``screening``: what a look at the recorded states found; None when nobody looked."""

    run: str
    verdicts: Mapping[str, Verdict]
    training: TrainingSummary
    divergence: Divergence | None
    origin: str
    size: int
    root: str
    remarks: tuple[str, ...]
    event: int | None = None
    losses: Mapping[int, float] = field(default_factory=dict)
    screening: Screening | None = None
    explanation: Explanation | None = None

    def exit_code(self) -> int:
        """0: all that ran pass. 1: one fails. 3: something was unavailable or unsupported and nothing failed."""
        outcomes = {verdict.outcome for verdict in self.verdicts.values()}
        if "FAIL" in outcomes:
            return 1
        return 3 if outcomes & {"UNAVAILABLE", "UNSUPPORTED"} else 0

    def first_divergence(self) -> dict[str, Any] | None:
        """The first difference as JSON."""
        found = self.divergence
        if found is None:
            return None
        return {"step": found.step, "tensors": list(found.tensors), "expected": found.expected, "found": found.found,
                "explanation": found.explanation,
                "details": {"after_step": found.details_after, "tensors": [
                    {"path": d.path, "dtype": d.dtype, "shape": list(d.shape), "differing": d.differing,
                     "largest_ulp": d.largest_ulp, "layers": list(d.layers)} for d in found.details]} if found.details else None}

    def as_json(self) -> dict[str, Any]:
        """The object that ``marin verify --json`` prints."""
        return {
            "run": self.run,
            "verdicts": {name: self.verdicts[name].outcome for name in NAMES},
            "details": {name: list(self.verdicts[name].lines) for name in NAMES},
            "training": {"mode": self.training.mode, "segments_total": self.training.segments_total,
                         "segments_replayed": self.training.segments_replayed, "workers": self.training.workers,
                         "seconds": round(self.training.seconds, 3)},
            "first_divergence": self.first_divergence(),
            "log_checkpoint": {"origin": self.origin, "size": self.size, "root": self.root},
            "segments_taken": self.training.segments_taken,
            "remarks": list(self.remarks),
            "screening": self.screening.as_json() if self.screening is not None else None,
            "explanation": self.explanation.as_json() if self.explanation is not None else None,
            "event": self.event,
        }
