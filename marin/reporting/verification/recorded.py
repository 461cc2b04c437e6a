"""The newest verdicts on a run as the page that ``marin verify --html`` writes, from what the ledger says of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

from ledger import LedgerError
from marin.errors import MissingEvidence
from marin.history import runs
from marin.history.run import Run, representative
from marin.kinds.claim import Claim
from marin.pipeline.stages import PIPELINE
from marin.preregistration.called import name_in
from marin.record.events import ReplayCompleted
from marin.record.root import Root
from marin.record.verdicts import SHOWN
from marin.reporting.verification.page import page, preview_of
from marin.reporting.verification.segments import reproducers
from marin.verify.derivation.claims import derive, settle_claims
from marin.verify.derivation.record import read_record
from marin.verify.segments.compare import Divergence
from marin.verify.verdict import NOT_RUN, Outcome, Report, TrainingSummary, Verdict


def verification_page(root: Root, run: str, preview: str = "") -> bytes:
    """The page of the last ``replay.completed`` of a run, with the address of its picture; MissingEvidence when nobody has
    replayed it."""
    view, report = _newest_report(root, run)
    return page(report, view, reproducers(root, view), preview, name_in(root.history(), view)).encode()


def verification_picture(root: Root, run: str) -> bytes:
    """The picture that a link to this page shows."""
    view, report = _newest_report(root, run)
    return preview_of(report, view, name_in(root.history(), view))


def _newest_report(root: Root, run: str) -> tuple[Run, Report]:
    view = runs.load(root.history(), run)
    if not view.verdicts:
        raise MissingEvidence(
            "nobody has replayed the run",
            where=f"run {run}",
            expected="a verdict",
            found="none",
            cure=f"marin verify {run}",
        )
    fact = representative(view.verdicts, view.answerable)
    report = report_of(fact.body, fact.index)
    return view, replace(report, claims=_claims(root, report))


def _claims(root: Root, report: Report) -> tuple[Claim, ...]:
    """What the run claims, and what came of it by these verdicts; nothing where its record cannot be read."""
    outcomes = {name: verdict.outcome for name, verdict in report.verdicts.items()}
    try:
        return settle_claims(derive(read_record(root.history(), report.run), PIPELINE), outcomes)
    except LedgerError:
        return ()


def report_of(body: ReplayCompleted, event: int) -> Report:
    """The report as far as its event tells it. What does not have the shape of a report is left out, never guessed."""
    verdicts = {name: _verdict(body, name) for name in SHOWN}
    training, log = body.training, body.log_checkpoint
    mode = training.get("mode")
    summary = TrainingSummary(
        mode if mode in ("full", "sampled", "range") else "none",
        _count(training, "segments_total"),
        _count(training, "segments_replayed"),
        _count(training, "workers"),
        _seconds(training),
        _count(training, "segments_taken"),
        command if isinstance(command := training.get("command"), str) else "",
    )
    return Report(
        run=body.run,
        verdicts=verdicts,
        training=summary,
        divergence=_divergence(body.first_divergence),
        origin=str(log.get("origin", "")),
        size=_count(log, "size"),
        root=str(log.get("root", "")),
        remarks=(),
        event=event,
    )


def _verdict(body: ReplayCompleted, name: str) -> Verdict:
    for outcome in get_args(Outcome):
        if body.verdicts.get(name) == outcome:
            return Verdict(outcome, tuple(body.details.get(name, ())))
    return NOT_RUN


def _count(values: Any, name: str) -> int:
    found = values.get(name)
    return int(found) if isinstance(found, int | float) else 0


def _seconds(values: Any) -> float:
    found = values.get("seconds")
    return float(found) if isinstance(found, int | float) else 0.0


def _divergence(found: Any) -> Divergence | None:
    if not isinstance(found, dict):
        return None
    step, tensors = found.get("step"), found.get("tensors")
    return Divergence(
        step if isinstance(step, int) else None,
        tuple(map(str, tensors)) if isinstance(tensors, list) else (),
        str(found.get("expected", "")),
        str(found.get("found", "")),
        str(found.get("explanation", "")),
    )
