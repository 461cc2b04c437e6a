"""The fold of a run: its events, one by one, into the values of :mod:`marin.history.executed`.

There is one, for anyone who reads a run whole (:mod:`marin.history.executions`) and for anyone who follows a growing log
(:mod:`marin.plugins.mlflow.folding`). It asks for nothing: where an event refers to another run, its caller brings that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from msgspec import structs

from ledger import Event
from marin.errors import MissingEvidence
from marin.history.executed import ExecutedRun, StepState
from marin.kinds.kind import Fact, Kind, StepView
from marin.kinds.known import own_kind, type_of
from marin.record import events as kinds
from marin.record.events import Body

RECORDING = ("train", *kinds.MODEL_STEPS)
"""Steps whose executions record what a result brings along: training, evaluation, export."""


class RunFacts:
    """What one stream says of a run, by the body of its events, in the order of the log; without what was withdrawn."""

    def __init__(self) -> None:
        self._facts: dict[type[Body], list[Fact[Any]]] = {}
        self._kinds: dict[type[Body], Kind] = {}

    def of[T: Body](self, body: type[T]) -> list[Fact[T]]:
        """The facts of one type."""
        return self._facts.get(body, [])

    def add(self, kind: Kind, fact: Fact[Any]) -> None:
        """Take in the next event."""
        if kind.withdraws is not None:
            self._withdraw(kind.withdraws(fact.body))
        self._facts.setdefault(kind.body, []).append(fact)
        self._kinds[kind.body] = kind

    def until(self, last: int) -> RunFacts:
        """What was recorded up to event ``last``."""
        found = RunFacts()
        found._facts = {body: [fact for fact in facts if fact.index <= last] for body, facts in self._facts.items()}
        return found

    def _withdraw(self, step: int) -> None:
        """What was recorded of train steps from ``step`` on stands no more."""
        for body, facts in self._facts.items():
            if (reaches := self._kinds[body].reaches) is not None:
                self._facts[body] = [fact for fact in facts if reaches(fact.body) <= step]


class RunFold:
    """One run as far as its events have been read. What it holds may be read at any time; :meth:`view` is the value."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.started: Fact[kinds.RunStarted] | None = None
        self.completed: Fact[kinds.RunCompleted] | None = None
        self.outcome = ""
        self.last_index = -1
        self.length = 0
        self.told = -1
        """The last event that is not a verdict."""
        self.steps: dict[str, StepView] = {}
        self.states: dict[str, StepState] = {}
        self.attempts: dict[str, int] = {}
        self.recorded = RunFacts()
        self._taken: dict[str, RunFacts] = {}

    def apply(self, index: int, event: Event, body: Body | None) -> None:
        """Take in the next event of the run; ``body`` is None for what tells nothing of its steps. A step.cached goes
        to :meth:`take_over`."""
        self.last_index, self.length = index, event.seq + 1
        kind = own_kind(event.type)
        if kind is None or not kind.is_verdict_within:
            self.told = index
        if kind is not None and kind.is_folded and isinstance(body, kind.body):
            fact = Fact(index, event.time, body, event.actor)
            self.recorded.add(kind, fact)
            if kind.fold is not None:
                kind.fold(self, fact)

    def take_over(self, index: int, event: Event, result: StepView, recorded: RunFacts | None = None) -> None:
        """Take in a step.cached: ``result`` is what it says (:func:`reused_result`), ``recorded`` what the stream holds in which
        the result was first recorded, None for this one."""
        self.apply(index, event, None)
        if recorded is not None:
            self._taken[result.step] = recorded
        else:
            self._taken.pop(result.step, None)
        self._set_result("cached", result)

    def view(self) -> ExecutedRun:
        """The run as it is by now; :class:`MissingEvidence` without its beginning."""
        if self.started is None:
            raise MissingEvidence(
                "the run has no beginning",
                where=f"run/{self.run}",
                expected=type_of(kinds.RunStarted),
                found=f"{self.length} other events",
                cure="see `marin ls runs`",
            )
        trained, evaluated, exported = map(self._recorded_of, RECORDING)
        saved = {fact.body.step: fact for fact in trained.of(kinds.CheckpointSaved)}
        return ExecutedRun(
            run=self.run,
            started=self.started,
            last_index=self.last_index,
            told=self.told,
            length=self.length,
            steps=dict(self.steps),
            attempts=dict(self.attempts),
            failures=tuple(self.recorded.of(kinds.StepFailed)),
            training=tuple(trained.of(kinds.TrainStarted)),
            segments=standing(trained.of(kinds.TrainSegment)),
            checkpoints=tuple(saved[step] for step in sorted(saved)),
            evaluation=next(reversed(evaluated.of(kinds.EvalCompleted)), None),
            exported=next(reversed(exported.of(kinds.ModelExported)), None),
            completed=self.completed,
            preemptions=tuple(self.recorded.of(kinds.StepPreempted)),
            states=dict(self.states),
            outcome=self.outcome,
            loop=tuple(self.recorded.of(kinds.LoopSegment)),
        )

    def step_begun(self, fact: Fact[kinds.StepStarted]) -> None:
        """An attempt at a step begins."""
        body = fact.body
        self.attempts[body.step] = max(self.attempts.get(body.step, 0), body.attempt)
        self.states[body.step] = StepState(
            body.step,
            "running",
            self._known(body.step, fact).started,
            attempt=body.attempt,
            identity=body.identity,
            inputs=body.inputs,
            config=body.config_digest,
            code=body.code,
            index=fact.index,
        )

    def step_completed(self, fact: Fact[kinds.StepCompleted]) -> None:
        """A step has its output."""
        self._taken.pop(fact.body.step, None)
        self._set_result("completed", step_view(fact))

    def step_failed(self, fact: Fact[kinds.StepFailed]) -> None:
        """A step stopped with an error."""
        step, known = fact.body.step, self._known(fact.body.step, fact)
        self.states[step] = replace(known, state="failed", ended=fact.time, error=fact.body.error, index=fact.index)

    def step_goes_on(self, step: str, fact: Fact[Any]) -> None:
        """A step is heard of."""
        self.states[step] = self._known(step, fact)

    def _set_result(self, state: Any, result: StepView) -> None:
        known = self.states.get(result.step) or StepState(result.step, "running", result.time)
        self.steps[result.step] = result
        self.states[result.step] = replace(
            known,
            state=state,
            ended=result.time,
            identity=result.identity,
            inputs=result.inputs,
            error="",
            index=result.index,
            result=result,
        )

    def _known(self, step: str, fact: Fact[Any]) -> StepState:
        """A step that any of its events may be the first to speak of."""
        return self.states.get(step) or StepState(step, "running", fact.time, index=fact.index)

    def _recorded_of(self, step: str) -> RunFacts:
        """What was recorded by the execution that the step's result came from; all of it while it has none."""
        result = self.steps.get(step)
        return self.recorded if result is None else self._taken.get(step, self.recorded).until(result.completed_at)


def standing(segments: Iterable[Fact[kinds.TrainSegment]]) -> tuple[Fact[kinds.TrainSegment], ...]:
    """Of segments in the order of the log those that no later one repeats, in the order of train steps."""
    found: dict[int, Fact[kinds.TrainSegment]] = {}
    end = 0
    for fact in segments:
        segment = fact.body
        if segment.start < end:
            found = {
                start: known
                for start, known in found.items()
                if known.body.end <= segment.start or segment.end <= known.body.start
            }
        found[segment.start] = fact
        end = max(end, segment.end)
    return tuple(sorted(found.values(), key=lambda fact: fact.body.start))


def body_of(index: int, event: Event) -> Body | None:
    """What an event says of a run; None for what says nothing of one. In the stream of a graph a step goes by its
    address.

    Raises:
        MarinError: the body does not fit its type.
    """
    kind = own_kind(event.type)
    if kind is None or not kind.is_folded:
        return None
    body = kinds.read(kind.body, event.body, where=f"event {index}")
    return by_address(body) if event.stream.startswith("graph/") else body


def by_address[T: Body](body: T) -> T:
    """The body with the address of its step for its name, where it has one: in a graph many nodes may be executions of
    one step."""
    address = getattr(body, "address", "")
    return structs.replace(body, step=address) if address and hasattr(body, "step") else body


def step_view(fact: Fact[kinds.StepCompleted]) -> StepView:
    """The result that one ``step.completed`` records."""
    body = fact.body
    return StepView(
        step=body.step,
        identity=body.identity,
        inputs=body.inputs,
        output=body.output,
        metrics={name: float.fromhex(value) for name, value in body.metrics.items()},
        tables=body.tables,
        seconds=body.seconds,
        index=fact.index,
        time=fact.time,
        completed_at=fact.index,
        origin=body.run,
        cached=False,
    )


def reused_result(cached: Fact[kinds.StepCached], made: StepView | None) -> StepView:
    """The result that one ``step.cached`` takes over; ``made`` is how it was first recorded, None where that is not
    known."""
    body = cached.body
    if made is not None:
        return replace(
            made,
            identity=body.identity,
            output=body.output,
            index=cached.index,
            time=cached.time,
            completed_at=body.completed_at,
            cached=True,
        )
    return StepView(
        step=body.step,
        identity=body.identity,
        inputs=body.inputs,
        output=body.output,
        metrics={},
        tables={},
        seconds=0.0,
        index=cached.index,
        time=cached.time,
        completed_at=body.completed_at,
        origin="",
        cached=True,
    )
