"""Reading runs back: a run is what its events say, folded; nothing else remembers it.

:func:`fold` is pure (events in, :class:`RunView` out). A step that was taken over from an earlier run
(``step.cached``) is resolved to the event that first recorded it, and the facts of that execution (segments,
checkpoints, evaluation) are read from the stream of the run that executed it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from msgspec import structs

from ledger import Event
from marin.errors import MissingEvidence, UsageError
from marin.recipe.schema import Recipe, from_plain
from marin.record import events as kinds
from marin.record.events import (
    CheckpointSaved,
    EvalCompleted,
    ModelExported,
    Output,
    ReplayCompleted,
    RunCompleted,
    RunStarted,
    StepCached,
    StepCompleted,
    StepFailed,
    StepPreempted,
    TrainSegment,
    TrainStarted,
)
from marin.record.verdicts import effective, of_all

LATEST = "latest"
Indexed = tuple[int, Event]


class History(Protocol):
    """Verified events to read from, in the order of the log."""

    def events(
        self, *, stream: str | None = None, type: str | None = None, run: str | None = None
    ) -> Iterable[Indexed]:
        """The events of one stream, of one type, whose body names this run, or all of it, with their index in the
        log."""

    def counts(self, verdict: ReplayCompleted) -> bool:
        """Whether this user gave the verdict, on a run of this log."""


def stream_of(run: str) -> str:
    """The stream that holds the events of ``run``."""
    return f"run/{run}"


@dataclass(frozen=True)
class Fact[T]:
    """Something an event says, where in the log, and when."""

    index: int
    time: str
    body: T


@dataclass(frozen=True)
class StepView:
    """The result of one step of a run. ``index`` is the event in this run; ``completed_at`` and ``origin`` say which
    event and which run first recorded the result (the same, unless ``cached``)."""

    step: str
    identity: str
    inputs: Mapping[str, str]
    output: Output
    metrics: Mapping[str, float]
    tables: Mapping[str, str]
    seconds: float
    index: int
    time: str
    completed_at: int
    origin: str
    cached: bool


@dataclass(frozen=True)
class RunView:
    """One run, folded from its events. ``length`` is how many events its stream has: the number of the next one."""

    run: str
    started: Fact[RunStarted]
    last_index: int
    length: int
    steps: Mapping[str, StepView]
    attempts: Mapping[str, int]
    failures: tuple[Fact[StepFailed], ...]
    training: tuple[Fact[TrainStarted], ...]
    segments: tuple[Fact[TrainSegment], ...]
    checkpoints: tuple[Fact[CheckpointSaved], ...]
    evaluation: Fact[EvalCompleted] | None
    exported: Fact[ModelExported] | None
    completed: Fact[RunCompleted] | None
    verdicts: tuple[Fact[ReplayCompleted], ...]
    """Those that count; what somebody else's log says of its own runs is in ``claimed``."""
    claimed: tuple[Fact[ReplayCompleted], ...] = ()
    preemptions: tuple[Fact[StepPreempted], ...] = ()

    @property
    def plan(self) -> str:
        """Digest of recipe and code: runs with an equal one must have equal bits."""
        return self.started.body.plan

    @property
    def recipe(self) -> Recipe:
        """The recipe as it was recorded; raises :class:`UsageError` when this version cannot read it."""
        return from_plain(self.started.body.recipe, where=f"run {self.run}")

    @property
    def status(self) -> Literal["completed", "failed", "open"]:
        """``completed``: every step has its output. ``failed``: the last thing heard of it was a failure."""
        if self.completed is not None:
            return "completed"
        last = max((fact.index for fact in self.failures), default=-1)
        return "failed" if last == self.last_index else "open"

    @property
    def metrics(self) -> dict[str, float]:
        """All metrics of the run, as ``step.name``."""
        return {f"{step}.{name}": value for step, view in self.steps.items() for name, value in view.metrics.items()}

    def output(self, step: str) -> Output:
        """What ``step`` made; :class:`MissingEvidence` when the run has no output of it."""
        if step not in self.steps:
            raise MissingEvidence(
                "the run has no such output",
                where=f"run {self.run}",
                expected=f"an output of {step}",
                found=", ".join(self.steps) or "no outputs",
                cure=f"run `marin stage {step}` or `dvc repro`",
            )
        return self.steps[step].output


def started_runs(history: History) -> Iterator[Fact[RunStarted]]:
    """The beginning of every run, in the order in which they started."""
    for item in history.events(type=kinds.RUN_STARTED):
        yield read_fact(RunStarted, item)


def run_ids(history: History) -> list[str]:
    """All runs, in the order in which they started."""
    return [fact.body.run for fact in started_runs(history)]


def resolve(history: History, name: str) -> str:
    """The id that ``name`` means: a whole id, a unique beginning of one, or ``latest`` (the run started last).

    Raises:
        UsageError: no run or several runs answer to it; the message lists those that come near.
    """
    return pick(run_ids(history), name)


def pick(known: Sequence[str], name: str) -> str:
    """As :func:`resolve`, among these ids, the oldest first."""
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
    raise UsageError(
        "unknown run",
        where=name,
        expected="a run id, a unique beginning of one, or latest",
        found=f"latest is {known[-1]}, of {len(known)} in all",
        cure="see `marin ls runs`",
    )


def facts_of(history: History, stream: str, step: str, kind: str) -> list[Indexed]:
    """The events of type ``kind`` in a run's stream that ``step`` recorded under its present identity: those after the
    step.started that began it. A run goes on when a step's inputs have changed (own texts that were edited after a
    later step failed); what was trained on the old ones is no state to go on from."""
    since, identity = -1, None
    for index, event in history.events(stream=stream, type=kinds.STEP_STARTED):
        if event.body["step"] == step and event.body["identity"] != identity:
            since, identity = index, event.body["identity"]
    return [item for item in history.events(stream=stream, type=kind) if item[0] > since]


def load(history: History, run: str) -> RunView:
    """The run with exactly this id; :class:`MissingEvidence` when the ledger has no ``run.started`` for it."""
    return fold(run, history.events(stream=stream_of(run)), history)


def load_all(history: History) -> Iterator[RunView]:
    """Every run, in the order in which they started."""
    for run in run_ids(history):
        yield load(history, run)


def fold(run: str, events: Iterable[Indexed], history: History) -> RunView:
    """Fold the events of one run's stream; ``history`` is asked for the executions that it took results from."""
    facts = list(events)
    own = _Facts(facts)
    if own.started is None:
        raise MissingEvidence(
            "the run has no beginning",
            where=stream_of(run),
            expected=kinds.RUN_STARTED,
            found=f"{len(facts)} other events",
            cure="see `marin ls runs`",
        )
    steps, attempts = _steps(facts, history)
    last = max(index for index, event in facts if event.type != kinds.REPLAY_COMPLETED)
    replays = _replays(run, history, last)
    trained, evaluated, exported = (_origin(own, steps.get(name), history) for name in ("train", "evaluate", "export"))
    return RunView(
        run=run,
        started=own.started,
        last_index=facts[-1][0],
        length=facts[-1][1].seq + 1,
        steps=steps,
        attempts=attempts,
        failures=tuple(own.failures),
        preemptions=tuple(own.preemptions),
        training=tuple(trained.training),
        segments=tuple(sorted(trained.segments.values(), key=lambda fact: fact.body.start)),
        checkpoints=tuple(sorted(trained.checkpoints.values(), key=lambda fact: fact.body.step)),
        evaluation=evaluated.evaluation,
        exported=exported.exported,
        completed=own.completed,
        verdicts=tuple(fact for fact in replays if history.counts(fact.body)),
        claimed=tuple(fact for fact in replays if not history.counts(fact.body)),
    )


def _replays(run: str, history: History, last: int) -> list[Fact[ReplayCompleted]]:
    """Every recorded verification that names this run, its verdicts as they count for all of it, up to event ``last``."""
    facts = [read_fact(ReplayCompleted, item) for item in history.events(type=kinds.REPLAY_COMPLETED, run=run)]
    return [replace(fact, body=structs.replace(fact.body, verdicts=_counting(fact.body, last))) for fact in facts]


def _counting(body: ReplayCompleted, last: int) -> dict[str, str]:
    return of_all(effective(body.verdicts, body.training), body.log_checkpoint, last)


class _Facts:
    """The facts of one stream, sorted by kind. Where an attempt repeats a segment, the later record stands."""

    def __init__(self, events: Iterable[Indexed], until: int | None = None) -> None:
        self.started: Fact[RunStarted] | None = None
        self.completed: Fact[RunCompleted] | None = None
        self.failures: list[Fact[StepFailed]] = []
        self.preemptions: list[Fact[StepPreempted]] = []
        self.training: list[Fact[TrainStarted]] = []
        self.segments: dict[int, Fact[TrainSegment]] = {}
        self.checkpoints: dict[int, Fact[CheckpointSaved]] = {}
        self.evaluation: Fact[EvalCompleted] | None = None
        self.exported: Fact[ModelExported] | None = None
        for item in events:
            if until is not None and item[0] > until:
                break
            self._add(item)

    def _add(self, item: Indexed) -> None:
        match item[1].type:
            case kinds.RUN_STARTED:
                self.started = read_fact(RunStarted, item)
            case kinds.RUN_COMPLETED:
                self.completed = read_fact(RunCompleted, item)
            case kinds.STEP_FAILED:
                self.failures.append(read_fact(StepFailed, item))
            case kinds.STEP_PREEMPTED:
                self.preemptions.append(read_fact(StepPreempted, item))
            case kinds.TRAIN_STARTED:
                self.training.append(read_fact(TrainStarted, item))
            case kinds.TRAIN_SEGMENT:
                segment = read_fact(TrainSegment, item)
                self.segments = {
                    start: known
                    for start, known in self.segments.items()
                    if known.body.end <= segment.body.start or segment.body.end <= start
                }
                self.segments[segment.body.start] = segment
            case kinds.CHECKPOINT_SAVED:
                checkpoint = read_fact(CheckpointSaved, item)
                self.checkpoints[checkpoint.body.step] = checkpoint
            case kinds.EVAL_COMPLETED:
                self.evaluation = read_fact(EvalCompleted, item)
            case kinds.MODEL_EXPORTED:
                self.exported = read_fact(ModelExported, item)


def _origin(own: _Facts, step: StepView | None, history: History) -> _Facts:
    """The facts of the execution that ``step`` came from: this run's own, or those of the run it was taken from."""
    if step is None:
        return own
    return _Facts(history.events(stream=stream_of(step.origin)), until=step.completed_at)


def _steps(events: Iterable[Indexed], history: History) -> tuple[dict[str, StepView], dict[str, int]]:
    steps: dict[str, StepView] = {}
    attempts: dict[str, int] = {}
    for item in events:
        if item[1].type == kinds.STEP_STARTED:
            started = read_fact(kinds.StepStarted, item).body
            attempts[started.step] = max(attempts.get(started.step, 0), started.attempt)
        elif item[1].type == kinds.STEP_COMPLETED:
            completed = step_view(read_fact(StepCompleted, item))
            steps[completed.step] = completed
        elif item[1].type == kinds.STEP_CACHED:
            cached = read_fact(StepCached, item)
            steps[cached.body.step] = _resolved(cached, history)
    return steps, attempts


def facts[T: kinds.Body](history: History, kind: type[T]) -> Iterator[Fact[T]]:
    """Every fact of one kind in the log, oldest first."""
    name = next(name for name, body in kinds.BODIES.items() if body is kind)
    for item in history.events(type=name):
        yield read_fact(kind, item)


def step_view(fact: Fact[StepCompleted]) -> StepView:
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


def _resolved(cached: Fact[StepCached], history: History) -> StepView:
    body = cached.body
    for item in completions(history, step=body.step, identity=body.identity):
        if item.index == body.completed_at:
            if item.body.output != body.output:
                break
            return replace(step_view(item), index=cached.index, time=cached.time, cached=True)
    raise MissingEvidence(
        "a result was taken over from an event that does not hold it",
        where=f"event {cached.index}",
        expected=f"{kinds.STEP_COMPLETED} of {body.step} at {body.completed_at}",
        found="something else",
        cure="run `marin ledger fsck`",
    )


def completions(history: History, *, step: str, identity: str) -> Iterator[Fact[StepCompleted]]:
    """Every recorded result of steps with this identity, oldest first."""
    for item in history.events(type=kinds.STEP_COMPLETED):
        body = item[1].body
        if body.get("step") == step and body.get("identity") == identity:
            yield read_fact(StepCompleted, item)


def read_fact[T: kinds.Body](kind: type[T], item: Indexed) -> Fact[T]:
    """The event as a fact of its kind; raises what :func:`marin.record.events.read` raises for a body that does not fit."""
    index, event = item
    return Fact(index=index, time=event.time, body=kinds.read(kind, event.body, where=f"event {index}"))
