"""The journal of a recorded run: every fact that a step reports becomes an event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ledger import Draft, OutOfSequence
from marin.execution.leases.step import Unleased
from marin.history.executions import bodies_of, evaluation_stream, stream_of
from marin.kinds.known import is_evaluation
from marin.record import events
from marin.record.events import Body
from marin.record.root import LedgerHistory, Root


class Requests(Protocol):
    """What may ask a training to stop: a plugin, named by an entry point of the group :data:`REQUESTS`."""

    def look(self, index: int) -> None:
        """Called when the training's own event ``index`` is durable.

        Raises:
            StoppedByFollower: it is asked to.
        """

    def poll(self) -> None:
        """For a process whose workers record: as :meth:`look`, up to the newest event, every now and then."""


REQUESTS = "marin.requests"


class LedgerJournal:
    """The :class:`marin.execution.step.Journal` of a recorded run: every fact becomes an event of its stream."""

    def __init__(
        self, root: Root, run: str, step: str, lease: Unleased | None = None, requests: Requests | None = None
    ) -> None:
        """``requests``: those that may ask this step to stop."""
        self._root, self._stream, self._step = root, stream_of(run), step
        self._beside, self._lease = evaluation_stream(run), lease or Unleased(root)
        self._requests = requests
        self._lengths = dict[str, int]()

    def record(self, kind: str, body: Body) -> int:
        """Append one event and return its index; it is durable then. What was evaluated of the run's states stands in a
        stream of its own.

        The length of the stream fences it: anyone who takes the lease over while this process sleeps between check and append
        writes to the run first.

        Raises:
            LeaseLost: another executor is at work on the step.
            StoppedByFollower: a follower asked for it, before the record of a segment begins or after it is complete.
        """
        index = self._append(kind, body)
        if self._requests is not None and kind != events.TRAIN_SEGMENT:  # what belongs to it follows in the next event
            self._requests.look(index)
        return index

    def _append(self, kind: str, body: Body) -> int:
        stream = self._beside if is_evaluation(kind) else self._stream
        length = self._lengths.get(stream)
        while True:
            if length is None:
                length = _length(self._root.history(), stream)
                self._lease.ask()
            else:
                self._lease.check()
            try:
                (receipt,) = self._root.append([Draft(kind, stream, events.write(body), expect_seq=length)])
            except OutOfSequence:
                length = None  # another process has written there: perhaps the one with the lease
                continue
            self._lengths[stream] = receipt.seq + 1
            return receipt.index

    def history(self, kind: str) -> Sequence[Body]:
        """The bodies of all events of this type that the step recorded under its present identity, oldest first, without
        what was withdrawn."""
        return bodies_of(self._root.history(), self._stream, self._step, kind)


def _length(history: LedgerHistory, stream: str) -> int:
    """How many events the stream has: the number that the next one gets."""
    last = next(iter(history.at(history.places(stream=stream, last=1))), None)
    return 0 if last is None else last[1].seq + 1
