"""Who wrote which event of a log, and which verdicts in it are this user's own.

In a log that enrolled nobody every event is the word of the log's own key, and ``actor`` is shown as it is. In one that enrolled
authors a name is shown as it is where its author signed the event, and as claimed everywhere else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from ledger import Author, Authors, Event, LogReader, VerifierKey

Places = Callable[[str], Sequence[int]]
"""The indices of the events of a type, in order."""


class Authorship:
    """Of the log that ``reader`` reads, as it is by now."""

    def __init__(self, reader: LogReader, places: Places, *, own: bool, mine: Sequence[VerifierKey] = ()) -> None:
        """``own``: this user's key signs the log; ``mine``: this user's keys as an author in it."""
        self._reader, self._places, self._own, self._mine = reader, places, own, tuple(mine)
        self._authors: Authors | None = None
        self._size = -1

    @property
    def authors(self) -> Authors:
        """Everybody whose key the log enrolled."""
        size = self._reader.checkpoint().size
        if self._authors is None or size != self._size:
            self._size = size
            self._authors = Authors(
                self._reader.checkpoint().origin, self._reader.keys, self._places, self._reader.event
            )
        return self._authors

    def shown(self, index: int, event: Event) -> Event:
        """The event at this index, whose ``actor`` says so where nobody's signature shows it."""
        if not len(self.authors) or event.actor == self._reader.checkpoint().origin or self._author(index, event):
            return event
        # With a space or a comma it could look like the names of several, of which the last alone is claimed.
        plain = re.fullmatch(r"[^\s,]+", event.actor)
        return replace(
            event, actor=f"{event.actor if plain else json.dumps(event.actor, ensure_ascii=False)} (claimed)"
        )

    def name(self, index: int, event: Event) -> str:
        """The name under which the event is shown; "" where nobody is enrolled, for then it is the log's own word."""
        return self.shown(index, event).actor if len(self.authors) else ""

    def is_mine(self, index: int, event: Event | None = None) -> bool:
        """Whether this user wrote the event: signed it as an author, or holds the log's key and it is in no author's name."""
        found = self._author(index, event)
        return self._own and not self._named(index, event) if found is None else found.vkey in self._mine

    def is_keepers(self, index: int) -> bool:
        """Whether the event at this index is the word of the log's keeper, or this user's: it is in no other author's name."""
        found = self._author(index, None)
        return not self._named(index, None) if found is None else found.vkey in self._mine

    def counts(self, index: int, log_checkpoint: Mapping[str, object]) -> bool:
        """Whether the verdict at this index, over this log checkpoint, is this user's, on a run of this log."""
        return self.is_mine(index) and of_this_log(log_checkpoint, self._reader)

    def _named(self, index: int, event: Event | None) -> bool:
        """Whether it is in the name of an author, who has not signed it where :meth:`_author` finds nobody: then it is nobody's
        word."""
        authors = self.authors
        return len(authors) > 0 and authors.names(index, event or self._reader.event(index)) is not None

    def _author(self, index: int, event: Event | None) -> Author | None:
        authors = self.authors
        if not len(authors):
            return None
        return authors.of(index, self._reader.event(index) if event is None else event)


class Position(Protocol):
    """A signed size of a log."""

    @property
    def origin(self) -> str: ...
    @property
    def size(self) -> int: ...


class Past(Protocol):
    """A log that knows which root it had at each size, as :class:`ledger.LogReader` does."""

    def checkpoint(self) -> Position: ...
    def root(self, size: int) -> bytes: ...


def of_this_log(log_checkpoint: Mapping[str, object], log: Past) -> bool:
    """Whether a verdict over this log checkpoint is about a run of ``log``: it is one that this very log had. Another
    log may have an equal origin and equal run ids, for both are the words of its maker."""
    size, newest = log_checkpoint.get("size"), log.checkpoint()
    if log_checkpoint.get("origin") != newest.origin or type(size) is not int or not 0 < size <= newest.size:
        return False
    return log_checkpoint.get("root") == log.root(size).hex()
