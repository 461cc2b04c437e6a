"""Leases on steps: which executor has what, and until when. All of them stand in the stream ``leases``."""

from __future__ import annotations

from msgspec import field

from marin.kinds.body import Body, Digest
from marin.kinds.kind import Kind

LEASE_TAKEN = "lease.taken/v1"
LEASE_RENEWED = "lease.renewed/v1"
LEASE_RELEASED = "lease.released/v1"
LEASES = "leases"  # the stream of all lease events


class LeaseTaken(Body, frozen=True):
    """An executor takes leases on steps, by identity; ``until`` is when they end if nothing is heard of it. ``host``,
    ``pid`` and ``born`` say which process that is, so that its death is seen at once where it can be. ``over`` are the
    executors whose leases end with this event; ``term`` is how long the leases outlive a sign of life, in milliseconds."""

    executor: str
    host: str
    pid: int
    born: str
    until: str
    steps: dict[Digest, str]
    over: list[str] = field(default_factory=list)
    term: int = 120_000


class LeaseRenewed(Body, frozen=True):
    """An executor is alive and keeps all its leases until ``until``."""

    executor: str
    until: str


class LeaseReleased(Body, frozen=True):
    """An executor gives leases back: the steps are done, failed or left."""

    executor: str
    steps: list[Digest]


KINDS: tuple[Kind, ...] = (
    Kind(LEASE_TAKEN, LeaseTaken, underway=True),
    Kind(LEASE_RENEWED, LeaseRenewed, underway=True),
    Kind(LEASE_RELEASED, LeaseReleased, underway=True),
)
