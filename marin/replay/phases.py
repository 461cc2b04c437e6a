"""The verdicts on a phase and on the run that it continues, as one report.

A phase stands on the state that it began with. So its verification walks the chain: each run before it is judged up to
the state that was taken over, and each link is checked against both records. The report keeps the shape of one run's:
the worst verdict of the chain, the lines of every phase, the first difference in the order of the train steps.
"""

from __future__ import annotations

from dataclasses import replace

from marin.replay.compare import Divergence
from marin.replay.verdict import NOT_RUN, Outcome, Report, TrainingSummary, Verdict

WALKED = ("artifacts", "data", "training")
"""The verdicts that runs before are asked for. The log is one; the model is that of the last phase."""
_WORST_FIRST: tuple[Outcome, ...] = ("FAIL", "UNSUPPORTED", "UNAVAILABLE", "PASS", "NOT_RUN")


def joined(report: Report, before: Report, broken: str | None, step: int) -> Report:
    """``report`` of a phase together with that of the run ``before`` it. ``broken``: what is wrong with the link between
    them, at train step ``step``."""
    verdicts = {name: _worse(verdict, before.verdicts[name], before.run) if name in WALKED else verdict
                for name, verdict in report.verdicts.items()}
    divergence = before.divergence or report.divergence
    if broken is not None and verdicts["training"] != NOT_RUN:
        line = f"this run is not the continuation of run {before.run}: {broken}"
        verdicts["training"] = Verdict("FAIL", (line, *verdicts["training"].lines))
        divergence = before.divergence or Divergence(step, (), f"the continuation of run {before.run}", broken,
                                                     "the chain of phases is broken")
    return replace(report, verdicts=verdicts, divergence=divergence, training=_summed(before.training, report.training),
                   remarks=(*report.remarks, *(f"run {before.run}: {line}" for line in before.remarks)))


def _worse(own: Verdict, before: Verdict, run: str) -> Verdict:
    outcome = min(own.outcome, before.outcome, key=_WORST_FIRST.index)
    return Verdict(outcome, (*own.lines, *(line if line.startswith("phase before") else f"phase before, run {run}: {line}"
                                           for line in before.lines)))


def _summed(before: TrainingSummary, own: TrainingSummary) -> TrainingSummary:
    total, replayed = before.segments_total + own.segments_total, before.segments_replayed + own.segments_replayed
    mode = own.mode if before.mode == own.mode else "sampled" if "sampled" in (before.mode, own.mode) else "range"
    return replace(own, mode=mode, segments_total=total, segments_replayed=replayed, seconds=before.seconds + own.seconds)
