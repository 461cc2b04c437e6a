"""Leases: a writer at work, whose artifacts garbage collection must keep although no event names them yet.

Artifacts come before the event that names them, so between the two they look like garbage. A minimum age covers a
short step; a step that runs for days holds a lease. A lease keeps everything that was put since it began. It is a small
canonical JSON file in the store:

    {"began":"1700000000.0","expires":"1700003600.0","holder":"me",
    "host":"…","kind":"lease","pid":1,"version":1}

It ends when its holder gives it back, and after a kill when its time has passed and no process of that number is left
on its host. So a clock that jumps ahead does not end the lease of a process that lives.
"""

from __future__ import annotations

import math
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from ledger.errors import LedgerError, Malformed, NotFound
from ledger.format.canonical import canonical_bytes, parse_canonical
from ledger.storage.port import Storage
from ledger.store.layout import LEASES

DEFAULT_SECONDS: Final = 24 * 3600.0
MOST_PROCESSES: Final = 1 << 22
"""No system numbers a process higher. 0 and below mean groups of processes, which are always there."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Who writes, since when, and until when at most if nothing is heard of the process."""

    name: str
    holder: str
    host: str
    pid: int
    began: float
    expires: float

    def alive(self, now: float) -> bool:
        """Whether it still keeps what it covers."""
        return now < self.expires or (self.host == os.uname().nodename and _runs(self.pid))

    def encode(self) -> bytes:
        """The canonical bytes of the file."""
        return canonical_bytes(
            {
                "began": repr(self.began),
                "expires": repr(self.expires),
                "holder": self.holder,
                "host": self.host,
                "kind": "lease",
                "pid": self.pid,
                "version": 1,
            }
        )

    @classmethod
    def parse(cls, data: bytes, name: str) -> Lease:
        """The lease that a file holds.

        Raises:
            Malformed: not a lease.
        """
        fields = parse_canonical(data)
        try:
            began, expires = float(fields["began"]), float(fields["expires"])
            lease = cls(name, str(fields["holder"]), str(fields["host"]), int(fields["pid"]), began, expires)
            if not 1 <= lease.pid <= MOST_PROCESSES:
                raise ValueError(f"process {lease.pid}, which no system has")
            if not (math.isfinite(began) and math.isfinite(expires)):
                raise ValueError("not a time")
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise Malformed("lease", where=name, expected="a lease of version 1", found=str(error)) from error
        if lease.encode() != data:
            raise Malformed("lease", where=name, expected="a lease of version 1", found="other fields")
        return lease


@contextmanager
def lease(storage: Storage, holder: str, *, seconds: float = DEFAULT_SECONDS) -> Iterator[Lease]:
    """Keep everything that is put from now on until the end of the block."""
    now = time.time()
    held = Lease(f"{LEASES}{secrets.token_hex(16)}.json", holder, os.uname().nodename, os.getpid(), now, now + seconds)
    storage.create(held.name, held.encode())
    try:
        yield held
    finally:
        storage.remove(held.name)


def list_leases(storage: Storage) -> Iterator[Lease]:
    """Every lease in the store.

    Raises:
        Malformed: one cannot be read, so what it kept is not known.
    """
    for name in storage.list(LEASES):
        try:
            yield Lease.parse(storage.read(name), name)
        except NotFound:
            continue  # given back meanwhile
        except LedgerError as error:
            raise Malformed(
                "a lease cannot be read",
                where=name,
                found=str(error),
                cure="nothing was collected; remove the file if no writer is at work",
            ) from error


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
