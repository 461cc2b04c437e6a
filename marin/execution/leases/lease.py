"""Leases: which executor is at work on which step, as events of the ledger, so that two never do one step twice.

All lease events are in the stream ``leases``, and each names the number that it must get there (``expect_seq``). So of
two executors that claim at once the log takes one, and the other reads what has happened and decides anew. A claim ends

* when it is released, in the same batch of events that records the result;
* when its term has passed and it was not renewed;
* when its process is seen to be dead: it ran on this machine, and its number is free or another process has it.

A result is recorded together with the release of its claim. An executor that slept through its term (a stopped process,
a suspended machine) has lost the claim by then: the log refuses the batch, and its result is dropped.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from ledger import Draft, digest_bytes, format_time, parse_time
from marin.record import events as kinds
from marin.record.events import LEASES, LeaseReleased, LeaseRenewed, LeaseTaken, read, write
from marin.record.root import Root

TERM = timedelta(seconds=120)
"""How long a claim outlives the last sign of its executor. It is renewed after a third of it."""


@dataclass(frozen=True)
class Holder:
    """An executor as its events describe it."""

    executor: str
    host: str
    pid: int
    born: str
    until: datetime

    def alive(self, now: datetime) -> bool:
        """Whether its claims still hold."""
        return now < self.until and not self._seen_dead()

    def _seen_dead(self) -> bool:
        here = birth(os.getpid())
        if self.host != os.uname().nodename or not here or _machine(self.born) != _machine(here):
            return False  # another machine, or another container: only the term can tell
        return birth(self.pid) != self.born


@dataclass
class Claims:
    """The fold of the stream ``leases``. ``length`` is how many events it has: the number that the next one gets."""

    length: int = 0
    size: int = 0
    """Up to where the log was read."""
    holders: dict[str, Holder] = field(default_factory=dict)
    steps: dict[str, str] = field(default_factory=dict)

    def catch_up(self, root: Root) -> None:
        """Take in what was appended since: by way of the read model at first, then what is new alone."""
        reader = root.reader()
        end = reader.checkpoint().size
        new = reader.events(self.size, end) if self.size else root.history().events(stream=LEASES)
        for index, event in new:
            if event.stream == LEASES and index < end:
                self.see(event.type, event.seq, event.body)
        self.size = end

    def see(self, kind: str, seq: int, body: Mapping[str, Any]) -> None:
        """Take in event number ``seq`` of the stream; one that was seen already changes nothing."""
        if seq < self.length:
            return
        self.length = seq + 1
        where = f"event {seq} of {LEASES}"
        if kind == kinds.LEASE_TAKEN:
            taken = read(LeaseTaken, body, where=where)
            self.holders[taken.executor] = Holder(
                taken.executor, taken.host, taken.pid, taken.born, parse_time(taken.until)
            )
            for executor in taken.over:
                self.steps = {step: holder for step, holder in self.steps.items() if holder != executor}
                self.holders.pop(executor, None)
            self.steps.update(dict.fromkeys(taken.steps, taken.executor))
        elif kind == kinds.LEASE_RENEWED:
            renewed = read(LeaseRenewed, body, where=where)
            if renewed.executor in self.holders:
                self.holders[renewed.executor] = replace(
                    self.holders[renewed.executor], until=parse_time(renewed.until)
                )
        elif kind == kinds.LEASE_RELEASED:
            released = read(LeaseReleased, body, where=where)
            for step in released.steps:
                if self.steps.get(step) == released.executor:
                    del self.steps[step]

    def holder(self, identity: str) -> Holder | None:
        """Who has claimed the step, alive or not."""
        return self.holders.get(self.steps.get(identity, ""))

    def rival(self, identity: str, claimant: Claimant) -> Holder | None:
        """Who else than ``claimant`` has claimed the step, alive or not."""
        holder = self.holder(identity)
        return None if holder is None or holder.executor == claimant.executor else holder

    def is_of(self, claimant: Claimant, identity: str) -> bool:
        """Whether the claim on the step is the one of ``claimant``."""
        holder = self.holder(identity)
        return holder is not None and holder.executor == claimant.executor


@dataclass(frozen=True)
class Claimant:
    """This executor, as its lease events name it."""

    executor: str
    term: timedelta = TERM

    @classmethod
    def of_process(cls) -> Claimant:
        """This process, by the same name as long as it lives: what it has claimed and not released is its own."""
        born = birth(os.getpid())
        told = f"{born}/{os.getpid()}" if born else secrets.token_hex()
        return cls(digest_bytes(told.encode()).removeprefix("sha256:")[:10])

    def take(self, claims: Claims, steps: Mapping[str, str], over: Iterable[str], now: datetime) -> Draft:
        """The claim on ``steps`` (addresses by identity), and the end of the claims of the executors ``over``."""
        return self._draft(
            claims,
            kinds.LEASE_TAKEN,
            LeaseTaken(
                executor=self.executor,
                host=os.uname().nodename,
                pid=os.getpid(),
                born=birth(os.getpid()),
                until=format_time(now + self.term),
                steps=dict(steps),
                over=sorted(over),
            ),
        )

    def renew(self, claims: Claims, now: datetime) -> Draft:
        """A sign of life."""
        return self._draft(
            claims, kinds.LEASE_RENEWED, LeaseRenewed(executor=self.executor, until=format_time(now + self.term))
        )

    def release(self, claims: Claims, steps: Iterable[str]) -> Draft:
        """The end of the claims on ``steps``."""
        return self._draft(claims, kinds.LEASE_RELEASED, LeaseReleased(executor=self.executor, steps=sorted(steps)))

    @staticmethod
    def _draft(claims: Claims, kind: str, body: kinds.Body) -> Draft:
        return Draft(kind, LEASES, write(body), expect_seq=claims.length)


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
