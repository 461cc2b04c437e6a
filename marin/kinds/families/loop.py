"""Train steps of a loop that is its user's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from marin.kinds.body import Body, HexFloat
from marin.kinds.kind import Fact, Held, Kind, LoopContext, Pair

LOOP_SEGMENT = "loop.segment/v1"


class LoopSegment(Body, frozen=True):
    """Train steps ``[start, end)`` of a loop that is the user's own. Lists have one item per train step.

    ``losses``: hex floats. ``batches``: digests of what each step saw, "" where the loop does not say. ``state``: digest
    of the tensors after the last step, and ``manifest`` the stored list of them; both "" where the loop does not say.
    """

    run: str
    start: int
    end: int
    losses: list[HexFloat]
    batches: list[Annotated[str, Meta(pattern=r"^(sha256:[0-9a-f]{64})?$")]]
    state: Annotated[str, Meta(pattern=r"^(sha256:[0-9a-f]{64})?$")] = ""
    manifest: Annotated[str, Meta(pattern=r"^(sha256:[0-9a-f]{64})?$")] = ""


def _is_whole(fact: Fact[LoopSegment], seen: LoopContext) -> Iterator[Pair]:
    body = fact.body
    count = body.end - body.start
    each = f"one for each of {count} train steps"
    is_whole = len(body.losses) == len(body.batches) == count and count > 0
    yield "losses, batches", each, each if is_whole else f"{len(body.losses)} and {len(body.batches)}"
    both = "a digest and the list of tensors, or neither"
    yield "state, manifest", both, both if bool(body.state) == bool(body.manifest) else "one of them"


KINDS: tuple[Kind, ...] = (
    Kind(LOOP_SEGMENT, LoopSegment, underway=True, loop=Held(claimed=("batches",), agrees=_is_whole), kept=True),
)
