"""Executions read back: what the stream of a run says of it, folded, and single facts of a log.

A step that was taken over from an earlier run (``step.cached``) is resolved to the event that first recorded it, and
the facts of that execution (segments, checkpoints, evaluation) are read from the stream of the run that executed it. Verdicts and
labels, which stand elsewhere, :mod:`marin.history.runs` reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from ledger import Event, Stray
from marin.errors import MissingEvidence
from marin.history.executed import ExecutedRun, Indexed
from marin.history.fold import RECORDING, RunFacts, RunFold, body_of, reused_result, step_view
from marin.kinds.kind import Fact, StepView
from marin.kinds.known import own_kind, type_of
from marin.record import events as kinds
from marin.record.events import ReplayCompleted, RunStarted, StepCached, StepCompleted, StepStarted, TrainWithdrawn


class History(Protocol):
    """Verified events to read from, in the order of the log."""

    def events(self, *, stream: str | None = None, type: str | None = None, **named: str | None) -> Iterable[Indexed]:
        """The events of one stream, of one type, whose bodies have these texts in the fields of these names (``run``,
        ``identity``), or all of it, with their index in the log."""

    def event(self, index: int) -> Event | None:
        """The event at this index; None beyond the end."""

    def strays(self, naming: str) -> Iterable[Stray]:
        """The entries of the log that are not events of it, and have this text in them."""

    def counts(self, verdict: Fact[ReplayCompleted]) -> bool:
        """Whether this user gave the verdict, on a run of this log."""

    def newest(self, stream: str) -> int:
        """The index of the newest event of a stream, -1 where it has none."""


def stream_of(run: str) -> str:
    """The stream that holds the events of ``run``."""
    return f"run/{run}"


def evaluation_stream(run: str) -> str:
    """The stream that holds what was evaluated of the states of ``run``, which is not part of its execution."""
    return f"evaluation/{run}"


def replay_stream(run: str) -> str:
    """The stream that holds what a reproducer says of single segments of ``run``, and asks of its training."""
    return f"replay/{run}"


def started_runs(history: History, *, plan: str | None = None, recipe: str | None = None) -> Iterator[Fact[RunStarted]]:
    """The beginning of every run (of this plan, of the recipe with this digest), in the order in which they started."""
    yield from facts(history, RunStarted, plan=plan, recipe_digest=recipe)


def facts_of(history: History, stream: str, step: str, kind: str) -> list[Indexed]:
    """The events of type ``kind`` in a run's stream that ``step`` recorded under its present identity: those after the
    step.started that began it. A run goes on when a step's inputs have changed (own texts that were edited after a
    later step failed); what was trained on the old ones is not a state to go on from, and neither is what was withdrawn."""
    since, identity = -1, None
    for index, event in history.events(stream=stream, type=type_of(StepStarted)):
        if event.body["step"] == step and event.body["identity"] != identity:
            since, identity = index, event.body["identity"]
    found = [item for item in history.events(stream=stream, type=kind) if item[0] > since]
    for index, event in history.events(stream=stream, type=type_of(TrainWithdrawn)):
        found = [item for item in found if item[0] > index or not withdrawn_from(item[1], event.body["step"])]
    return found


def bodies_of(history: History, stream: str, step: str, kind: str) -> list[kinds.Body]:
    """What these events say (:func:`facts_of`)."""
    known = own_kind(kind)
    assert known is not None, f"no type of event of ours is called {kind}"
    return [
        kinds.read(known.body, event.body, where=f"event {index}")
        for index, event in facts_of(history, stream, step, kind)
    ]


def withdrawn_from(event: Event, step: int) -> bool:
    """Whether an event tells of train steps from ``step`` on, or of a state after that: withdrawn with them."""
    kind = own_kind(event.type)
    if kind is None or kind.reaches is None:
        return False
    return kind.reaches(kinds.read(kind.body, event.body, where=event.stream)) > step


def executed(history: History, run: str) -> ExecutedRun:
    """The run with exactly this id, as its stream says it; :class:`MissingEvidence` when the ledger has no ``run.started``
    for it."""
    fold = RunFold(run)
    fold_stream(fold, history, stream_of(run))
    return fold.view()


def fold_stream(fold: RunFold, history: History, stream: str) -> None:
    """Take in the events of a stream."""
    origins = dict[str, RunFacts]()
    for index, event in history.events(stream=stream):
        body = body_of(index, event)
        if not isinstance(body, StepCached):
            fold.apply(index, event, body)
            continue
        result = _resolved(Fact(index, event.time, body), history)
        recorded = None
        if result.origin != fold.run and body.step in RECORDING:
            if result.origin not in origins:
                origins[result.origin] = _recorded(history, stream_of(result.origin))
            recorded = origins[result.origin]
        fold.take_over(index, event, result, recorded)


def _recorded(history: History, stream: str) -> RunFacts:
    found = RunFacts()
    for index, event in history.events(stream=stream):
        kind, body = own_kind(event.type), body_of(index, event)
        if kind is not None and body is not None:
            found.add(kind, Fact(index, event.time, body, event.actor))
    return found


def _resolved(cached: Fact[StepCached], history: History) -> StepView:
    body = cached.body
    event = history.event(body.completed_at)
    if event is not None and event.type == type_of(StepCompleted):
        made = step_view(read_fact(StepCompleted, (body.completed_at, event)))
        if (made.step, made.identity, made.output) == (body.step, body.identity, body.output):
            return reused_result(cached, made)
    raise MissingEvidence(
        "a result was taken over from an event that does not hold it",
        where=f"event {cached.index}",
        expected=f"{type_of(StepCompleted)} of {body.step} at {body.completed_at}",
        found="something else",
        cure="run `marin ledger fsck`",
    )


def facts[T: kinds.Body](
    history: History, kind: type[T], *, stream: str | None = None, **named: str | None
) -> Iterator[Fact[T]]:
    """Every fact of one kind in the log or a stream of it, oldest first, whose body has these texts in the fields of these
    names."""
    for item in history.events(stream=stream, type=type_of(kind), **named):
        yield read_fact(kind, item)


def is_a(item: Indexed, kind: type[kinds.Body]) -> bool:
    """Whether an event is of the type that has this body."""
    return item[1].type == type_of(kind)


def completions(history: History, *, step: str, identity: str) -> Iterator[Fact[StepCompleted]]:
    """Every recorded result of steps with this identity, oldest first."""
    return (fact for fact in facts(history, StepCompleted, identity=identity) if fact.body.step == step)


def read_fact[T: kinds.Body](kind: type[T], item: Indexed) -> Fact[T]:
    """The event as a fact of its kind; raises what :func:`marin.record.events.read` raises for a body that does not fit."""
    index, event = item
    return Fact(index, event.time, kinds.read(kind, event.body, where=f"event {index}"), event.actor)
