"""Forks: a training that begins with train steps of another run which its exclusion does not concern.

A run whose recipe excludes documents, and nothing else but what another run's recipe has, sees until the first use of
these documents what that run saw. So those train steps are recorded again in its own stream, as they stand there, and the
training goes on from the last of their states as any interrupted one does. From then on nothing tells the run from one
that was trained from the beginning; and anyone who verifies it replays it from there.

The tokenizer is trained again without the documents before that. If it is another one, every token may be, and nothing
is taken over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import msgspec

from ledger import Store
from marin.errors import MissingEvidence, UsageError
from marin.execution.step import Journal
from marin.history.run import Fact, Run
from marin.history.runs import History, facts, load, stream_of
from marin.kinds.known import type_of
from marin.plugins.unlearning.kinds import UnlearningForked, UnlearningRequested, unlearning_stream
from marin.recipe.schema import Recipe, digest
from marin.record.events import GRAD_NORM, Body, MetricsRecorded, Series, TrainSegment


@dataclass(frozen=True)
class Place:
    """Before which train step a training is forked, and the recorded state there."""

    step: int
    state: str


def check_forkable(run: Run, what: str) -> None:
    """Refuse a run of which not everything that counts is here, or which is still under way; ``what`` was to be done.

    Raises:
        UsageError: it is such a run.
    """
    found, cure = "", ""
    if run.is_loop:
        found, cure = "a loop of its user's own", "train again without the document, by the same program"
    elif run.completed is None:
        found = "a run that is under way" if run.status == "open" else "a run that failed"
        cure = "let it end first: run the same command again; or train with exclude=[...] from the start"
    elif run.recipe.phase is not None:
        link = run.started.body.continues
        before = link.run if link is not None else "RUN"
        found = f"a phase after run {before}"
        cure = f"take run {before} first, and continue what comes of it: marin train --continue"
    elif run.recipe.initial is not None:
        found = "a run that begins with a model that was made elsewhere"
        cure = "what that model has read is not recorded: train from the beginning with exclude=[...]"
    if found:
        raise UsageError(
            f"a run that cannot be {what}",
            where=f"run {run.run}",
            expected="a complete run from the beginning",
            found=found,
            cure=cure,
        )


def place(run: Run, store: Store, first_use: int) -> Place:
    """The last recorded state of ``run`` from which nothing has read what train step ``first_use`` reads first: one whose
    bytes are stored, or the initial state.

    Raises:
        MissingEvidence: the run recorded no training.
    """
    if not run.segments:
        raise MissingEvidence(
            "the run has no training to go on from",
            where=f"run {run.run}",
            expected="recorded train steps",
            found="none",
            cure="name a run that was trained",
        )
    first = run.segments[0].body
    stored = {fact.body.state for fact in run.checkpoints if store.has(fact.body.artifact)}
    ends = [fact.body for fact in run.segments if fact.body.end <= first_use and fact.body.end_state in stored]
    return Place(ends[-1].end, ends[-1].end_state) if ends else Place(first.start, first.start_state)


def requests(history: History, run: str) -> list[Fact[UnlearningRequested]]:
    """What was asked to be unlearned of ``run``, oldest first."""
    return list(facts(history, UnlearningRequested, stream=unlearning_stream(run)))


def fork_of(history: History, run: Run) -> UnlearningForked | None:
    """Where the training of ``run`` began that was forked from another; None of one that was not."""
    step = run.steps.get("train")
    stream = stream_of(step.origin if step is not None else run.run)
    found = list(facts(history, UnlearningForked, stream=stream))
    return found[-1].body if found else None  # earlier ones are of attempts that ended early


def take_over(history: History, journal: Journal, run: str, recipe: Recipe, tokenizer: str, fork: str) -> None:
    """Record in ``run`` the train steps of run ``fork`` before the place that was asked for; nothing where its own are
    recorded already. ``tokenizer``: the digest of the one that was trained for ``run``.

    Raises:
        MissingEvidence: nobody asked for this fork.
    """
    if journal.history(type_of(TrainSegment)):
        return
    wanted = digest(recipe)
    asked = [fact for fact in requests(history, fork) if fact.body.recipe == wanted]
    if not asked:
        raise MissingEvidence(
            "nobody asked to fork this run",
            where=f"run {fork}",
            expected=f"a request for the recipe {wanted}",
            found="none in this ledger",
            cure="`marin unlearn` records one",
        )
    before, request = load(history, fork), asked[-1]
    same = before.output("tokenizer").digest == tokenizer
    first = before.segments[0].body
    at = Place(request.body.step, request.body.state) if same else Place(first.start, first.start_state)
    forked = UnlearningForked(
        run=run, from_run=fork, request=request.index, step=at.step, state=at.state, same_tokenizer=same
    )
    for body in chain([forked], _again(history, before, run, at.step)):
        journal.record(type_of(type(body)), body)


def _again(history: History, before: Run, run: str, until: int) -> Iterator[Body]:
    """The train steps of ``before`` up to ``until``, with states and gradient norms, in the name of ``run``."""
    saved = {fact.body.state: fact.body for fact in before.checkpoints}
    norms = _norms(history, before)
    for fact in before.segments:
        body = fact.body
        if body.end > until:
            return
        if (checkpoint := saved.get(body.end_state)) is not None:
            yield _renamed(checkpoint, run)
        yield _renamed(body, run)
        steps = [step for step in range(body.start, body.end) if step in norms]
        if steps:
            series = Series(key=GRAD_NORM, steps=steps, values=[norms[step] for step in steps])
            yield MetricsRecorded(run=run, step="train", series=[series])


def _renamed[T: Body](body: T, run: str) -> T:
    return msgspec.structs.replace(body, run=run)


def _norms(history: History, before: Run) -> dict[int, str]:
    """Train step -> gradient norm, as recorded."""
    origin = before.steps["train"].origin if "train" in before.steps else before.run
    found: dict[int, str] = {}
    for fact in facts(history, MetricsRecorded, stream=stream_of(origin)):
        for series in fact.body.series:
            if series.key == GRAD_NORM:
                found |= dict(zip(series.steps, series.values, strict=True))
    return found
