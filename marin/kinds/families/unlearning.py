"""Documents that are to be excluded from what a run is: who asked for it, and the training that was forked for it."""

from __future__ import annotations

from marin.kinds.body import Body, Digest
from marin.kinds.kind import Held, Kind

UNLEARNING_REQUESTED = "unlearning.requested/v1"
UNLEARNING_FORKED = "unlearning.forked/v1"


class UnlearningRequested(Body, frozen=True):
    """Somebody asked that ``documents`` be excluded from what run ``from_run`` is; recorded before the work, in the
    stream ``unlearning/<from_run>``. ``recipe``: digest of the recipe that excludes them too. ``first_use``: the first
    train step that read one of them; ``step``: the train step before which the training is forked, and ``state`` the
    recorded state there."""

    from_run: str
    documents: list[str]
    reason: str
    recipe: Digest
    first_use: int
    step: int
    state: Digest


class UnlearningForked(Body, frozen=True):
    """This run's training begins with the train steps of ``from_run`` before ``step``, recorded again after this, as the
    event ``request`` asked for. ``same_tokenizer``: trained without the documents, the tokenizer is the one of
    ``from_run``; where it is another, nothing is taken over, and ``step`` is the first."""

    run: str
    from_run: str
    request: int
    step: int
    state: Digest
    same_tokenizer: bool


KINDS = (
    Kind(UNLEARNING_REQUESTED, UnlearningRequested),
    Kind(
        UNLEARNING_FORKED, UnlearningForked, step="train", run=Held(agrees=lambda fact, seen: seen.of_fork(fact.index))
    ),
)
