"""Leases: which executor is at work on which step, as events of the ledger, so that two never do one step twice.

All lease events are in the stream ``leases``, and each names the number that it must get there (``expect_seq``). So of
two executors that take a lease at once the log takes one, and the other reads what has happened and decides anew. A lease
ends

* when its executor releases it: in the batch of events that records the result, if the executor writes that itself;
* when its executor gave no sign for a term: by the clock of this machine where it runs here, else for as long as anyone who
  asks has watched, because the clocks of two machines differ;
* when its process is seen to be dead: it ran on this machine, and its number is free or another process has it.

An executor that slept through its term (a stopped process, a suspended machine) may have lost the lease to another by
then: it records no result, and what it made is dropped.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from ledger import Draft, Event, LedgerError, digest_bytes, format_time, parse_time
from marin.errors import MarinError
from marin.record import events as kinds
from marin.record.events import LEASES, LeaseReleased, LeaseRenewed, LeaseTaken, draft, read
from marin.record.root import LedgerHistory, Root

log = logging.getLogger(__name__)

TERM = timedelta(seconds=120)
"""How long a lease outlives the last sign of its executor, at most. It is renewed after a third of it."""
SKEW = timedelta(seconds=300)
"""How much the clocks of two machines may differ: as much as a log lets its writers' clocks."""
RECENT = 2 * SKEW + TERM
"""An executor that has given no sign for so long, by any clock, holds nothing any more."""
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Holder:
    """An executor as its events describe it. ``until``: when its leases end by its clock; ``term``: how long they outlive its
    last sign, which was read here at ``seen`` (:func:`time.monotonic`)."""

    executor: str
    host: str
    pid: int
    born: str
    until: datetime
    term: timedelta
    seen: float

    def alive(self, now: datetime, *, watched: float | None = None) -> bool:
        """Whether its leases still hold. ``watched``: seconds since its last sign was read, if not those until now."""
        here = birth(os.getpid())
        if self.host == os.uname().nodename and here and _machine(self.born) == _machine(here):
            return now < self.until and birth(self.pid) == self.born
        # Another machine, or another container.
        watched = time.monotonic() - self.seen if watched is None else watched
        return watched < self.term.total_seconds() and now < self.until + SKEW


@dataclass
class Leases:
    """The fold of the stream ``leases``. ``length`` is how many events it has: the number that the next one gets."""

    length: int = 0
    size: int = 0
    """Up to where the log was read."""
    holders: dict[str, Holder] = field(default_factory=dict)
    steps: dict[str, str] = field(default_factory=dict)

    def catch_up(self, root: Root) -> set[str]:
        """Take in what was appended since; the steps that it is about. At first, what can matter now is found by way of the
        read model: an executor that gave no sign lately holds nothing."""
        reader = root.reader()
        end = reader.checkpoint().size
        new = reader.events(self.size, end, lenient=True) if self.size else _standing(root.history())
        named = set[str]()
        for index, event in new:
            if event.stream == LEASES and index < end:
                named |= self.see(event.type, event.seq, event.body, parse_time(event.time))
        self.size = end
        return named

    def see(self, kind: str, seq: int, body: Mapping[str, Any], at: datetime) -> set[str]:
        """Take in event number ``seq`` of the stream, recorded ``at`` this time; the steps that it is about. One that was seen
        already changes nothing."""
        if seq < self.length:
            return set()
        self.length = seq + 1
        try:
            return self._seen(kind, body, at, where=f"event {seq} of {LEASES}")
        except MarinError as error:  # in a log of someone else's: it keeps nothing from anybody
            log.warning("%s", error)
            return set()

    def _seen(self, kind: str, body: Mapping[str, Any], at: datetime, *, where: str) -> set[str]:
        if kind == kinds.LEASE_TAKEN:
            taken = read(LeaseTaken, body, where=where)
            self._sign(taken, taken.until, timedelta(milliseconds=taken.term), at)
            for executor in taken.over:
                self.steps = {step: holder for step, holder in self.steps.items() if holder != executor}
                self.holders.pop(executor, None)
            self.steps.update(dict.fromkeys(taken.steps, taken.executor))
            return set(taken.steps)
        if kind == kinds.LEASE_RENEWED:
            renewed = read(LeaseRenewed, body, where=where)
            if (known := self.holders.get(renewed.executor)) is not None:
                self._sign(known, renewed.until, known.term, at)
        elif kind == kinds.LEASE_RELEASED:
            released = read(LeaseReleased, body, where=where)
            for step in released.steps:
                if self.steps.get(step) == released.executor:
                    del self.steps[step]
            return set(released.steps)
        return set()

    def holder(self, step: str) -> Holder | None:
        """Who has the lease on the step, alive or not."""
        return self.holders.get(self.steps.get(step, ""))

    def rival(self, step: str, claimant: Claimant) -> Holder | None:
        """Who else than ``claimant`` has the lease on the step, alive or not."""
        holder = self.holder(step)
        return None if holder is None or holder.executor == claimant.executor else holder

    def is_of(self, claimant: Claimant, step: str) -> bool:
        """Whether the lease on the step is the one of ``claimant``."""
        holder = self.holder(step)
        return holder is not None and holder.executor == claimant.executor

    def living(self) -> list[str]:
        """The steps that a living executor is at work on."""
        now = utc_now()
        return [
            step
            for step, executor in self.steps.items()
            if (holder := self.holders.get(executor)) is not None and holder.alive(now)
        ]

    def _sign(self, who: Holder | LeaseTaken, until: str, term: timedelta, at: datetime) -> None:
        """Who cannot say until when keeps nothing from others, and who says a time far away, nothing for long."""
        # Also where a log says of an event that it is from the year 9999.
        at = min(max(at, _EARLIEST), utc_now() + SKEW)
        try:
            end = min(parse_time(until), at + SKEW + TERM)
        except LedgerError:
            end = at - RECENT
        term = min(max(term, timedelta()), TERM)
        self.holders[who.executor] = Holder(who.executor, who.host, who.pid, who.born, end, term, time.monotonic())


def _standing(history: LedgerHistory) -> Iterator[tuple[int, Event]]:
    """The lease events that can matter now, in order: all of the executors that gave a sign lately, and the very last."""
    places = history.places(stream=LEASES)
    cut = bisect_left(places, utc_now() - RECENT, key=lambda index: _time_of(history, index))
    recent = dict(history.at(places[cut:] or places[-1:]))
    executors = {str(event.body.get("executor")) for event in recent.values()}
    before = (history.places(stream=LEASES, executor=executor) for executor in sorted(executors))
    older = sorted(index for found in before for index in found if index not in recent)
    yield from history.at(older)
    yield from recent.items()


def _time_of(history: LedgerHistory, index: int) -> datetime:
    event = history.event(index)
    assert event is not None, "the log has what its read model says"
    return parse_time(event.time)


@dataclass(frozen=True)
class Claimant:
    """This executor, as its lease events name it."""

    executor: str
    term: timedelta = TERM

    @classmethod
    def of_process(cls) -> Claimant:
        """This process, by the same name as long as it lives: what it has taken and not released is its own."""
        born = birth(os.getpid())
        told = f"{born}/{os.getpid()}" if born else secrets.token_hex()
        return cls(digest_bytes(told.encode()).removeprefix("sha256:")[:10])

    def take(self, leases: Leases, steps: Mapping[str, str], over: Iterable[str], now: datetime) -> Draft:
        """The lease on ``steps`` (addresses by identity), and the end of the leases of the executors ``over``."""
        taken = LeaseTaken(
            executor=self.executor,
            host=os.uname().nodename,
            pid=os.getpid(),
            born=birth(os.getpid()),
            until=format_time(now + self.term),
            term=round(self.term.total_seconds() * 1000),
            steps=dict(steps),
            over=sorted(over),
        )
        return draft(taken, LEASES, expect_seq=leases.length)

    def renew(self, leases: Leases, now: datetime) -> Draft:
        """A sign of life."""
        renewed = LeaseRenewed(executor=self.executor, until=format_time(now + self.term))
        return draft(renewed, LEASES, expect_seq=leases.length)

    def release(self, leases: Leases, steps: Iterable[str]) -> Draft:
        """The end of the leases on ``steps``."""
        released = LeaseReleased(executor=self.executor, steps=sorted(steps))
        return draft(released, LEASES, expect_seq=leases.length)


def utc_now() -> datetime:
    """The time of this machine."""
    return datetime.now(UTC)


def birth(pid: int) -> str:
    """What no other process ever shares: the boot of the machine, the namespace of process numbers, and when this one
    began (proc_pid_stat(5), field 22); "" where that is not known or there is no such process."""
    with suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        if fields[0] != "Z":
            return f"{_here()}/{fields[19]}"
    return ""


@cache
def _here() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"


def _machine(born: str) -> str:
    return born.rpartition("/")[0]
