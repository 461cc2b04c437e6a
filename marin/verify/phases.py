"""The verdicts on a phase and on the run that it continues, as one report.

A phase stands on the state that it began with. So its verification walks the chain: each run before it is judged up to
the state that was taken over, and each link is checked against both records. The report keeps the shape of one run's:
the worst verdict of the chain, the lines of every phase, the first difference in the order of the train steps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from ledger import LedgerError
from marin.execution import phases
from marin.history.run import Run
from marin.history.runs import History
from marin.record.events import Continues
from marin.verify.segments.compare import Divergence
from marin.verify.verdict import Report, TrainingSummary, Verdict, outcome_of, worst


def with_phases_before(
    report: Report,
    history: History,
    run: Run,
    wanted: Collection[str],
    judge: Callable[[str, Continues], tuple[Run, Report]],
) -> Report:
    """``report`` of ``run``, a phase, joined with those of the runs that it continues, as far as they are ``wanted``.

    ``judge``: a run by its id, up to the state that was taken over, and its report. An entry point of ``marin.judges``.
    """
    try:
        chain = phases.chain(history, run)
    except LedgerError as error:
        broken = Verdict(outcome_of(error), (str(error),))
        return replace(report, verdicts={**report.verdicts, **dict.fromkeys(wanted, broken)})
    after = run
    for before in reversed(chain[:-1]):
        link = after.started.body.continues
        assert link is not None  # the chain walked it
        earlier, its_own = judge(before.run, link)
        report = join_reports(report, its_own, phases.broken_link(earlier, after), link.step)
        after = before
    return report


def join_reports(report: Report, before: Report, broken: str | None, step: int) -> Report:
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
