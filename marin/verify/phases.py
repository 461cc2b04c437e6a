"""The verdicts on a phase and on the run that it continues, as one report.

A phase stands on the state that it began with. So its verification walks the chain: each run before it is judged up to
the state that was taken over, and each link is checked against both records. The report keeps the shape of one run's:
the worst verdict of the chain, the lines of every phase, the first difference in the order of the train steps.
"""

from __future__ import annotations

from dataclasses import replace

from marin.verify.segments.compare import Divergence
from marin.verify.verdict import Report, TrainingSummary, Verdict, worst


def joined(report: Report, before: Report, broken: str | None, step: int) -> Report:
    """``report`` of a phase together with that of the run ``before`` it.

    Args:
        broken: what is wrong with the link between them, at train step ``step``, from the records alone.
    """
    verdicts = {
        name: _together(verdict, before.verdicts[name], before.run) if name in before.wanted else verdict
        for name, verdict in report.verdicts.items()
    }
    divergence = before.divergence or report.divergence
    if broken is not None:
        line = f"this run is not the continuation of run {before.run}: {broken}"
        for name in ("ledger", "training"):
            if name in report.wanted:
                verdicts[name] = Verdict("FAIL", (line, *verdicts[name].lines))
        divergence = before.divergence or Divergence(
            step, (), f"the continuation of run {before.run}", broken, "the chain of phases is broken"
        )
    return replace(
        report,
        verdicts=verdicts,
        divergence=divergence,
        training=_summed(before.training, report.training),
        remarks=(*report.remarks, *(f"run {before.run}: {line}" for line in before.remarks)),
        claims=(*report.claims, *(replace(claim, text=f"phase before, {claim.text}") for claim in before.claims)),
    )


def _together(own: Verdict, before: Verdict, run: str) -> Verdict:
    """The worse of the two; where one passes and the other looked at less, it is partial."""
    outcomes = {own.outcome, before.outcome}
    mixed = len(outcomes) > 1 and outcomes <= {"PASS", "PARTIAL", "NOT_RUN"}
    lines = (line if line.startswith("phase before") else f"phase before, run {run}: {line}" for line in before.lines)
    return Verdict("PARTIAL" if mixed else worst(outcomes), (*own.lines, *lines))


def _summed(before: TrainingSummary, own: TrainingSummary) -> TrainingSummary:
    total, replayed = before.segments_total + own.segments_total, before.segments_replayed + own.segments_replayed
    mode = own.mode if before.mode == own.mode else "sampled" if "sampled" in (before.mode, own.mode) else "range"
    return replace(
        own,
        mode=mode,
        segments_total=total,
        segments_replayed=replayed,
        seconds=before.seconds + own.seconds,
        segments_taken=before.segments_taken + own.segments_taken,
    )
