"""The lease on the one step that a process executes: taken in one batch with its step.started, renewed while it is executed,
released in one batch with what became of it.

Who executes many steps at once (:mod:`marin.graph.execution.loop`) holds the leases of all of them, and grants each to the
process that it starts for it (:mod:`marin.execution.leases.granted`). `marin stage` takes the lease on its step itself
(:class:`StepLease`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from ledger import Draft, OutOfSequence, Receipt
from marin.errors import LeaseLost
from marin.execution.leases.held import HeldLeases
from marin.execution.workspace import Workspace, own_workspace
from marin.process.interruption import Interruption
from marin.record.root import Root

log = logging.getLogger(__name__)

POLL_SECONDS = 0.5
"""How often the ledger is asked whether another executor is done."""


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
        execute it under this lease). ``still`` says by what the log holds now whether the step is to be executed; it is
        told whether another had the lease meanwhile. False: it is not, or another executor has it."""
        self._root.append(batch)
        self._begin()
        return True

    def check(self) -> None:
        """Before something is recorded of the step.

        Raises:
            LeaseLost: another executor has it.
        """

    def ask(self) -> None:
        """As :meth:`check`, by what the log holds now."""

    def ending(self, drafts: Sequence[Draft]) -> list[Draft]:
        """The batch that ends the step: ``drafts``, with the end of the lease; none where it was lost. The log refuses it
        (``OutOfSequence``) when anybody took a lease meanwhile: ask again."""
        return list(drafts)

    def end(self, *drafts: Draft) -> Sequence[Receipt]:
        """Record what became of the step, with the end of the lease; nothing where it was lost."""
        while batch := self.ending(drafts):
            try:
                return self._root.append(batch)
            except OutOfSequence:
                continue  # another executor has taken or released a lease meanwhile: the batch is made anew
        return ()

    def stop(self) -> None:
        """The step is not executed any more."""

    def wait(self) -> None:
        """Until no other executor is at work on the step."""

    def bring[R](self, local: Path, step: str, identity: str, bring: Callable[[Workspace], R | None]) -> R | None:
        """What ``bring`` finds or makes, in folders of this process alone; None where another executor is at work on the step,
        once it has ended: look again."""
        with own_workspace(local, step, identity, self.is_free) as workspace:
            result = bring(workspace) if workspace is not None else None
        if result is None:
            self.wait()
        return result

    def _begin(self) -> None:
        self.begun = True


class Grant(Protocol):
    """A lease that another process holds for the process of a step."""

    def lease(self, root: Root) -> Unleased:
        """As the process of the step has it."""
        ...


class StepLease(Unleased):
    """The lease of this process on one step."""

    def __init__(self, root: Root, held: HeldLeases, identity: str, step: str) -> None:
        """``held``: those of this process, which has watched others by them."""
        super().__init__(root)
        self._held, self._identity, self._step = held, identity, step

    def is_free(self) -> bool:
        self._held.catch_up()
        return self._held.rival(self._identity) is None

    def begin(self, batch: Sequence[Draft], still: Callable[[bool], bool]) -> bool:
        """See :class:`Unleased`. From then on a thread renews it; the step has all others.

        Raises:
            StepFailed: this machine starts no more threads; nothing is recorded.
        """
        changed = {self._identity} | self._held.catch_up()
        while self._held.rival(self._identity) is None and still(self._identity in changed):
            if self._held.take({self._identity: self._step}, batch[:-1], batch[-1:]):
                self._begin()
                return True
            changed = self._held.catch_up()
        return False

    @contextmanager
    def taken(self, batch: Sequence[Draft], still: Callable[[bool], bool]) -> Iterator[bool]:
        """:meth:`begin`; what came to no other end is given back with the block."""
        begun = False
        try:
            with Interruption() as interruption, interruption.shield():
                begun = self.begin(batch, still)
            yield begun
        finally:
            if begun:
                with Interruption() as interruption, interruption.shield():
                    self.stop()
                    self._held.end([self._identity])

    def check(self) -> None:
        """See :class:`Unleased`. The log is asked only when a term has passed without a sign, as after a suspension."""
        if self.begun and self._held.expired:
            self._held.catch_up()
        self._check()

    def ask(self) -> None:
        if self.begun:
            self._held.catch_up()
        self._check()

    def _check(self) -> None:
        if self.begun and not self._held.is_held(self._identity):
            raise lost(self._step)

    def ending(self, drafts: Sequence[Draft]) -> list[Draft]:
        self.stop()
        self._held.catch_up()
        if not self._held.is_held(self._identity):
            log.warning("%s: the lease was lost to another executor; what was made is not recorded", self._step)
            return []
        return [*drafts, self._held.release([self._identity])]

    def stop(self) -> None:
        self._held.stop()

    def wait(self) -> None:
        told = ""
        while not self.is_free():
            if (rival := self._held.rival(self._identity)) is not None and told != rival.executor:
                told = rival.executor
                other = f"executor {rival.executor} (process {rival.pid} of {rival.host})"
                log.info("%s is being executed by %s; waiting for its end", self._step, other)
            time.sleep(POLL_SECONDS)


def lost(step: str) -> LeaseLost:
    """What is raised where another executor has the lease."""
    return LeaseLost(
        "the lease on a step was lost",
        where=f"step {step}",
        found="another executor has taken it: this process gave no sign of life for a while",
        cure="run the same command again: it takes the other's result",
    )
