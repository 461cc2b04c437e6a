"""The leases that one executor holds in a ledger, of one step or of many: what every batch of events that rests on a lease
goes through.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence

from ledger import Draft, OutOfSequence, Receipt
from marin.execution.leases.lease import Claimant, Holder, Leases, utc_now
from marin.record.events import LEASES
from marin.record.root import Root

log = logging.getLogger(__name__)


class HeldLeases:
    """The leases of ``claimant``. ``follow`` brings up to date what else is decided by the log, each time after the leases
    are: of a lease that somebody released, the result is seen then. Threads may share one."""

    def __init__(self, root: Root, claimant: Claimant, follow: Callable[[], None] = lambda: None) -> None:
        self.claimant = claimant
        self._root, self._follow = root, follow
        self._leases = Leases()
        self._lock = threading.RLock()
        self._signed = utc_now()

    @property
    def known(self) -> bool:
        """Whether the log was ever asked."""
        return self._leases.size > 0

    def catch_up(self) -> set[str]:
        """Take in what others have done; the steps whose leases changed."""
        with self._lock:
            named = self._leases.catch_up(self._root)
        self._follow()
        return named

    def rival(self, step: str) -> Holder | None:
        """The living executor that has the lease on ``step``, if it is another one."""
        rival = self._leases.rival(step, self.claimant)
        return rival if rival is not None and rival.alive(utc_now()) else None

    def are_held(self, steps: Collection[str]) -> bool:
        """Whether nobody has taken one of these leases over, as far as is known here."""
        return all(self._leases.is_of(self.claimant, step) for step in steps)

    @property
    def due(self) -> bool:
        """Whether a third of the term has passed since the last sign of life."""
        return (utc_now() - self._signed) * 3 > self.claimant.term

    @property
    def expired(self) -> bool:
        """Whether the whole term has passed: others may have taken what is held here."""
        return utc_now() - self._signed > self.claimant.term

    def take(self, steps: Mapping[str, str], before: Sequence[Draft] = (), after: Sequence[Draft] = ()) -> bool:
        """Take the leases on ``steps`` (names by identity), in one batch with these events; False when somebody was faster:
        :meth:`catch_up`, and decide anew. Nobody :meth:`rival` may hold one of them."""
        with self._lock:
            gone = {step: rival for step in steps if (rival := self._leases.rival(step, self.claimant)) is not None}
            over = {rival.executor for rival in gone.values()}
            taken = self.claimant.take(self._leases, steps, over, utc_now())
            try:
                self._append([*before, taken, *after])
            except OutOfSequence:
                return False
            self._signed = utc_now()
        for step, rival in gone.items():
            log.info("%s: taken over from executor %s, of which nothing is heard", steps[step], rival.executor)
        return True

    def release(self, steps: Collection[str]) -> Draft:
        """The end of the leases on ``steps``, to be appended now: with what became of them."""
        return self.claimant.release(self._leases, steps)

    def end(self, steps: Collection[str], drafts: Sequence[Draft] = ()) -> Sequence[Receipt] | None:
        """Append what became of ``steps``, with the end of their leases; None, and nothing, when one was lost to another
        executor."""
        receipts = self._append_held(steps, lambda: [*drafts, self.release(steps)])
        return None if receipts is None else receipts[: len(drafts)]

    def renew(self, steps: Collection[str]) -> bool:
        """A sign of life; False when one of ``steps`` was lost to another executor."""
        now = utc_now()
        if self._append_held(steps, lambda: [self.claimant.renew(self._leases, now)]) is None:
            return False
        self._signed = now
        return True

    def _append_held(self, steps: Collection[str], batch: Callable[[], list[Draft]]) -> Sequence[Receipt] | None:
        while True:
            with (
                self._lock
            ):  # between the question and the batch no other thread takes in what makes the batch fit again
                if not self.are_held(steps):
                    return None
                try:
                    return self._append(batch())
                except OutOfSequence:
                    pass  # somebody has taken or released a lease meanwhile
            self.catch_up()

    def _append(self, drafts: Sequence[Draft]) -> Sequence[Receipt]:
        """Append, and take our own lease events into what is known: the log has taken them in this order."""
        with self._lock:
            receipts = self._root.append(drafts)
            for draft, receipt in zip(drafts, receipts, strict=True):
                if draft.stream == LEASES:
                    self._leases.see(draft.type, receipt.seq, draft.body, utc_now())
        return receipts
