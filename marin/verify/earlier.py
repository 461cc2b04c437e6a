"""Segments that this reproducer has executed before and found as recorded: read back from its own signed events.

A verification that was broken off goes on where it stopped: each segment that holds becomes a ``replay.segment`` event
in the reproducer's own log at once. It counts again only for the very same record (the digest of the whole
``train.segment``) under the very same conditions: recipe, tokens, tokenizer, executed code, locked dependencies,
installed versions, and what is recorded of measurements of its train steps. The number of devices and workers is not
among them. What it proves is what a replay of that segment proves, as long as the reproducer trusts their own key;
``--fresh`` trusts nothing and executes everything.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from ledger import LedgerError, canonical_digest
from marin.history.run import Run, record_digest
from marin.history.runs import replay_stream
from marin.pipeline.stages import PIPELINE
from marin.provenance import environment
from marin.provenance.code import code_folder, files_digest, lock_digest
from marin.recipe.schema import digest
from marin.record.events import GRAD_NORM, ReplaySegment, TrainSegment, draft
from marin.record.root import Root
from marin.verify.derivation.series import Measured, series_between
from marin.work.cached import results_of

logger = logging.getLogger(__name__)


def conditions(run: Run) -> str:
    """Digest of everything but the segment's record that a replay's result depends on, here and now."""
    folder = code_folder()
    return canonical_digest(
        {
            "recipe": digest(run.recipe),
            "tokens": run.output("tokens").digest,
            "tokenizer": run.output("tokenizer").digest,
            "code": files_digest(folder, PIPELINE.step("train").code(run.recipe)),
            "lock": lock_digest(folder),
            "versions": environment.versions(),
        }
    )


@dataclass
class Proofs:
    """What this reproducer has proven of ``run``. ``known``: digest of a segment's record -> index of the event that
    says so. Without an own root nothing is known and nothing is kept."""

    run: Run
    own: Root | None
    measured: Measured = field(default_factory=dict)
    known: dict[str, int] = field(default_factory=dict)
    _conditions: str = ""

    @classmethod
    def read(cls, run: Run, own: Root | None, measured: Measured, *, fresh: bool) -> Proofs:
        """The proofs in the log of ``own``, verified there under its own key; none of them when ``fresh``."""
        proofs = cls(run, own, measured)
        if own is None:
            return proofs
        proofs._conditions = conditions(run)
        if not fresh and own.is_own():
            history = own.history()
            same = results_of(
                history,
                ReplaySegment,
                lambda body: body.segment,
                lambda body: body.conditions == proofs.conditions_of(body.start, body.end),
                stream=replay_stream(run.run),
            )
            # What another author of this log says was executed is that author's word.
            mine = history.written.is_mine
            proofs.known = {segment: fact.index for segment, fact in same.items() if mine(fact.index)}
        return proofs

    def conditions_of(self, start: int, end: int) -> str:
        """:func:`conditions` of train steps, with what is measured of them beside their fingerprints."""
        measured = series_between(self.measured, start, end)
        measured.pop(GRAD_NORM, None)  # it is in the fingerprints
        told = {name: {str(step): value for step, value in known.items()} for name, known in measured.items()}
        return canonical_digest({"conditions": self._conditions, "measured": told}) if told else self._conditions

    def of(self, segment: TrainSegment) -> int | None:
        """Index of the event that proves ``segment``, or None."""
        return self.known.get(record_digest(segment))

    def keep(self, segment: TrainSegment, losses: Sequence[float]) -> None:
        """Record that ``segment`` held. Failure to record is told once and stops nothing."""
        if self.own is None:
            return
        body = ReplaySegment(
            run=self.run.run,
            start=segment.start,
            end=segment.end,
            segment=record_digest(segment),
            conditions=self.conditions_of(segment.start, segment.end),
        )
        try:
            (receipt,) = self.own.append([draft(body, replay_stream(self.run.run))])
            self.known[body.segment] = receipt.index
        except LedgerError as error:
            logger.warning("verified segments are not recorded: %s", error)
            self.own = None
