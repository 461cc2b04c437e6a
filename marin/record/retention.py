"""Which training checkpoints a run keeps: a policy that ``train.started`` records, and that collection and backups follow.

What a policy lets go is the stored tree of a state. Its digest, its list of tensors and its event stay, so a replay still has
to meet that state on its way. Nothing else is ever let go: an artifact that another event names is kept by that event, the
last state by the output of its step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ledger import Event, named_digests
from marin.record.events import CHECKPOINT_SAVED, TRAIN_STARTED, CheckpointSaved, TrainStarted


def let_go(started: Sequence[TrainStarted], saved: Sequence[CheckpointSaved]) -> frozenset[str]:
    """Artifacts of a run's checkpoints that its policy does not keep: that of the newest attempt counts. Nothing where it
    keeps all.

    Kept: the newest ``last``; and those that lie a multiple of one of ``every`` train steps after the first.
    """
    policy = started[-1].retention if started else None
    if policy is None:
        return frozenset()
    first = min(body.first_step for body in started)
    newest = set(sorted({body.step for body in saved})[-policy.last :])
    kept = {
        body.artifact
        for body in saved
        if body.step in newest or any((body.step - first) % every == 0 for every in policy.every)
    }
    return frozenset(body.artifact for body in saved) - kept


def retained_digests(events: Iterable[Event]) -> list[str]:
    """Every digest that the events of a ledger name and no policy lets go, in the order of the log."""
    started: dict[str, list[TrainStarted]] = {}
    saved: dict[str, list[tuple[int, CheckpointSaved]]] = {}
    named: list[list[str]] = []
    for event in events:
        body = dict(event.body)
        named.append(list(named_digests(body)))
        if event.type == TRAIN_STARTED and (begun := _readable_body(body, TrainStarted)) is not None:
            started.setdefault(event.stream, []).append(begun)
        if event.type == CHECKPOINT_SAVED and (made := _readable_body(body, CheckpointSaved)) is not None:
            saved.setdefault(event.stream, []).append((len(named) - 1, made))
    for stream, states in saved.items():
        gone = let_go(started.get(stream, ()), [state for _, state in states])
        for place, state in states:
            if state.artifact in gone:
                named[place] = [digest for digest in named[place] if digest != state.artifact]
    return list(dict.fromkeys(digest for digests in named for digest in digests))


def _readable_body[B: TrainStarted | CheckpointSaved](body: object, kind: type[B]) -> B | None:
    """None where the body is another release's: then nothing is let go by it."""
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError:
        return None
