"""Which training checkpoints a run keeps: a policy that ``train.started`` records, and that collection and backups follow.

What a policy lets go is the stored tree of a state. Its digest, its list of tensors and its event stay, so a replay still has
to meet that state on its way. Nothing else is ever let go: an artifact that another event names is kept by that event, the
last state by the output of its step.
"""

from __future__ import annotations

from collections.abc import Sequence

from marin.record.events import CheckpointSaved, TrainStarted


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
