"""What a follower asks of a training that goes on (:mod:`marin.plugins.follow`), as the training sees it.

A request is an event of the log, whose key or one that it enrolled signs it: it costs the training time, and decides no verdict.
To look for one costs nothing where nobody else writes: the index of the training's own last event says whether something
stands between it and the one before, and only then that is read. The record of a segment begins with the state after it, so
a request that is in the log by then keeps the segment out of it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from ledger import Draft, LedgerError, OutOfSequence
from marin.errors import MarinError, StoppedByFollower
from marin.history.run import Fact, Indexed, Run, record_digest
from marin.history.runs import History, load, read_fact, stream_of
from marin.record import events
from marin.record.events import StopRequested, TrainWithdrawn
from marin.record.root import Root

log = logging.getLogger(__name__)

POLL_SECONDS = 10.0
"""How often a process that records nothing itself asks the log."""


class StopRequests:
    """Those that may stop one attempt at the training of ``run``: what stands in the log from event ``since`` on."""

    def __init__(self, root: Root, run: str, since: int) -> None:
        self._root, self._run, self._known = root, run, since
        self._polled_at = time.monotonic()

    def look(self, index: int) -> None:
        """Called when the training's own event ``index`` is durable.

        Raises:
            StoppedByFollower: a follower asked for it since the last look.
        """
        first, self._known = self._known, index + 1
        if first < index:
            self._read(first, index)

    def poll(self) -> None:
        """For a process whose workers record: as :meth:`look`, up to the newest event, every now and then."""
        if time.monotonic() - self._polled_at < POLL_SECONDS:
            return
        self._polled_at = time.monotonic()
        try:
            first, self._known = self._known, max(self._known, self._root.reader().checkpoint().size)
        except LedgerError as error:
            log.warning("whether the training was asked to stop cannot be read: %s", error)
            return
        if first < self._known:
            self._read(first, self._known)

    def _read(self, first: int, end: int) -> None:
        """Whatever is wrong with the log is for others to say: it stops no training."""
        try:
            fact = next(
                (found for item in self._root.reader().events(first, end, lenient=True) if (found := self._of(item))),
                None,
            )
        except LedgerError as error:
            log.warning("whether the training was asked to stop cannot be read: %s", error)
            return
        if fact is not None:
            raise stop_error(fact)

    def _of(self, item: Indexed) -> Fact[StopRequested] | None:
        if item[1].type != events.STOP_REQUESTED:
            return None
        fact = read_fact(StopRequested, item)
        if fact.body.run != self._run:
            return None
        if fact.body.segment is None or is_of(load(self._root.history(), self._run), fact):
            return fact
        log.warning("event %d asks to stop for a segment that does not stand: the training goes on", fact.index)
        return None


def requests_to(root: Root, run: str, ask: Callable[[], None]) -> StopRequests:
    """What may stop a training of ``run`` from now on. What was refuted until now is withdrawn, so that it goes on from the last
    state that held. ``ask``: raises where another executor is at work on it.

    Raises:
        StoppedByFollower: a follower asked for it, and nobody has answered yet.
    """
    while True:
        ask()
        history = root.history()
        view = load(history, run)
        try:
            step = withdraw_refuted(root, view)
            break
        except OutOfSequence:
            continue  # perhaps by who has the lease now
    if step is not None:
        log.warning("train: what was recorded from train step %d on did not hold, and is made again", step)
    if (asked := pending(root, view)) is not None:
        raise stop_error(asked)
    return StopRequests(root, run, max(history.places(last=1)) + 1)


def is_of(run: Run, fact: Fact[StopRequested]) -> bool:
    """Whether a request is about the training as it stands: about no single segment, or about one that was recorded before
    and not withdrawn meanwhile."""
    wanted = fact.body.segment
    return wanted is None or any(
        one.index < fact.index and record_digest(one.body) == wanted for one in reversed(run.segments)
    )


def stop_error(fact: Fact[StopRequested]) -> StoppedByFollower:
    """What a training that obeys a request ends with."""
    body = fact.body
    asked = StoppedByFollower(
        "training was asked to stop",
        where=f"event {fact.index}, by {fact.actor}",
        found=body.found,
        cure=f"find out why; the same command goes on from the state before train step {body.step}, the last that held"
        if body.segment is not None
        else "find out why before you give the same command again",
    )
    asked.back = body.back and body.segment is not None
    return asked


def pending(root: Root, run: Run) -> Fact[StopRequested] | None:
    """What a follower asked of the training of ``run`` since it last ended with a word, and which nothing has answered."""
    ended = max((fact.index for fact in run.failures if fact.body.step == "train"), default=-1)
    asked = [fact for fact in _requests(root.history(), run.run) if fact.index > ended and is_of(run, fact)]
    return next((fact for fact in asked if not (fact.body.back and fact.body.segment)), None)


def withdraw_refuted(root: Root, run: Run) -> int | None:
    """Before a training goes on: where a follower refuted a segment that stands, everything from the last state on that held
    is withdrawn, in an event of the run; that train step, None where there is nothing of the kind.

    Raises:
        OutOfSequence: another writer has written to the run since it was read.
    """
    standing = {record_digest(fact.body): fact.body for fact in run.segments}
    written = {record_digest(fact.body): fact.index for fact in run.segments}
    states = {segment.end: segment.end_state for segment in standing.values()}
    first = run.segments[0].body.start if run.segments else 0
    found: Fact[StopRequested] | None = None
    for fact in _requests(root.history(), run.run):
        refuted = standing.get(fact.body.segment or "")
        if (
            refuted is None
            or fact.index < written[fact.body.segment or ""]
            or not first <= fact.body.step <= refuted.start
        ):
            continue  # of a segment that was withdrawn, or of none
        if fact.body.step != first and states.get(fact.body.step) != fact.body.state:
            log.warning("event %d names a state that this run did not record: nothing is withdrawn for it", fact.index)
            continue
        if found is None or fact.body.step < found.body.step:
            found = fact
    if found is None:
        return None
    body = TrainWithdrawn(run=run.run, step=found.body.step, request=found.index)
    root.append([Draft(events.TRAIN_WITHDRAWN, stream_of(run.run), events.write(body), expect_seq=run.length)])
    return found.body.step


def _requests(history: History, run: str) -> list[Fact[StopRequested]]:
    found = []
    for item in history.events(type=events.STOP_REQUESTED, run=run):
        try:
            found.append(read_fact(StopRequested, item))
        except MarinError as error:
            log.warning("%s", error)
    return found
