"""Whether the events of a run agree with one another, and whether all of them are known: one answer for every door.

The verdict ``ledger`` is this answer and the signatures. Dossiers and certificates are judged by it from the events that they
bring, and what repeats numbers of a run (a card, a log for MLPerf, attestations, a run for W&B) is not written of a run whose
events contradict one another. Nothing is executed or hashed for it: what events say of bytes stays a claim here.
"""

from __future__ import annotations

from ledger import LedgerError, Tampered
from marin.history.run import Run
from marin.history.runs import History
from marin.pipeline.stages import PIPELINE
from marin.record.events import Continues
from marin.verify.derivation.record import RunRecord, read_record
from marin.verify.derivation.records import contradictions, unexplained
from marin.verify.verdict import Verdict


def judge_record(record: RunRecord, *, until: Continues | None = None) -> Verdict:
    """FAIL where the events of a run contradict one another; UNAVAILABLE where something is among them that nothing here
    derives. ``until``: where a later phase went on from it."""
    if found := contradictions(record, PIPELINE):
        return Verdict("FAIL", tuple(f"the records contradict each other: {item}" for item in found))
    if unknown := unexplained(record, PIPELINE, until=until):
        return Verdict("UNAVAILABLE", tuple(f"only claimed: {item}" for item in unknown))
    count = sum(len(stretch.events) for stretch in record.stretches)
    return Verdict("PASS", (f"{count} events of the run agree with one another",))


def consistent_run(history: History, run: str) -> Run:
    """The run with exactly this id, to repeat elsewhere what it says.

    Raises:
        Tampered: its events contradict one another.
        MissingEvidence: the log lacks its beginning, or that of a run that it took a step from.
    """
    record = read_record(history, run)
    for found in contradictions(record, PIPELINE)[:1]:
        raise Tampered(
            "the events of the run contradict one another",
            where=f"run {run}, event {found.index}, {found.field}",
            expected=found.expected,
            found=found.found,
            cure=f"nothing is repeated of it; see: marin verify {run} --only ledger",
        )
    return record.run


def contradiction(history: History, run: str) -> str:
    """The first place in which the events of a run contradict one another, for anyone who shows its numbers; "" where they
    agree. A graph's execution and what cannot be read as a record say nothing twice."""
    try:
        found = contradictions(read_record(history, run), PIPELINE)
    except LedgerError:
        return ""
    return str(found[0]) if found else ""
