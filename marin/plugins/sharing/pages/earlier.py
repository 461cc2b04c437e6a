"""A root as its publisher saw it when the log had some size: pages are drawn from that, by who publishes and by who judges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from ledger import LogCheckpoint, LogReader, Store, VerifierKey
from marin.record.root import LedgerHistory, Root
from marin.record.trust.trusted import Keys


class EarlierReader(LogReader):
    """The log of ``reader`` as it was when it had ``size`` entries, verified under the checkpoint of ``reader``."""

    def __init__(self, reader: LogReader, size: int) -> None:
        self._whole = reader
        self._then = LogCheckpoint(reader.checkpoint().origin, size, reader.root(size))

    @property
    def _view(self) -> Any:
        return self._whole._view

    @property
    def keys(self) -> tuple[VerifierKey, ...]:
        """As of the whole log."""
        return self._whole.keys

    def refresh(self) -> LogCheckpoint:
        """As it was: nothing follows."""
        return self._then

    def checkpoint(self) -> LogCheckpoint:
        """As it was then, which the newest one continues."""
        return self._then

    def entries(self, start: int = 0, end: int | None = None) -> Iterator[tuple[int, bytes]]:
        """As of any reader."""
        return self._whole.entries(start, self._then.size if end is None else min(end, self._then.size))

    def signers(self, changes: Sequence[object] = (), also: Sequence[VerifierKey] = ()) -> tuple[VerifierKey, ...]:
        """Of the whole log: that its keys count was asked when it was read."""
        return self._whole.signers((), also)


@dataclass(frozen=True)
class EarlierRoot(Root):
    """``root`` as its publisher saw it then: the log is this user's own, and so are verdicts that no other author signed."""

    then: LogReader | None = None
    mine: tuple[VerifierKey, ...] = ()

    @classmethod
    def of(cls, root: Root, reader: LogReader, size: int, mine: Sequence[VerifierKey]) -> EarlierRoot:
        """Of the log that ``reader`` reads; ``mine``: the publisher's keys as an author in it."""
        values = {item.name: getattr(root, item.name) for item in fields(Root)}
        return cls(**values, then=EarlierReader(reader, size), mine=tuple(mine))

    def reader(self, trusted: Sequence[VerifierKey] = ()) -> LogReader:
        """The log as it was."""
        assert self.then is not None  # of() gives it
        return self.then

    @cached_property
    def _history(self) -> LedgerHistory:
        return LedgerHistory(self.reader(), None, own=True, mine=self.mine)

    def history(self, trusted: Sequence[VerifierKey] = (), *, fresh: bool = False) -> LedgerHistory:
        """The events by then, folded once."""
        return self._history

    def keys(self, trusted: Sequence[VerifierKey] = ()) -> Keys:
        """Those under which the log was read."""
        return Keys(self.reader().keys, "own")

    def is_own(self, trusted: Sequence[VerifierKey] = ()) -> bool:
        """To its publisher it is."""
        return True

    def author_keys(self) -> tuple[VerifierKey, ...]:
        """The publisher's."""
        return self.mine

    def projection_path(self) -> None:
        """Nothing of it is kept."""

    def store(self) -> Store:
        """For reading alone."""
        return self.store_to_read()
