"""The lease on the one step that a process executes: taken in one batch with its step.started, renewed while it is executed,
released in one batch with what became of it.

Who executes many steps at once (:mod:`marin.graph.execution.loop`) holds the leases of all of them, and grants each to the
process that it starts for it (:class:`GrantedLease`). `marin stage` takes the lease on its step itself (:class:`StepLease`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ledger import Draft, LedgerError
from marin.errors import LeaseLost, StepFailed
from marin.execution.leases.held import HeldLeases
from marin.execution.leases.lease import Claimant
from marin.record.root import Root

log = logging.getLogger(__name__)

POLL_SECONDS = 0.5
"""How often the ledger is asked whether another executor is done."""
_PATIENCE = 10.0
"""Seconds that the end of a step waits for a renewal under way: the batch that ends it is refused if the lease is lost."""


@dataclass(frozen=True)
class Grant:
    """A lease that the executor of this name holds for the process of a step."""

    executor: str
    step: str


class Unleased:
    """The lease of a step that is only asked about, or taken over: nothing is recorded of it."""

    def __init__(self, root: Root) -> None:
        """``begun`` says whether the step has begun."""
        self.begun = False
        self._root = root

    def is_free(self) -> bool:
        """Whether no other living executor has it, as far as is known here."""
        return True

    def begin(self, batch: Sequence[Draft], still: Callable[[bool], bool]) -> bool:
        """Record the beginning of the step, with its lease: ``batch``, whose last event it is (none, where another process is to
        execute it under this lease). ``still`` says by what the log
        holds now whether the step is to be executed; it is told whether somebody had the lease meanwhile. False: it is not,
        or another executor has it."""
        self._root.append(batch)
        self._begin()
        return True

    def check(self) -> None:
        """Before something is recorded of the step.

        Raises:
            LeaseLost: another executor has it.
        """

    def ending(self, drafts: Sequence[Draft]) -> list[Draft]:
        """The batch that ends the step: ``drafts``, with the end of the lease; none where it was lost. The log refuses it
        (``OutOfSequence``) when anybody took a lease meanwhile: ask again."""
        return list(drafts)

    def stop(self) -> None:
        """The step is not executed any more."""

    def wait(self) -> None:
        """Until no other executor is at work on the step."""

    def _begin(self) -> None:
        self.begun = True


class GrantedLease(Unleased):
    """A lease that whoever started this process holds for it."""

    def __init__(self, root: Root, grant: Grant) -> None:
        super().__init__(root)
        self._held, self._grant = HeldLeases(root, Claimant(grant.executor)), grant

    def ending(self, drafts: Sequence[Draft]) -> list[Draft]:
        """See :class:`Unleased`. Its end is recorded by its holder."""
        self._held.catch_up()
        return list(drafts) if self._held.rival(self._grant.step) is None else []

    def wait(self) -> None:
        """See :class:`Unleased`.

        Raises:
            LeaseLost: another one has it: its holder decides what is to be done.
        """
        self._held.catch_up()
        if self._held.rival(self._grant.step) is not None:
            raise _lost(self._grant.step)


class StepLease(Unleased):
    """The lease of this process on one step."""

    def __init__(self, root: Root, held: HeldLeases, identity: str, step: str) -> None:
        """``held``: those of this process, which has watched others by them."""
        super().__init__(root)
        self._held, self._identity, self._step = held, identity, step
        self._done, self._lost = threading.Event(), threading.Event()
        self._keeper: threading.Thread | None = None

    def is_free(self) -> bool:
        """See :class:`Unleased`."""
        self._held.catch_up()
        return self._held.rival(self._identity) is None

    def begin(self, batch: Sequence[Draft], still: Callable[[bool], bool]) -> bool:
        """See :class:`Unleased`. From then on a thread renews it; the step has all others.

        Raises:
            StepFailed: this machine starts no more threads.
        """
        changed = {self._identity} | self._held.catch_up()
        while self._held.rival(self._identity) is None and still(self._identity in changed):
            if self._held.take({self._identity: self._step}, batch[:-1], batch[-1:]):
                self._begin()
                self._keep()
                return True
            changed = self._held.catch_up()
        return False

    def give_back(self) -> None:
        """The end of a lease under which another process executed the step."""
        self.stop()
        self._held.end([self._identity])

    def check(self) -> None:
        """See :class:`Unleased`. Asked of the log only when the term has passed without a sign, as after a suspension."""
        if self.begun and (self._lost.is_set() or (self._held.expired and not self._held.renew([self._identity]))):
            raise _lost(self._step)

    def ending(self, drafts: Sequence[Draft]) -> list[Draft]:
        """See :class:`Unleased`."""
        self.stop()
        self._held.catch_up()
        if not self._held.are_held([self._identity]):
            log.warning("%s: the lease was lost to another executor; what was made is not recorded", self._step)
            return []
        return [*drafts, self._held.release([self._identity])]

    def stop(self) -> None:
        """See :class:`Unleased`."""
        self._done.set()
        if self._keeper is not None:
            self._keeper.join(_PATIENCE)

    def wait(self) -> None:
        """See :class:`Unleased`."""
        told = ""
        while not self.is_free():
            if (rival := self._held.rival(self._identity)) is not None and told != rival.executor:
                told = rival.executor
                log.info(
                    "%s is being executed by executor %s (process %d of %s); waiting for its end",
                    self._step,
                    rival.executor,
                    rival.pid,
                    rival.host,
                )
            time.sleep(POLL_SECONDS)

    def _keep(self) -> None:
        self._keeper = threading.Thread(target=self._renew, name=f"lease on {self._step}", daemon=True)
        try:
            self._keeper.start()
        except RuntimeError as error:
            self._keeper = None
            raise StepFailed(
                "the lease on a step cannot be renewed",
                where=f"step {self._step}",
                found=str(error),
                cure="let this user start more threads",
            ) from error

    def _renew(self) -> None:
        while not self._done.wait(self._held.claimant.term.total_seconds() / 3):
            try:
                if not self._held.renew([self._identity]):
                    self._lost.set()
                    log.warning("%s: the lease was lost to another executor; it ends with the next event", self._step)
                    return
            except LedgerError as error:
                log.warning("%s: the lease could not be renewed: %s", self._step, error)


def _lost(step: str) -> LeaseLost:
    return LeaseLost(
        "the lease on a step was lost",
        where=f"step {step}",
        found="another executor has taken it: this process gave no sign of life for a while",
        cure="run the same command again: it takes the other's result",
    )
