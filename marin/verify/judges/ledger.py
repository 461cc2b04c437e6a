"""The verdict ``ledger``: signatures, every tile and entry, and events that agree with one another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from ledger import ANCHORED, Event, LogReader, Storage, VerifierKey, check
from marin.record.trust.trusted import CLAIMED, WITNESSES
from marin.verify.agreement import judge_record
from marin.verify.case import Case
from marin.verify.derivation.record import RunRecord, is_verdict
from marin.verify.judges.loop import OWN
from marin.verify.verdict import Verdict

if TYPE_CHECKING:
    from marin.record.trust.evidence import Evidence

MOST_STRAYS = 4
"""How many entries that are not events a verdict names."""


class Outside(Protocol):
    """Those beside the log's own key whose word the verifier takes (:class:`marin.record.trust.evidence.Sources`)."""

    def gather(
        self, storage: Storage, reader: LogReader, keys: Sequence[VerifierKey], anchored: Sequence[tuple[int, Event]]
    ) -> Evidence:
        """What they say of this log. ``anchored`` are its events of type ``log.anchored/v1``."""


def judge_ledger(case: Case, reader: LogReader, seen: str, sources: Outside) -> Verdict:
    """Everything in the log derived again, and the run's own events. ``seen``: how the log agrees with what
    this user has seen of it before."""
    checkpoint = reader.checkpoint()
    anchored: list[tuple[int, Event]] = []
    # The bytes of this run are the verdict `artifacts`; those of other runs may be elsewhere.
    findings = check(
        case.root.storage, case.keys.verifiers, of_type={ANCHORED: anchored}, artifacts=False, continues=checkpoint
    )
    if wrong := [finding for finding in findings if not finding.stray]:
        return Verdict("FAIL", tuple(str(finding) for finding in wrong))
    outside = sources.gather(case.root.storage, reader, case.keys.verifiers, anchored)
    if outside.findings:
        return Verdict("FAIL", tuple(str(finding) for finding in outside.findings))
    verdict = judge_events(case)
    lines = [f"log {checkpoint.origin}: {checkpoint.size} events re-derived under root {checkpoint.root.hex()}"]
    if verdict.outcome == "PASS":  # what names this run is judged with its events
        lines += [f"beside the events, and no word of this run: {finding}" for finding in findings[:MOST_STRAYS]]
    if seen:
        lines.append(seen)
    lines += [*map(str, outside.vouched), *outside.undecided, *(f"{CLAIMED} {line}" for line in outside.claimed)]
    if verdict.outcome == "PASS" and not case.keys.mine:
        key = case.keys.verifiers[0]
        nobody = (
            f"no key of yours signed this log: for {key} there is only the root's word. If the operator gave you this "
            "key, run `marin trust add --vkey KEY`"
        )
        return Verdict("UNAVAILABLE", (nobody, *lines, *verdict.lines))
    witnessed = max((one.size for one in outside.vouched if one.kind == WITNESSES), default=None)
    if verdict.outcome == "PASS" and witnessed is not None and witnessed <= (last := last_event_of(case.record)):
        short = (
            f"your witnesses have not seen the end of this run: what they cosigned has the first {witnessed} events, and the "
            f"run's last is event {last}. Ask its operator for `marin ledger witness ask`"
        )
        return Verdict("PARTIAL", (short, *lines, *verdict.lines))
    return Verdict(verdict.outcome, (*(lines if verdict.outcome != "FAIL" else ()), *verdict.lines))


def judge_events(case: Case) -> Verdict:
    """The events of the run alone: whether they contradict one another, and whether something is among them that
    nothing here derives."""
    found = judge_record(case.record, until=case.until)
    if found.outcome == "PASS" and case.run.is_loop:
        return Verdict("PASS", (*found.lines, f"it was {OWN}"))
    return found


def last_event_of(record: RunRecord) -> int:
    """The last event that tells of the run, its execution or evaluation; verdicts on it came later."""
    told = [index for stretch in record.stretches for index, event in stretch.events if not is_verdict(event)]
    return max((*told, *(fact.index for fact in (*record.evaluations, *record.measured))))
