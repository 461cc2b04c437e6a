"""What a run says of documents that were excluded from another run, held against both records. Pure.

A training that was forked (``unlearning.forked``) begins with train steps of another run. That they are what its own recipe
leads to, is found by replay like everything else of it. Here: that somebody asked for it before; that the recipe differs from
the other run's in these documents alone; that the fork is where the other run had not read any of them, by what the request
says (the verdict ``data`` derives it from the tokens); and that what was taken over is what the other run recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from marin.history.run import Fact, Run
from marin.recipe.schema import Recipe, digest
from marin.record.events import UnlearningForked, UnlearningRequested


@dataclass(frozen=True)
class Fork:
    """A fork as a run recorded it, with what it refers to: None where the log has no such thing. ``recipe``: that run's, which
    another may have taken the training over from."""

    fact: Fact[UnlearningForked]
    before: Run | None
    request: Fact[UnlearningRequested] | None
    recipe: Recipe


def fork_pairs(run: Run, recipe: Recipe, index: int, fork: Fork | None) -> Iterator[tuple[str, Any, Any]]:
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
