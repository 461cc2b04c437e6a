"""Verdicts and the report of a verification: plain values, as JSON and as lines."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ledger import LedgerError, NotFound, StorageFailed, Unavailable
from marin.errors import DataMissing, MissingEvidence, NotInstalled, Unsupported, UsageError
from marin.kinds.claim import Claim
from marin.provenance.extras import not_installed
from marin.record.verdicts import NAMES, SHOWN
from marin.verify.segments.compare import Divergence
from marin.verify.segments.sampling import Mode

if TYPE_CHECKING:
    from marin.verify.segments.explanation import Explanation
    from marin.verify.segments.screening import Screening

logger = logging.getLogger(__name__)

Outcome = Literal["PASS", "PARTIAL", "FAIL", "NOT_RUN", "UNAVAILABLE", "UNSUPPORTED"]
WORST_FIRST: tuple[Outcome, ...] = ("FAIL", "UNSUPPORTED", "UNAVAILABLE", "NOT_RUN", "PARTIAL", "PASS")


@dataclass(frozen=True)
class Verdict:
    """One of the answers. ``lines`` say what was looked at or, on failure, what is wrong and where. ``executed``:
    the outcome was found by executing the installed code, so that it says something about the run only as far as that
    is the run's code. ``defined``: or as far as what was executed is a definition that the run recorded, which no code
    changes (:mod:`marin.verify.segments.programs`)."""

    outcome: Outcome
    lines: tuple[str, ...] = ()
    executed: bool = False
    defined: bool = False


NOT_RUN = Verdict("NOT_RUN")


def outcome_of(error: LedgerError) -> Outcome:
    """The verdict that an error means when it stops a judge."""
    if isinstance(error, Unsupported | UsageError):  # a setting of this machine or user: it says nothing about the run
        return "UNSUPPORTED"
    if isinstance(error, Unavailable | MissingEvidence | NotInstalled | NotFound | DataMissing | StorageFailed):
        return "UNAVAILABLE"
    return "FAIL"


def judge_safely(judge: Callable[[], Verdict]) -> Verdict:
    """The verdict of ``judge``; an error of the ledger's tree becomes the verdict that it means. What a library makes of
    bytes that were brought is never the end of the program: nothing is established, and nobody accused."""
    try:
        return judge()
    except LedgerError as error:
        return Verdict(outcome_of(error), (str(error),))
    except (MemoryError, RecursionError) as error:  # the last net: budgets say more where they are met first
        what = "memory" if isinstance(error, MemoryError) else "depth"
        return Verdict("UNAVAILABLE", (f"what was brought asks for more {what} than this process may take",))
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and (absent := not_installed(error)) is not None:
            return Verdict("UNAVAILABLE", (str(absent),))
        logger.debug("a judge ended", exc_info=True)
        said = f"the installed code can do nothing with what was recorded: {type(error).__name__}: {error}"
        return Verdict("UNAVAILABLE", (said,))
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # what pyo3 makes of a panic in Rust is not an Exception
            raise
        said = f"a library can do nothing with what was recorded: {' '.join(str(error).split())[:200]}"
        return Verdict("UNAVAILABLE", (said,))


def explained[T, U](explain: Callable[[], T], without: U) -> T | U:
    """What says more of a difference that was found. It reads what was brought, and whatever comes of that takes nothing from
    the difference."""
    try:
        return explain()
    except (Exception, MemoryError, RecursionError) as error:
        logger.info("nothing more is said of it: %s: %s", type(error).__name__, error)
        return without


def worst(outcomes: Collection[Outcome]) -> Outcome:
    """The one that decides; PASS where there is none."""
    return min(outcomes, key=WORST_FIRST.index, default="PASS")


@dataclass(frozen=True)
class TrainingSummary:
    """How training was replayed. ``mode``: every segment, a drawn sample, those that cover a range of train steps, or
    none. ``seconds``: wall time, 0 where it was not measured. ``segments_taken``: taken from the reproducer's own earlier
    events. ``command``: the reproducer's own one that executed a loop of its user's own; "" where the installed code
    trains."""

    mode: Mode | Literal["none"]
    segments_total: int
    segments_replayed: int
    workers: int
    seconds: float
    segments_taken: int = 0
    command: str = ""

    def as_json(self) -> dict[str, Any]:
        """As ``marin verify --json`` prints it; ``command`` only where there was one."""
        told: dict[str, Any] = {
            "mode": self.mode,
            "segments_total": self.segments_total,
            "segments_replayed": self.segments_replayed,
            "workers": self.workers,
            "seconds": round(self.seconds, 3),
        }
        return told | ({"command": self.command} if self.command else {})


@dataclass(frozen=True)
class EvaluationSummary:
    """How recorded evaluations were judged: how many there are, their requests, those answered again, and where the first
    difference is."""

    recorded: int
    requests: int
    answered: int
    first_difference: str | None = None

    def as_json(self) -> dict[str, Any]:
        """As ``marin verify --json`` prints it."""
        return {
            "recorded": self.recorded,
            "requests_total": self.requests,
            "requests_answered": self.answered,
            "first_difference": self.first_difference,
        }


@dataclass(frozen=True)
class Report:
    """Everything a verification found.

    ``wanted``: the verdicts that were asked for. ``claims``: what the run claims, each with how it is established.
    ``event``: index of its replay.completed, None when it was not recorded. ``remarks``: differences of code and
    environment that explain or qualify the verdicts. ``losses``: train step -> loss that was found. ``screening``: what
    a look at the recorded states found; None when nobody looked. ``pages``: those that lie beside the log, where it is
    published with some; a verdict on what is shown of the run, and not on the run.
    """

    run: str
    verdicts: Mapping[str, Verdict]
    training: TrainingSummary
    divergence: Divergence | None
    origin: str
    size: int
    root: str
    remarks: tuple[str, ...]
    wanted: Collection[str] = NAMES
    claims: Sequence[Claim] = ()
    event: int | None = None
    losses: Mapping[int, float] = field(default_factory=dict)
    screening: Screening | None = None
    explanation: Explanation | None = None
    evaluation: EvaluationSummary = EvaluationSummary(0, 0, 0)
    pages: Verdict | None = None

    def verdict(self, name: str) -> Verdict:
        """The verdict of this name; one that is missing was not run."""
        return self.verdicts.get(name, NOT_RUN)

    def exit_code(self) -> int:
        """0: all that was asked for passes. 1: one fails. 3: something is unavailable, unsupported or was not run
        without being asked for, and nothing failed. 4: something is partial, and nothing worse."""
        outcomes = {self.verdicts[name].outcome for name in self.wanted}
        outcomes |= {verdict.outcome for verdict in self.verdicts.values() if verdict.outcome == "FAIL"}
        outcomes |= {self.pages.outcome} if self.pages is not None else set()
        decisive = worst(outcomes)
        return {"PASS": 0, "FAIL": 1, "PARTIAL": 4}.get(decisive, 3)

    def first_divergence(self) -> dict[str, Any] | None:
        """The first difference as JSON."""
        found = self.divergence
        if found is None:
            return None
        return {
            "step": found.step,
            "tensors": list(found.tensors),
            "expected": found.expected,
            "found": found.found,
            "explanation": found.explanation,
            "details": {
                "after_step": found.details_after,
                "tensors": [
                    asdict(one) | {"shape": list(one.shape), "layers": list(one.layers)} for one in found.details
                ],
            }
            if found.details
            else None,
        }

    def as_json(self) -> dict[str, Any]:
        """The object that ``marin verify --json`` prints."""
        return {
            "run": self.run,
            "verdicts": {name: self.verdict(name).outcome for name in SHOWN},
            "details": {name: list(self.verdict(name).lines) for name in SHOWN},
            "training": self.training.as_json(),
            "evaluation": self.evaluation.as_json(),
            "first_divergence": self.first_divergence(),
            "log_checkpoint": {"origin": self.origin, "size": self.size, "root": self.root},
            "claims": [claim.as_json() for claim in self.claims],
            "claimed": [claim.text for claim in self.claims if claim.status == "claimed"],
            "segments_taken": self.training.segments_taken,
            "remarks": list(self.remarks),
            "pages": {"verdict": self.pages.outcome, "details": list(self.pages.lines)}
            if self.pages is not None
            else None,
            "screening": self.screening.as_json() if self.screening is not None else None,
            "explanation": self.explanation.as_json() if self.explanation is not None else None,
            "event": self.event,
        }
