"""A lease that anyone who started this process holds for it: an executor of a graph, or of a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ledger import Draft
from marin.execution.leases.held import HeldLeases
from marin.execution.leases.lease import TERM, Claimant
from marin.execution.leases.step import Unleased, lost
from marin.record.root import Root


@dataclass(frozen=True)
class Grant:
    """A lease that the executor of this name holds for the process of a step."""

    executor: str
    step: str

    def lease(self, root: Root) -> Unleased:
        """As the process of the step has it."""
        return GrantedLease(root, self)


class GrantedLease(Unleased):
    """A lease that anyone who started this process holds for it, and renews."""

    def __init__(self, root: Root, grant: Grant) -> None:
        super().__init__(root)
        self._held, self._step = HeldLeases(root, Claimant(grant.executor)), grant.step
        self._polled_at = time.monotonic()

    def is_free(self) -> bool:
        """See :class:`Unleased`: whether it still is its holder's."""
        self._held.catch_up()
        self._polled_at = time.monotonic()
        return self._held.is_held(self._step)

    def begin(self, batch: Sequence[Draft], still: Callable[[bool], bool]) -> bool:
        return self.is_free() and super().begin(batch, still)

    def check(self) -> None:
        """See :class:`Unleased`. The log is asked as often as its holder gives a sign."""
        if time.monotonic() - self._polled_at > TERM.total_seconds() / 3:
            self.ask()

    def ask(self) -> None:
        if not self.is_free():
            raise lost(self._step)

    def ending(self, drafts: Sequence[Draft]) -> list[Draft]:
        """See :class:`Unleased`. Its end is recorded by its holder."""
        return list(drafts) if self.is_free() else []

    def wait(self) -> None:
        """See :class:`Unleased`.

        Raises:
            LeaseLost: another one has it, or had it: its holder decides what is to be done.
        """
        if not self.is_free():
            raise lost(self._step)
