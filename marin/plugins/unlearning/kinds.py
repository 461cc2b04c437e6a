"""The types of events that this plugin writes: what was asked to be unlearned, trainings that were forked for it, and what
documents did to a loss.

A training that was forked (``unlearning.forked``) begins with train steps of another run. That they are what its own recipe
leads to, is found by replay like everything else of it. Here: that a user asked for it before; that the recipe differs from
the other run's in these documents alone; that the fork is where the other run had not read any of them, by what the request
says (the verdict ``data`` derives it from the tokens); and that what was taken over is what the other run recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from marin.errors import MarinError
from marin.history.run import Run
from marin.history.runs import History, is_a, load, read_fact
from marin.kinds.body import Body, Digest, HexFloat
from marin.kinds.claim import Claim
from marin.kinds.kind import Around, Fact, Held, InStream, Kind, Pair, RunContext
from marin.recipe.schema import Recipe, digest, from_plain

if TYPE_CHECKING:
    from marin.verify.derivation.record import RunRecord

UNLEARNING_REQUESTED = "unlearning.requested/v1"
UNLEARNING_FORKED = "unlearning.forked/v1"
ATTRIBUTION_MEASURED = "attribution.measured/v1"


def unlearning_stream(run: str) -> str:
    """The stream that holds what was asked to be unlearned of ``run``, which is not part of its execution."""
    return f"unlearning/{run}"


def attribution_stream(run: str) -> str:
    """The stream that holds what was measured of ``run`` without some of its documents, which is not part of its
    execution."""
    return f"attribution/{run}"


class UnlearningRequested(Body, frozen=True):
    """A user asked that ``documents`` be excluded from what run ``from_run`` is; recorded before the work, in the
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


class MeasuredLoss(Struct, frozen=True, kw_only=True):
    """One set of texts on one state: ``data`` is the stored JSON lines, ``loss`` the mean in nats a token, ``sums`` the stored
    float64 of every document's negative log-likelihood (little-endian, in the order of the lines)."""

    data: Digest
    sums: Digest
    loss: HexFloat


class AttributionMeasured(Body, frozen=True):
    """What the losses of run ``about`` are if its training leaves ``documents`` out (none: the run as it is), in the stream
    ``attribution/<about>``. ``first_use``: the first train step that read one of them; the training was executed again
    from ``step`` and its recorded ``state``, and ended with ``end_state``. ``same_tokenizer``: trained without the
    documents, the tokenizer is the run's own, so that this is the training without them; null where that was not asked.
    The tokens are the run's own in any case. ``code`` and ``lock`` are what measured it."""

    about: str
    documents: list[str]
    first_use: int | None
    step: int
    state: Digest
    end_state: Digest
    same_tokenizer: bool | None
    sets: dict[str, MeasuredLoss]
    code: Digest
    lock: Digest


@dataclass(frozen=True)
class Fork:
    """A fork as a run recorded it, with what it refers to: None where the log has no such thing. ``recipe``: that run's, which
    another may have taken the training over from."""

    fact: Fact[UnlearningForked]
    before: Run | None
    request: Fact[UnlearningRequested] | None
    recipe: Recipe


def forks_of(record: RunRecord) -> dict[int, Fork]:
    """The forks that the trainings of a record tell of, by event."""
    return {index: one for index, one in record.referred.items() if isinstance(one, Fork)}


def fork_pairs(run: Any, recipe: Recipe, index: int, fork: Fork | None) -> Iterator[tuple[str, Any, Any]]:
    """What a fork has to say, and what it says."""
    if fork is None:
        yield "request", "a fork that can be read", f"event {index}"
        return
    yield "exclude", sorted(recipe.exclude or ()), sorted(fork.recipe.exclude or ())
    if not fork.recipe.exclude:
        yield "exclude", "the documents for which training was forked", "none"
    recipe, body, before, request = fork.recipe, fork.fact.body, fork.before, fork.request
    if before is None:
        yield "from_run", "a run of this log that ended", body.from_run
        return
    if request is None or request.index > index:
        yield "request", "a request before the fork", f"event {body.request}"
        return
    asked = request.body
    yield "request.from_run", body.from_run, asked.from_run
    yield "request.recipe", digest(recipe), asked.recipe
    earlier = before.recipe.exclude or ()
    yield "request.documents", sorted({*(recipe.exclude or ())} - {*earlier}), sorted(asked.documents)
    yield (
        "recipe",
        before.started.body.recipe_digest,
        digest(msgspec.structs.replace(recipe, exclude=before.recipe.exclude)),
    )
    first = before.segments[0].body if before.segments else None
    if first is None:
        yield "from_run", "a run that was trained", body.from_run
        return
    same = before.output("tokenizer").digest == run.output("tokenizer").digest if "tokenizer" in run.steps else True
    yield "same_tokenizer", same, body.same_tokenizer
    yield "step", asked.step if body.same_tokenizer else first.start, body.step
    if body.step > asked.first_use:
        yield "step", f"one up to the first use, {asked.first_use}", body.step
    states = {fact.body.end: fact.body.end_state for fact in before.segments} | {first.start: first.start_state}
    yield "state", states.get(body.step, f"a recorded state of run {before.run}"), body.state
    if body.same_tokenizer:
        yield "request.state", states.get(asked.step), asked.state
    theirs = _steps_until(body.step, before)
    for step, row in _steps_until(body.step, run).items():
        if theirs.get(step) != row:
            yield f"train step {step}", f"as run {before.run} recorded it", "losses, tokens or state that differ"
            return


def _steps_until(until: int, run: Run) -> dict[int, tuple[str, str, str]]:
    """What is recorded of each train step before ``until``."""
    return {step: row for fact in run.segments for step, row in fact.body.by_step.items() if step < until}


def _refers(fact: Fact[UnlearningForked], history: History, stretch: InStream) -> Fork:
    """The run and the request that a fork names."""
    before: Run | None = None
    with suppress(MarinError):
        loaded = load(history, fact.body.from_run)
        before = loaded if "tokenizer" in loaded.steps and loaded.recipe else None
    recipe = from_plain(stretch.started.body.recipe, where=f"run {stretch.run}")
    return Fork(fact, before, _request(history, fact.body.request), recipe)


def _request(history: History, index: int) -> Fact[UnlearningRequested] | None:
    """The request at this index; None where none is."""
    event = history.event(index) if index >= 0 else None
    if event is None or not is_a((index, event), UnlearningRequested):
        return None
    return read_fact(UnlearningRequested, (index, event))


def _forked(fact: Fact[UnlearningForked], seen: RunContext) -> Iterator[Pair]:
    return fork_pairs(seen.run, seen.recipe, fact.index, seen.referred.get(fact.index))


def _says(fact: Fact[UnlearningForked], around: Around) -> Iterator[Claim]:
    body, request = fact.body, around.referred[fact.index].request
    kept = f"its train steps before {body.step} are those of run {body.from_run}"
    begun = kept if body.same_tokenizer else f"without them the tokenizer is another than that of run {body.from_run}"
    differs = f"{begun}, and its recipe is that run's but for what it excludes"
    yield Claim(differs, "signature", "ledger", fact.index)
    if request is not None:
        asked = f"asked for by event {request.index}, before the work, for {len(request.body.documents)} documents"
        yield Claim(asked, "signature", "ledger", request.index)
        yield Claim(f"for this reason: {request.body.reason or 'none given'}", "claimed", event=request.index)
        if body.same_tokenizer:
            first = f"the first train step of run {body.from_run} that read one of them is {request.body.first_use}"
            yield Claim(first, "execution", "data", request.index)


KINDS = (
    Kind(UNLEARNING_REQUESTED, UnlearningRequested),
    Kind(UNLEARNING_FORKED, UnlearningForked, step="train", run=Held(agrees=_forked), refers=_refers, says=_says),
    Kind(ATTRIBUTION_MEASURED, AttributionMeasured),
)
