"""One thread that computes: every sequence on its way gets some further tokens, then the next round begins.

So a long answer delays a short one by some tokens, not by its length, and what an answer is does not depend on who waits
beside it (:mod:`marin.evaluation.scoring`). What waits is bounded: beyond ``waiting`` sequences a request is refused at once,
with the time after which to come again. A sequence that nobody waits for any more is dropped before the next round.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from marin.evaluation.scoring import AT_ONCE, Continuation, Prompt, Row, Scorer, lengths
from marin.plugins.serve.ranking import Ranked, Ranker
from marin.plugins.serve.wire import Refused

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SequenceRequest:
    """One sequence: what is continued, drawn by ``seed``; ``ranked``: how many of its last tokens' log-likelihoods are
    wanted besides those of the new ones (-1: none at all)."""

    prompt: Prompt
    seed: int
    ranked: int = -1


@dataclass(frozen=True)
class SequenceUpdate:
    """What became of sequence ``place`` of a job so far. ``done``: nothing more comes; ``ranked`` is there then, if it
    was wanted. ``failed``: nothing comes because of this."""

    place: int
    new: tuple[int, ...] = ()
    done: bool = False
    ranked: Ranked | None = None
    failed: str = ""


@dataclass
class Job:
    """The sequences of one request. ``tell`` is called in the engine's thread and returns at once."""

    asked: Sequence[SequenceRequest]
    tell: Callable[[SequenceUpdate], None]
    cancelled: threading.Event = field(default_factory=threading.Event)


@dataclass(eq=False)
class _Running:
    job: Job
    place: int
    one: Continuation | None = None

    @property
    def asked(self) -> SequenceRequest:
        return self.job.asked[self.place]


class Engine:
    """The thread over one scorer.

    Args:
        waiting: how many sequences may wait for their first token.
    """

    def __init__(self, scorer: Scorer, *, waiting: int = 256, at_once: int = AT_ONCE) -> None:
        self.scorer, self.ranker, self.most, self.at_once = scorer, Ranker(scorer), waiting, at_once
        self._waiting: deque[_Running] = deque()
        self._running: list[_Running] = []
        self._changed = threading.Condition()
        self._ending = False
        self._seconds = 0.1  # of a sequence, as the last ones took
        self._thread = threading.Thread(target=self._work, name="marin-serve", daemon=True)

    def prepare(self, done: Callable[[int], None]) -> None:
        """Compile what answers need, before it starts. ``done`` hears how many programs there are."""
        for number, length in enumerate(lengths(self.scorer.seq_len), start=1):
            self.scorer.generate([Prompt((0,) * length, 1, _at_once)])
            self.ranker.rank([Row((0,) * (length + 1), 1)])
            done(number)
        for count in (1, 4, self.at_once):  # a prompt of some tokens, and as many to come as there is room for
            prompt = Prompt((0,) * min(9, self.scorer.seq_len), self.scorer.seq_len, _at_once)
            self.scorer.generate([prompt] * count)

    def start(self) -> None:
        """Begin to compute."""
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether it still computes."""
        return self._thread.is_alive()

    @property
    def load(self) -> tuple[int, int]:
        """Sequences on their way, and waiting."""
        with self._changed:
            return len(self._running), len(self._waiting)

    def ask(self, job: Job) -> None:
        """Take ``job`` into the queue.

        Raises:
            Refused: the queue is full (429), or the server ends (503).
        """
        with self._changed:
            if self._ending or not self.alive:
                raise Refused("the server is ending", 503, "server_error", code="shutting_down", retry_after=5)
            if len(self._waiting) + len(job.asked) > self.most:
                later = math.ceil(len(self._waiting) * self._seconds)
                raise Refused(
                    f"the queue is full: {len(self._waiting)} of {self.most} sequences wait, this request has "
                    f"{len(job.asked)}",
                    429,
                    "rate_limit_error",
                    code="queue_full",
                    retry_after=min(max(later, 1), 60),
                )
            self._waiting.extend(_Running(job, place) for place in range(len(job.asked)))
            self._changed.notify()

    def end(self) -> None:
        """Finish what was taken, and return when nothing is left."""
        with self._changed:
            self._ending = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not (self._running or self._waiting or self._ending):
                    self._changed.wait()
                self._drop_cancelled()
                while self._waiting and len(self._running) < self.at_once:
                    self._running.append(self._waiting.popleft())
                if not self._running:
                    if self._ending and not self._waiting:
                        return
                    continue
                batch = list(self._running)
            began = time.monotonic()
            try:
                done = self._round(batch)
            except Exception:
                _log.exception("a round failed")
                for one in batch:
                    one.job.tell(SequenceUpdate(one.place, done=True, failed="the computation failed"))
                done = batch
            with self._changed:
                self._running = [one for one in self._running if one not in done]
            if done:
                self._seconds = 0.8 * self._seconds + 0.2 * (time.monotonic() - began) / len(done)

    def _drop_cancelled(self) -> None:
        self._running = [one for one in self._running if not one.job.cancelled.is_set()]
        if any(one.job.cancelled.is_set() for one in self._waiting):
            self._waiting = deque(one for one in self._waiting if not one.job.cancelled.is_set())

    def _round(self, batch: list[_Running]) -> list[_Running]:
        """Further tokens for each; those that ended, told so."""
        for running in batch:
            if running.one is None:
                running.one = self.scorer.begin(running.asked.prompt, running.asked.seed)
        growing = [(running, running.one) for running in batch if running.one and running.one.prompt.limit > 0]
        if growing:
            self.scorer.advance([one for _, one in growing])
        begun = [(running, running.one) for running in batch if running.one is not None]
        ended = [running for running, one in begun if one.prompt.limit == 0 or self.scorer.ended(one)]
        rows = {id(running): row for running in ended if (row := _scored_row(running)) is not None}
        ranked = dict(zip(rows, self.ranker.rank(list(rows.values())), strict=True))
        for running, one in growing:
            if running not in ended:
                running.job.tell(SequenceUpdate(running.place, one.new))
        for running in ended:
            assert running.one is not None
            running.job.tell(SequenceUpdate(running.place, running.one.new, True, ranked.get(id(running))))
        return ended


def _at_once(new: tuple[int, ...]) -> bool:
    return True


def _scored_row(running: _Running) -> Row | None:
    """What is scored of a sequence that ended."""
    asked, one = running.asked, running.one
    assert one is not None
    if asked.ranked < 0:
        return None
    count = asked.ranked + len(one.new)
    return Row(tuple(one.tokens), count) if count else None
