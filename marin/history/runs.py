"""Reading runs back: a run is what its events say, folded; nothing else remembers it.

A step that was taken over from an earlier run (``step.cached``) is resolved to the event that first recorded it, and
the facts of that execution (segments, checkpoints, evaluation) are read from the stream of the run that executed it.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from ledger import Event, Stray
from marin.errors import MissingEvidence, UsageError
from marin.history.fold import RECORDING, Recorded, RunFold, body_of, step_view, taken
from marin.history.labels import label_stream, labelled
from marin.history.run import Fact, Indexed, Run, StepView, age_in_words, record_digest, unverified
from marin.kinds.known import own_kind, type_of
from marin.record import events as kinds
from marin.record.events import (
    ReplayCompleted,
    ReplaySegment,
    RunLabelled,
    RunStarted,
    StepCached,
    StepCompleted,
    StepStarted,
    TrainWithdrawn,
)

log = logging.getLogger(__name__)

LATEST = "latest"


class History(Protocol):
    """Verified events to read from, in the order of the log."""

    def events(self, *, stream: str | None = None, type: str | None = None, **named: str | None) -> Iterable[Indexed]:
        """The events of one stream, of one type, whose bodies have these texts in the fields of these names (``run``,
        ``identity``), or all of it, with their index in the log."""

    def event(self, index: int) -> Event | None:
        """The event at this index; None beyond the end."""

    def strays(self, naming: str) -> Iterable[Stray]:
        """The entries of the log that are no events of it, and have this text in them."""

    def counts(self, verdict: Fact[ReplayCompleted]) -> bool:
        """Whether this user gave the verdict, on a run of this log."""

    def newest(self, stream: str) -> int:
        """The index of the newest event of a stream, -1 where it has none."""


def stream_of(run: str) -> str:
    """The stream that holds the events of ``run``."""
    return f"run/{run}"


def evaluation_stream(run: str) -> str:
    """The stream that holds what was evaluated of the states of ``run``, which is no part of its execution."""
    return f"evaluation/{run}"


def replay_stream(run: str) -> str:
    """The stream that holds what a reproducer says of single segments of ``run``, and asks of its training."""
    return f"replay/{run}"


def stream_of_graph(graph: str) -> str:
    """The stream that holds the events of one execution of a graph."""
    return f"graph/{graph}"


def stands_in_stream(event: Event, run: str) -> bool:
    """Whether an event stands in the stream of ``run`` itself, or of that execution of a graph: what names a run elsewhere
    says nothing of what it is, and no verdict looks at it."""
    return event.stream in (stream_of(run), stream_of_graph(run))


def started_runs(history: History, *, plan: str | None = None, recipe: str | None = None) -> Iterator[Fact[RunStarted]]:
    """The beginning of every run (of this plan, of the recipe with this digest), in the order in which they started."""
    yield from facts(history, RunStarted, plan=plan, recipe_digest=recipe)


def run_ids(history: History) -> list[str]:
    """All runs, in the order in which they started."""
    return [fact.body.run for fact in started_runs(history)]


def resolve(history: History, name: str) -> str:
    """The id that ``name`` means: a whole id, a unique beginning of one, or ``latest`` (of the runs that lists show, the one
    started last).

    Raises:
        UsageError: no run or several runs answer to it; the message lists those that come near.
    """
    known = run_ids(history)
    if name == LATEST:
        hidden = archived(history)
        return pick([run for run in known if run not in hidden] or known, name)
    return pick(known, name)


def pick(known: Sequence[str], name: str) -> str:
    """As :func:`resolve`, among these ids, the oldest first.

    Raises:
        UsageError: there is no such run, or several begin like that.
    """
    if not known:
        raise UsageError(
            "there are no runs",
            where=name,
            expected="a run in this root",
            found="an empty ledger",
            cure="make one with `dvc repro`",
        )
    if name == LATEST:
        return known[-1]
    if name in known:
        return name
    matching = [run for run in known if name and run.startswith(name)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise UsageError(
            "ambiguous run",
            where=name,
            expected="a beginning that only one run has",
            found=", ".join(matching[:8]),
            cure="give more of its letters",
        )
    near = difflib.get_close_matches(name, (LATEST, *known), n=1)
    raise UsageError(
        "unknown run",
        where=name,
        expected="a run id, a unique beginning of one, or latest",
        found=f"none so called among {len(known)}; the newest is {known[-1]}",
        cure=f"did you mean {near[0]}?" if near else "see `marin ls runs`",
    )


def facts_of(history: History, stream: str, step: str, kind: str) -> list[Indexed]:
    """The events of type ``kind`` in a run's stream that ``step`` recorded under its present identity: those after the
    step.started that began it. A run goes on when a step's inputs have changed (own texts that were edited after a
    later step failed); what was trained on the old ones is no state to go on from, and neither is what was withdrawn."""
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


def followed(history: History, run: Run, is_mine: Callable[[int], bool]) -> str:
    """How far this user, who executed segments of a run again, is behind it, in words; "" where that never was. ``is_mine``:
    whether this user wrote the event at an index."""
    told = facts(history, ReplaySegment, stream=replay_stream(run.run))
    held = {fact.body.segment for fact in told if is_mine(fact.index)}
    if not any(record_digest(fact.body) in held for fact in run.segments[:1]):
        return ""
    return age_in_words(unverified(run, held))


def archived(history: History) -> set[str]:
    """The runs that lists leave out."""
    found: dict[str, bool] = {}
    for body in labelled(history.events(type=type_of(RunLabelled))):
        found[body.run] = found.get(body.run, False) if body.archived is None else body.archived
    return {run for run, hidden in found.items() if hidden}


def load(history: History, run: str) -> Run:
    """The run with exactly this id; :class:`MissingEvidence` when the ledger has no ``run.started`` for it."""
    return _folded(history, run, stream_of(run))


def load_graph(history: History, graph: str) -> Run:
    """The execution of a graph with exactly this id, read as a run; :class:`MissingEvidence` where there is none."""
    return _folded(history, graph, stream_of_graph(graph))


def load_named(history: History, name: str) -> Run:
    """The run that ``name`` means (as :func:`resolve`), or the execution of a graph with this id.

    Raises:
        UsageError: no run or several answer to the name.
    """
    if re.fullmatch(r"[a-z0-9]+", name) and any(True for _ in history.events(stream=stream_of_graph(name))):
        return load_graph(history, name)
    return load(history, resolve(history, name))


def load_all(history: History) -> Iterator[Run]:
    """Every run, in the order in which they started; one that does not hold together is named and left out."""
    return load_each(history, run_ids(history))


def load_each(history: History, ids: Iterable[str], one: Callable[[History, str], Run] = load) -> Iterator[Run]:
    """These, each as ``one`` loads it; what does not hold together is named and left out."""
    for run in ids:
        try:
            yield one(history, run)
        except MissingEvidence as error:
            log.warning("run %s is left out: %s", run, error)


def _folded(history: History, run: str, stream: str) -> Run:
    fold, origins = RunFold(run), dict[str, Recorded]()
    for index, event in history.events(stream=stream):
        body = body_of(index, event)
        if not isinstance(body, StepCached):
            fold.apply(index, event, body)
            continue
        result = _resolved(Fact(index, event.time, body), history)
        recorded = None
        if result.origin != run and body.step in RECORDING:
            if result.origin not in origins:
                origins[result.origin] = _recorded(history, stream_of(result.origin))
            recorded = origins[result.origin]
        fold.take_over(index, event, result, recorded)
    for fact in facts(history, ReplayCompleted, run=run):
        fold.judge(fact, counts=history.counts(fact))
    fold.evaluated = history.newest(evaluation_stream(run))
    for body in labelled(history.events(stream=label_stream(run), type=type_of(RunLabelled))):
        fold.label(body)
    return fold.view()


def _recorded(history: History, stream: str) -> Recorded:
    found = Recorded()
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
            return taken(cached, made)
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
