"""A follower's request to the training that it follows: an event of the training's own log, under that log's key.

The training takes no other word: who may append to its log could as well write any of its events, and nobody else can stop
it. What it does then is in :mod:`marin.plugins.follow.requests`.
"""

from __future__ import annotations

from dataclasses import dataclass

from ledger import LedgerError
from marin.errors import UsageError
from marin.history.run import Fact, Run, record_digest
from marin.history.runs import History, facts, replay_stream
from marin.record.events import StopRequested, TrainSegment, draft
from marin.record.root import Root, open_root
from marin.record.trust.homes import home_of

LONGEST = 2000
"""Letters of what a request says was found."""


@dataclass(frozen=True)
class StopRequests:
    """Where requests go, and whether the training is to go ``back``, or to end. ``log``: the root in which it records."""

    log: Root
    back: bool

    @classmethod
    def of(cls, root: Root, *, back: bool) -> StopRequests:
        """For the training that records in ``root``, or in the root that this one is a copy of.

        Raises:
            UsageError: its log's key is not here.
        """
        option = "--back" if back else "--stop"
        try:
            home = home_of(root.verifier, root.storage, root.absolute)
            log = root if home == root.absolute else open_root(home)
            log.check_writable()
        except LedgerError as error:
            raise no_key(option, root, str(error)) from error
        return cls(log, back)

    def ask(self, run: Run, found: str, refuted: Fact[TrainSegment] | None, held: tuple[int, str | None]) -> int | None:
        """Append the request; its index in the log. ``held``: the number of the train step that comes after the last state that
        held, and that state. A training that went back there already is to end. None where the very same was asked before."""
        earlier = requests(self.log.history(), run.run)
        digest = record_digest(refuted.body) if refuted is not None else None
        if refuted is not None and any(one.body.segment == digest and one.index > refuted.index for one in earlier):
            return None
        again = any(fact.body.back and fact.body.step == held[0] for fact in earlier)
        body = StopRequested(
            run=run.run,
            found=found[:LONGEST],
            step=held[0],
            state=held[1],
            segment=digest,
            back=self.back and refuted is not None and not again,
        )
        (receipt,) = self.log.append([draft(body, replay_stream(run.run))])
        return receipt.index


def requests(history: History, run: str) -> list[Fact[StopRequested]]:
    """What was asked of the training of ``run``, oldest first."""
    return list(facts(history, StopRequested, run=run))


def no_key(option: str, root: Root, found: str) -> UsageError:
    """What is said to who cannot append to the log of a training that is to be stopped."""
    return UsageError(
        "a training obeys only its own log",
        where=option,
        expected=f"the signing key of {root.verifier.name}",
        found=found,
        cure="follow it where that key is, or leave the option out: the follower then ends with status 1",
    )
