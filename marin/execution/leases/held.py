"""The leases that one executor holds in a ledger, of one step or of many: what every batch of events that rests on a lease
goes through.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence

from ledger import Draft, LedgerError, OutOfSequence, Receipt
from marin.errors import StepFailed
from marin.execution.leases.lease import Claimant, Holder, Leases, utc_now
from marin.record.events import LEASES
from marin.record.root import Root

log = logging.getLogger(__name__)

_PATIENCE = 1.0
"""Seconds that the end waits for a renewal under way; one that comes later is refused, or of no effect."""


class HeldLeases:
    """The leases of ``claimant``. ``follow`` brings up to date what else is decided by the log, each time after the leases
    are: of a lease that another released, the result is seen then.

    One thread uses this. Another one, the keeper, renews what is held, whatever the first is doing; it reads the log for
    itself, so that what the first one knows changes only when it asks.
    """

    def __init__(self, root: Root, claimant: Claimant, follow: Callable[[], None] = lambda: None) -> None:
        self.claimant = claimant
        self._root, self._follow = root, follow
        self._leases = Leases()
        self._mine, self._lost, self._mutex = dict[str, int](), set[str](), threading.Lock()
        self._signed = utc_now()
        self._keeper: _Keeper | None = None

    @property
    def known(self) -> bool:
        """Whether the log was ever asked."""
        return self._leases.size > 0

    @property
    def expired(self) -> bool:
        """Whether a term has passed without a sign of life: others may have taken what is held here."""
        return utc_now() - self._signed > self.claimant.term

    def catch_up(self) -> set[str]:
        """Take in what others have done; the steps whose leases changed."""
        named = self._leases.catch_up(self._root)
        self._follow()
        return named

    def rival(self, step: str) -> Holder | None:
        """The living executor that has the lease on ``step``, if it is another one."""
        rival = self._leases.rival(step, self.claimant)
        return rival if rival is not None and rival.alive(utc_now()) else None

    def is_held(self, step: str) -> bool:
        """Whether nobody has taken this lease over, as far as is known here."""
        return step not in self._lost and self._leases.is_of(self.claimant, step)

    def take(self, steps: Mapping[str, str], before: Sequence[Draft] = (), after: Sequence[Draft] = ()) -> bool:
        """Take the leases on ``steps`` (names by identity), in one batch with these events; False when another was faster:
        :meth:`catch_up`, and decide anew. Nobody :meth:`rival` may hold one of them.

        Raises:
            StepFailed: this machine starts no more threads; nothing is recorded.
        """
        if self._keeper is None:
            self._keeper = _Keeper(self.claimant.term.total_seconds() / 3, self._renew, self.claimant.executor)
        gone = {step: rival for step in steps if (rival := self._leases.rival(step, self.claimant)) is not None}
        over = {rival.executor for rival in gone.values()}
        try:
            receipts = self._append([*before, self.claimant.take(self._leases, steps, over, utc_now()), *after])
        except OutOfSequence:
            return False
        self._signed = utc_now()
        with self._mutex:
            self._mine.update(dict.fromkeys(steps, receipts[len(before)].seq))
            self._lost.difference_update(steps)
        for step, rival in gone.items():
            log.info("%s: taken over from executor %s, of which nothing is heard", steps[step], rival.executor)
        return True

    def release(self, steps: Collection[str]) -> Draft:
        """The end of the leases on ``steps``, to be appended now: with what became of them."""
        with self._mutex:
            for step in steps:
                self._mine.pop(step, None)
        return self.claimant.release(self._leases, steps)

    def end(self, steps: Collection[str], drafts: Sequence[Draft] = ()) -> Sequence[Receipt] | None:
        """Append what became of ``steps``, with the end of their leases; None, and nothing, when one was lost to another
        executor."""
        while all(map(self.is_held, steps)):
            try:
                return self._append([*drafts, self.release(steps)])[: len(drafts)]
            except OutOfSequence:
                self.catch_up()  # another executor has taken or released a lease meanwhile
        return None

    def stop(self) -> None:
        """Nothing is renewed any more."""
        if self._keeper is not None:
            self._keeper.stop()
            self._keeper = None

    def _append(self, drafts: Sequence[Draft]) -> Sequence[Receipt]:
        """Append, and take our own lease events into what is known: the log has taken them in this order."""
        receipts = self._root.append(drafts)
        for draft, receipt in zip(drafts, receipts, strict=True):
            if draft.stream == LEASES:
                self._leases.see(draft.type, receipt.seq, draft.body, utc_now())
        return receipts

    def _renew(self, leases: Leases) -> None:
        """In the keeper: a sign of life, by what it knows, while anything is held."""
        while True:
            leases.catch_up(self._root)
            with self._mutex:
                for step, taken in list(self._mine.items()):
                    # What was taken since the log was read is not known to be anybody's yet.
                    if taken < leases.length and not leases.is_of(self.claimant, step):
                        del self._mine[step]
                        self._lost.add(step)
                if not self._mine:
                    return
            try:
                self._root.append([self.claimant.renew(leases, now := utc_now())])
            except OutOfSequence:
                continue
            self._signed = now
            return


class _Keeper:
    """A thread that does something every ``seconds``, until it is told to stop."""

    def __init__(self, seconds: float, act: Callable[[Leases], None], name: str) -> None:
        self._seconds, self._act = seconds, act
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"leases of {name}", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            raise StepFailed(
                "leases cannot be renewed", found=str(error), cure="let this user start more threads"
            ) from error

    def stop(self) -> None:
        self._done.set()
        self._thread.join(_PATIENCE)

    def _keep(self) -> None:
        leases = Leases()
        while not self._done.wait(self._seconds):
            try:
                self._act(leases)
            except LedgerError as error:
                log.warning("leases could not be renewed: %s", error)
