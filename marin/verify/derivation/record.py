"""The record of a run: every event that says something of it, whichever run's stream it stands in.

A run has a stream of its own. A step that was taken over from another run (``step.cached``) was executed and recorded
there, so those events belong to the record too, up to the one that completed the step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ledger import Event, Stray
from marin.errors import MarinError, MissingEvidence
from marin.history.run import Fact, Indexed, Run, StepView
from marin.history.runs import History, evaluation_stream, is_a, load, read_fact, stream_of, withdrawn_from
from marin.history.runs import facts as facts_in
from marin.kinds.claim import Contradiction as Contradiction
from marin.kinds.families.experiment import ExperimentRegistered
from marin.kinds.families.measured import EvaluationMeasured, EvaluationRecorded
from marin.kinds.known import among, is_evaluation, own_kind, type_of
from marin.record import events as kinds
from marin.record.events import CheckpointSaved, RunStarted, StepCompleted, TrainWithdrawn
from marin.verify.derivation.fields import unknown_fields


@dataclass(frozen=True)
class Stretch:
    """Events of one stream: those of the run itself, or what another run recorded of a ``step`` that was taken from it.
    ``started`` is the beginning of the run whose stream it is."""

    run: str
    started: Fact[RunStarted]
    events: tuple[Indexed, ...]
    step: str = ""


@dataclass(frozen=True)
class RunRecord:
    """A run as its events say it: the fold, and the events."""

    run: Run
    own: Stretch
    taken: Mapping[str, Stretch]
    registrations: tuple[Fact[ExperimentRegistered], ...] = ()
    """Of the experiment that the run cites."""
    outside: tuple[Indexed, ...] = ()
    """Events that speak in the run's name in streams that are not its own."""
    evaluations: tuple[Fact[EvaluationRecorded], ...] = ()
    """What a harness evaluated of its states."""
    measured: tuple[Fact[EvaluationMeasured], ...] = ()
    """What held-out sets measured of them while it trained."""
    aside: tuple[Indexed, ...] = ()
    """What was evaluated of states that its training withdrew."""
    referred: Mapping[int, Any] = field(default_factory=dict)
    """What its events refer to in other streams of the log, by event."""
    strays: tuple[Stray, ...] = ()
    """Entries of the log that are not events of it, and name the run, or one that it took a step from."""

    @property
    def evaluated(self) -> bool:
        """Whether anything is recorded that the verdict ``evaluation`` is about."""
        return bool(self.evaluations or self.measured)

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        """All of it; the run's own events first."""
        return (self.own, *self.taken.values())


@dataclass(frozen=True)
class Unexplained:
    """Something recorded that nothing here derives: it is only claimed, whatever it says."""

    index: int
    what: str

    def __str__(self) -> str:
        return f"event {self.index}: {self.what}, which nothing here derives"


@dataclass(frozen=True)
class Unjudged:
    """Something recorded that was once said and does not stand: no verdict rests on it, and none looks at it."""

    index: int
    what: str

    def __str__(self) -> str:
        return f"event {self.index}: {self.what}, and which nobody judges"


def step_of(item: Indexed) -> str:
    """The step that an event is about; "" for one about the whole run."""
    kind, named = own_kind(item[1].type), item[1].body.get("step")
    return kind.step if kind is not None and kind.step else named if isinstance(named, str) else ""


def read_record(history: History, run: str) -> RunRecord:
    """The record of the run with exactly this id.

    Raises:
        MissingEvidence: the log has no beginning of it, or of a run that it took a step from.
    """
    view = load(history, run)
    own = Stretch(run, view.started, tuple(history.events(stream=stream_of(run))))
    taken = {}
    beginnings = _beginnings(history, {view.steps[step].origin for step in _taken(view)})
    for step in _taken(view):
        origin = view.steps[step].origin
        events = [
            item
            for item in history.events(stream=stream_of(origin))
            if item[0] <= view.steps[step].completed_at and step_of(item) == step
        ]
        _check_taken(view.steps[step], beginnings, {index for index, _ in events})
        taken[step] = Stretch(origin, beginnings[origin], tuple(events), step)
    for name, step_view in view.steps.items():
        if name not in taken:
            _check_taken(step_view, {run: view.started}, {index for index, _ in own.events})
    cited = view.started.body.experiment
    registered = tuple(facts_in(history, ExperimentRegistered, registration=cited)) if cited else ()
    outside = _outside(history, run)
    gone = _withdrawn_states(view, (own, *taken.values()))
    told = (item for item in outside if is_evaluation(item[1].type) and item[1].stream == evaluation_stream(run))
    aside = tuple(item for item in told if item[1].body.get("state") in gone)
    outside = [item for item in outside if item not in aside]
    evaluations = _evaluations(EvaluationRecorded, outside, run)
    measured = _evaluations(EvaluationMeasured, outside, run)
    strays = {stray.index: stray for name in (run, *beginnings) for stray in history.strays(name)}
    return RunRecord(
        view,
        own,
        taken,
        registered,
        tuple(item for item in outside if item[0] not in evaluations and item[0] not in measured),
        tuple(evaluations.values()),
        tuple(measured.values()),
        aside,
        {index: found for stretch in (own, *taken.values()) for index, found in _referred(history, stretch)},
        tuple(strays[index] for index in sorted(strays)),
    )


def misplaced_entries(record: RunRecord) -> Iterator[Contradiction]:
    """Entries in the run's name that contradict what stands before them: no writer gives an id twice, or leaves out a number."""
    for stray in record.strays:
        if stray.field:
            yield Contradiction(stray.index, stray.field, stray.expected, stray.found)


def _beginnings(history: History, runs: Iterable[str]) -> dict[str, Fact[RunStarted]]:
    """The beginning of each of these runs, as its own stream has it."""
    return {
        fact.body.run: fact for run in sorted(runs) for fact in facts_in(history, RunStarted, stream=stream_of(run))
    }


def _outside(history: History, run: str) -> list[Indexed]:
    """Events that speak in the run's name in other streams than its own; all of the stream of its evaluations, whatever they
    call their run."""
    named = dict(history.events(run=run)) | dict(history.events(stream=evaluation_stream(run)))
    own = stream_of(run)
    return [item for item in sorted(named.items()) if item[1].stream != own and not is_verdict(item[1])]


def is_verdict(event: Event) -> bool:
    """Whether an event is about a run and does not tell of its execution: a reproducer says it."""
    kind = own_kind(event.type)
    return kind is not None and kind.verdict


def _referred(history: History, stretch: Stretch) -> Iterator[tuple[int, Any]]:
    for kind in among({event.type for _, event in stretch.events}):
        if kind.refers is not None:
            for fact in facts(stretch, kind.body):
                yield fact.index, kind.refers(fact, history, stretch)


def withdrawn(stretch: Stretch) -> set[int]:
    """The events of a stretch that tell of train steps which its training withdrew later."""
    cuts = facts(stretch, TrainWithdrawn)
    return {
        index
        for index, event in stretch.events
        if any(index < back.index and withdrawn_from(event, back.body.step) for back in cuts)
    }


def _withdrawn_states(view: Run, stretches: Iterable[Stretch]) -> set[str]:
    """States that were recorded and withdrawn, and are not among those that stand."""
    states = set[str]()
    for stretch in stretches:
        gone = withdrawn(stretch)
        states |= {saved.body.state for saved in facts(stretch, CheckpointSaved) if saved.index in gone}
    return states - {fact.body.state for fact in view.checkpoints}


def _evaluations[T: (EvaluationRecorded, EvaluationMeasured)](
    kind: type[T], outside: Iterable[Indexed], run: str
) -> dict[int, Fact[T]]:
    """Events whose every word the verdict ``evaluation`` judges, by index: of this type, in their own stream."""
    found = {}
    for item in outside:
        if not is_a(item, kind) or item[1].stream != evaluation_stream(run):
            continue
        try:
            fact = read_fact(kind, item)
        except MarinError:
            continue
        if fact.body.run == run and not any(unknown_fields(kind, item[1].body)):
            found[item[0]] = fact
    return found


def pinned_steps(view: Run) -> set[str]:
    """Steps whose output an experiment pinned to an artifact, whatever its recipe would make: the beginning of the run
    says so, and the run has them as results of other runs. Nothing proves them."""
    started = view.started.body
    ends = {part.removeprefix("pinned-") for part in started.pipeline.split(".") if part.startswith("pinned-")}
    """How versions before ``pinned`` said it: the ends of digests in the name of the plan."""
    return {
        name
        for name, step in view.steps.items()
        if step.cached
        and (
            started.pinned.get(name) in (step.output.digest, step.output.artifact)
            or {step.output.digest[-8:], step.output.artifact[-8:]} & ends
        )
    }


def _check_taken(step: StepView, beginnings: Mapping[str, Fact[RunStarted]], events: set[int]) -> None:
    """A result stands in the stream of the run that made it: elsewhere nothing says how it was made.

    Raises:
        MissingEvidence: that run never began, or its stream does not hold the event.
    """
    if step.origin in beginnings and step.completed_at in events:
        return
    raise MissingEvidence(
        "a result was taken over from a run that did not record it",
        where=f"event {step.index}",
        expected=f"{type_of(StepCompleted)} of {step.step} in the stream of run {step.origin}",
        found=f"event {step.completed_at} elsewhere" if step.origin in beginnings else "no such run",
        cure="run `marin ledger fsck`; do not trust this result",
    )


def _taken(view: Run) -> list[str]:
    return [name for name, step in view.steps.items() if step.cached and step.origin != view.run]


def facts[T: kinds.Body](stretch: Stretch, kind: type[T]) -> list[Fact[T]]:
    """The events of one kind in a stretch, oldest first."""
    return [read_fact(kind, item) for item in stretch.events if is_a(item, kind)]
