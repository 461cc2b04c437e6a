"""A history of given events, for tests of what is derived from one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ledger import Event, Stray
from marin.history.run import Indexed


class EventList:
    """Each event with its index in the log; found by stream, type and fields of the body, as in a log's history."""

    def __init__(self, events: Sequence[Indexed]) -> None:
        self.all = events

    def events(self, *, stream: str | None = None, type: str | None = None, **named: str | None) -> Iterator[Indexed]:
        return (
            (index, event)
            for index, event in self.all
            if stream in (None, event.stream)
            and type in (None, event.type)
            and all(value in (None, event.body.get(name)) for name, value in named.items())
        )

    def strays(self, naming: str) -> tuple[Stray, ...]:
        return ()

    def newest(self, stream: str) -> int:
        return max((index for index, _ in self.events(stream=stream)), default=-1)

    def event(self, index: int) -> Event | None:
        return dict(self.all).get(index)
