"""The claim of a process that executes one step: taken in one batch with its step.started, renewed while it is executed,
released in one batch with what became of it.

Who executes many steps at once (:mod:`marin.graph.execution.loop`) holds the claims of all of them, and the processes that
it starts for them hold none: :class:`Claim`. `marin stage` executes one step by itself: :class:`StepClaim`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from ledger import Conflict, Draft, LedgerError
from marin.execution.leases.lease import Claimant, Claims, Holder, utc_now
from marin.record.root import Root

log = logging.getLogger(__name__)

POLL_SECONDS = 0.5
"""How often the ledger is asked whether another executor is done."""


class Claim:
    """The claim on a step that somebody else holds for this process: nothing is recorded of it here."""

    def rival(self) -> Holder | None:
        """The living executor that has claimed the step, if it is another one."""
        return None

    def taking(self) -> list[Draft]:
        """The claim, for the batch that begins the step."""
        return []

    def ending(self, drafts: Sequence[Draft]) -> list[Draft]:
        """The batch that ends the step: ``drafts``, with the end of the claim; none where it was lost to another executor."""
        return list(drafts)

    def kept(self) -> AbstractContextManager[None]:
        """The claim does not end as long as this is entered and the process goes on."""
        return nullcontext()

    def wait(self) -> None:
        """Until no other executor is at work on the step."""


class StepClaim(Claim):
    """The claim of this process on one step."""

    def __init__(self, root: Root, identity: str, step: str, claimant: Claimant) -> None:
        self._root, self._identity, self._step, self._claimant = root, identity, step, claimant
        self._claims = Claims()

    def rival(self) -> Holder | None:
        """See :class:`Claim`."""
        self._claims.catch_up(self._root)
        holder = self._claims.rival(self._identity, self._claimant)
        return holder if holder is not None and holder.alive(utc_now()) else None

    def taking(self) -> list[Draft]:
        """See :class:`Claim`. The log refuses the batch (``Conflict``) when anybody has claimed since :meth:`rival` was asked."""
        gone = self._claims.rival(self._identity, self._claimant)
        if gone is not None:
            log.info("%s: taken over from executor %s, of which nothing is heard", self._step, gone.executor)
        over = [] if gone is None else [gone.executor]
        return [self._claimant.take(self._claims, {self._identity: self._step}, over, utc_now())]

    def ending(self, drafts: Sequence[Draft]) -> list[Draft]:
        """See :class:`Claim`. The log refuses the batch (``Conflict``) when anybody has claimed meanwhile: ask again."""
        self._claims.catch_up(self._root)
        if not self._claims.is_of(self._claimant, self._identity):
            log.warning("%s: the claim was lost to another executor; what was made is not recorded", self._step)
            return []
        return [*drafts, self._claimant.release(self._claims, [self._identity])]

    @contextmanager
    def kept(self) -> Iterator[None]:
        """See :class:`Claim`. A thread gives the signs of life: the step has all others."""
        done = threading.Event()
        keeper = threading.Thread(target=self._keep, args=(done,), name=f"claim on {self._step}", daemon=True)
        keeper.start()
        try:
            yield
        finally:
            done.set()
            keeper.join()

    def wait(self) -> None:
        """See :class:`Claim`."""
        told = ""
        while (rival := self.rival()) is not None:
            if told != rival.executor:
                told = rival.executor
                log.info(
                    "%s is being executed by executor %s (process %d of %s); waiting for its end",
                    self._step,
                    rival.executor,
                    rival.pid,
                    rival.host,
                )
            time.sleep(POLL_SECONDS)

    def _keep(self, done: threading.Event) -> None:
        while not done.wait(self._claimant.term.total_seconds() / 3):
            try:
                if not self._renew():
                    return  # who has it now records the result; the end of the step says so
            except LedgerError as error:
                log.warning("%s: the claim could not be renewed: %s", self._step, error)

    def _renew(self) -> bool:
        """A sign of life; False where the claim is another's by now."""
        while True:
            self._claims.catch_up(self._root)
            if not self._claims.is_of(self._claimant, self._identity):
                return False
            try:
                self._root.append([self._claimant.renew(self._claims, utc_now())])
            except Conflict:
                continue
            return True
