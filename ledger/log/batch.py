"""What one commit of a log will add behind its end: a batch, which requests join whole or not at all.

A batch is open until the disk is free to take it. So the events that come in while one batch is being synced are
checked, placed and hashed meanwhile, and go into the next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ledger.errors import LedgerError, StorageFailed


class Receipt(NamedTuple):
    """The acknowledgement of one event: durable, and covered by a signed checkpoint of ``tree_size`` or more."""

    index: int  # type: ignore[assignment]  # the name matters more than tuple.index
    leaf_hash: str
    seq: int
    tree_size: int


class Placed(NamedTuple):
    """An event in its place: in the log already, or behind its end."""

    id: str
    stream: str
    seq: int
    index: int  # type: ignore[assignment]
    entry: bytes
    leaf: bytes


class Batch:
    """Events behind the end of the log, in order. ``settled`` once they are durable, or known to have failed."""

    def __init__(self, end: int) -> None:
        self._start = end
        self.fresh: list[Placed] = []
        self.known: dict[str, Placed] = {}
        self.lengths: dict[str, int] = {}
        self.time = ""
        self.settled = False
        self.tree_size = 0
        self._error: LedgerError | None = None

    @property
    def end(self) -> int:
        return self._start + len(self.fresh)

    def add(self, placed: Placed) -> None:
        self.fresh.append(placed)
        self.known[placed.id] = placed
        self.lengths[placed.stream] = placed.seq + 1

    def cut(self, count: int) -> None:
        """Only the first ``count`` events stay."""
        while len(self.fresh) > count:
            placed = self.fresh.pop()
            del self.known[placed.id]
            self.lengths[placed.stream] = placed.seq

    def settle(self, tree_size: int) -> None:
        """All of it is durable, under a signed checkpoint of this size."""
        self.tree_size, self.settled = tree_size, True

    def fail(self, error: BaseException) -> None:
        """Whether it is in the log is not known, or it is not."""
        if not isinstance(error, LedgerError):
            error = StorageFailed("the commit failed", found=repr(error), cure="hand the events in again")
        self._error, self.settled = error, True

    def receipts(self, placed: list[Placed]) -> list[Receipt]:
        """The acknowledgement of these events, which are in the settled batch or were in the log before it."""
        if self._error is not None:
            raise self._error
        size = self.tree_size
        return [Receipt(p.index, p.leaf.hex(), p.seq, size) for p in placed]


class Entered:
    """Requests that have their place in a batch. It is committed when its outcomes are asked for."""

    def __init__(self, finish: Callable[[Batch], None], batch: Batch, placed: list[list[Placed] | LedgerError]) -> None:
        self._finish, self._batch, self._placed = finish, batch, placed

    @property
    def waiting(self) -> int:
        """How many events are in the batch by now."""
        return len(self._batch.fresh)

    def outcomes(self) -> list[list[Receipt] | LedgerError]:
        """As ``Log.append_each``, once the batch is durable."""
        if not self._batch.settled:
            self._finish(self._batch)
        receipts = self._batch.receipts
        return [found if isinstance(found, LedgerError) else receipts(found) for found in self._placed]
