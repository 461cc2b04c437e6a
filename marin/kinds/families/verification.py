"""What reproducers say of runs, and what was looked at again in a store."""

from __future__ import annotations

from marin.kinds.body import Body, Digest, Json
from marin.kinds.kind import Held, Kind

REPLAY_COMPLETED = "replay.completed/v1"
REPLAY_SEGMENT = "replay.segment/v1"
STORE_SCRUBBED = "store.scrubbed/v1"
_CLAIMED = ("verdicts", "training", "first_divergence", "log_checkpoint", "details", "environment")


class ReplayCompleted(Body, frozen=True):
    """A reproducer's verdicts on a run, over the log checkpoint it verified."""

    run: str
    verdicts: dict[str, str]
    training: Json
    first_divergence: Json | None
    log_checkpoint: Json
    details: dict[str, list[str]]
    environment: Json


class ReplaySegment(Body, frozen=True):
    """A reproducer executed train steps ``[start, end)`` of a run again and found what was recorded. ``segment``
    digests the whole body of the run's train.segment, ``conditions`` the recipe, the tokens and the code that were
    executed."""

    run: str
    start: int
    end: int
    segment: Digest
    conditions: Digest


class StoreScrubbed(Body, frozen=True):
    """A portion of the store was hashed again. ``findings`` are lines for people, the first hundred of them, in which
    digests are words and name nothing; ``repaired``: names in the store that are whole again; ``finished``: to the
    end."""

    checked: int
    size: int
    findings: list[str]
    repaired: list[str]
    finished: bool


KINDS: tuple[Kind, ...] = (
    Kind(REPLAY_COMPLETED, ReplayCompleted, verdict=True, run=Held(claimed=_CLAIMED), loop=Held(claimed=_CLAIMED)),
    Kind(REPLAY_SEGMENT, ReplaySegment, underway=True, verdict=True),
    Kind(STORE_SCRUBBED, StoreScrubbed),
)
