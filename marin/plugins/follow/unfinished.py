"""The verification of a run that did not come to its end: of what is recorded, as far as it went."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from marin.verify.case import Case
from marin.verify.judges.ledger import judge_ledger
from marin.verify.verdict import Report, Verdict
from marin.verify.verification import WALKED, Verification


class Unfinished(Verification):
    """Of a run whose training has no output: up to its newest recorded state, as a run that a later phase continues is judged,
    but with its whole log. Nothing of it is more than PARTIAL where something of the run is still to come."""

    def report(self, only: Collection[str] | None = None) -> Report:
        """Judge what is there of the verdicts that are asked for."""
        wanted = [name for name in only or WALKED if name in WALKED]
        made, step = super().report(wanted), self.until.step if self.until is not None else 0
        planned = self.run.recipe.last_step
        told = f"the training is recorded up to train step {step} of {planned}"
        verdicts = {
            name: Verdict("PARTIAL", (*verdict.lines, told), verdict.executed)
            if name == "training" and verdict.outcome == "PASS"
            else verdict
            for name, verdict in made.verdicts.items()
        }
        return replace(made, verdicts=verdicts)

    def _ledger(self, case: Case) -> Verdict:
        return judge_ledger(case, self.reader, self.seen.line if self.seen else "", self.options.sources)
