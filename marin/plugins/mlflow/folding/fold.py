"""The fold of a log for MLflow: events in, intended writes out.

Pure: no clock, no random draw, no file, no MLflow. The same events give the same intents whether they arrive in one go
or one by one, which is what makes the projection rebuildable. The fold itself is never stored; a new process folds the
log again from its start and drops the intents that were applied before.

An event that is not of this product, or whose body does not fit its type, changes nothing: a projection has to survive
whatever is in the log. It is counted in ``skipped``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from ledger import Event
from marin.errors import MarinError
from marin.history.fold import by_address, reused_result
from marin.history.labels import label_stream, marked
from marin.history.names import collections_of
from marin.history.projection.identity import Ids
from marin.history.projection.pages import RECORD, pages_of
from marin.history.projection.text import milliseconds
from marin.history.run import Fact, JudgedFold, StepView, ordered
from marin.history.runs import evaluation_stream, replay_stream, stands_in_stream
from marin.history.table.sweeps import RECIPES, VARIED, words_in
from marin.kinds.families.experiment import ExperimentRegistered, ExperimentReported
from marin.kinds.families.graph import GraphCompleted, GraphStarted
from marin.kinds.kind import Kind
from marin.kinds.known import kind_of
from marin.plugins.mlflow.folding import lifecycle, steps, training, verdicts
from marin.plugins.mlflow.folding.aliases import VerifiedModels
from marin.plugins.mlflow.folding.experiments import Experiments
from marin.plugins.mlflow.folding.intents import Intent, Params, Points, PointsGone, Shelve, Tags
from marin.plugins.mlflow.folding.logged import LoggedFold
from marin.plugins.mlflow.folding.projected import ProjectedRun, RecordedEvent
from marin.preregistration.called import run_name
from marin.record import events as types
from marin.record.outputs import bytes_of
from marin.record.trust.authorship import Past, of_this_log
from marin.record.verdicts import of_the_log

CHANGES: Mapping[type[types.Body], Callable[..., Iterator[Intent]]] = {
    types.RunCompleted: lifecycle.run_completed,
    GraphCompleted: lifecycle.graph_completed,
    types.StepStarted: steps.started,
    types.StepCompleted: steps.completed,
    types.StepFailed: steps.failed,
    types.TrainStarted: steps.train_started,
    types.MetricsRecorded: steps.measured,
    types.TrainSegment: training.segment,
    types.LoopSegment: training.segment,
    types.CheckpointSaved: training.checkpoint,
    types.EvalCompleted: training.evaluated,
    types.ModelExported: training.exported,
}
"""What an event of a run changes, once the fold has taken it in."""
OTHERWISE = (
    *(types.RunStarted, GraphStarted, types.StepCached, types.ReplayCompleted, types.ReplaySegment),
    *(types.TrainWithdrawn, ExperimentRegistered, ExperimentReported),
    *(types.TrackingLogged, types.RunLabelled),
)
"""What MLflow is told of in another way. Beside these two it shows what has numbers, whatever type it is of; nothing else
changes what it shows."""

_TOLD = ("run", "graph", "evaluation")
"""How the names of streams begin that tell of a run."""


class Fold:
    """Folds events in the order of the log. ``origin`` names the ledger: it is part of every MLflow id. ``own``: that
    log, where this user's key signs it, as the verdicts in it must be over it; None where it is somebody else's: the
    verdicts in it are this user's word, and not shown."""

    def __init__(self, origin: str, *, own: Past | None = None) -> None:
        self.origin, self._own = origin, own
        self.ids = Ids(origin)
        self.runs: dict[str, ProjectedRun] = {}
        self.skipped = 0
        self.touched: set[str] = set()
        self.logged = LoggedFold()
        self._experiments = Experiments(self.ids)
        self._verified_models = VerifiedModels(self.runs)
        self._twins = verdicts.Twins(self.runs)
        self._replays: dict[str, verdicts.Replays] = {}
        self._results: dict[int, tuple[str, StepView]] = {}
        """Event -> the run that recorded a result by it, and the result."""
        self._swept: dict[str, tuple[str, ...]] = {}
        """Recipe digest -> the keys that set the runs of its newest sweep apart."""

    def apply_all(self, log: Iterable[tuple[int, Event]]) -> Iterator[Intent]:
        """The intents of many events."""
        for index, event in log:
            yield from self.apply(index, event)

    def apply(self, index: int, event: Event, *, mine: bool = True) -> list[Intent]:
        """Take in one event; returns what MLflow should be told. ``mine``: this user wrote it, where the log is this user's."""
        stream, _, run = event.stream.partition("/")
        projected = self.runs.get(run) if stream in _TOLD else None
        before = {} if projected is None else verdicts.words(projected)
        intents = self._read(index, event, mine)
        if projected is not None:
            intents += map(as_others_word, self._verdict_words(index, event, projected, before))
        return intents

    def _verdict_words(
        self, index: int, event: Event, projected: ProjectedRun, before: Mapping[str, str]
    ) -> Iterator[Intent]:
        """What verifications said (``before``), where the run or its evaluations went on by whatever event."""
        kind, fold = kind_of(event.type), projected.fold
        if event.stream == evaluation_stream(projected.name):
            fold.evaluated = index
        elif kind is None or not kind.is_verdict_within:
            fold.told = index
        else:
            return
        if before and verdicts.words(projected) != before:
            yield Tags(projected.id(), verdicts.words(projected))
            yield self._note(projected)
            yield from self._verified_models.after(projected)
            yield from self._equals(projected)
            self.touched.add(projected.name)

    def _read(self, index: int, event: Event, mine: bool) -> list[Intent]:
        kind = kind_of(event.type)
        if kind is None or not (kind.body in CHANGES or kind.body in OTHERWISE or kind.numbers is not None):
            return []
        try:
            body = types.read(kind.body, event.body, where=f"event {index}")
        except MarinError:
            self.skipped += 1
            return []
        if isinstance(body, types.TrackingLogged):
            return self._logged(index, event, body)
        if isinstance(body, types.ReplaySegment):  # it tells of who executed it again, and not of the run
            return list(self._replayed(event, body)) if mine else []
        intents = (
            self._of_experiment(RecordedEvent(index, event, milliseconds(event.time)), body, mine)
            if _run_in(body) == ""
            else self._of_run(index, event, kind, body, mine)
        )
        intents = [as_others_word(intent) for intent in intents]
        self.logged.watch(intents)  # of these alone: what was logged belongs to who logs
        return intents

    def shelves(self, run: str) -> Iterator[Shelve]:
        """What MLflow shows as artifacts of a run, its steps and its models."""
        projected = self.runs[run]
        known, at = projected.fold, projected.at
        states = ordered(known.states)
        mounts = {state.step: bytes_of(state.output) for state in states if state.output is not None}
        if known.completed is not None:
            mounts |= {name: bytes_of(output) for name, output in known.completed.body.outputs.items()}
        for state in states:
            own = {"output": bytes_of(state.output)} if state.output is not None else {}
            curve = ("loss.png",) if state.step == "train" and projected.losses else ()
            yield Shelve(projected.id(state.step), run, at, own, (*curve, RECORD))
        for saved in projected.checkpoints:
            yield Shelve(f"m-{self.ids.checkpoint(run, saved)}", run, at, {"": saved.artifact})
        for export in projected.exports:
            yield Shelve(f"m-{self.ids.model(export)}", run, at, {"": bytes_of(export.output)})
        pages = pages_of(
            losses=bool(projected.losses),
            steps=bool(projected.fold.states),
            replayed=bool(projected.fold.verdicts()),
            collected=known.started is not None and bool(collections_of(known.started.body.recipe)),
            sampled=projected.sampled,
        )
        yield Shelve(projected.id(), run, at, mounts, pages)

    def _logged(self, index: int, event: Event, body: types.TrackingLogged) -> list[Intent]:
        """What a user logged by plain MLflow; an edit of a ledger's run is told on that run."""
        intents = self.logged.apply(index, event, milliseconds(event.time), body)
        if intents is None:
            self.skipped += 1
        return intents or []

    def _of_experiment(self, recorded: RecordedEvent, body: types.Body, mine: bool) -> list[Intent]:
        match body:
            case ExperimentRegistered():
                return list(self._experiments.registered(recorded, body))
            case ExperimentReported():
                return list(self._experiments.reported(recorded, body, claimed=not mine or self._own is None))
        return []

    def _of_run(self, index: int, event: Event, kind: Kind, body: types.Body, mine: bool) -> list[Intent]:
        run = _run_in(body)
        if not (kind.verdict or kind.beside is not None or kind.numbers is not None or stands_in_stream(event, run)):
            self.skipped += 1
            return []
        begins = isinstance(body, types.RunStarted | GraphStarted)
        if run not in self.runs:
            if not begins:
                self.skipped += 1
                return []
            self.runs[run] = ProjectedRun(self.ids, JudgedFold(run), self._experiment_of(body), index, len(self.runs))
        elif begins:
            body = types.Body()  # it has begun already; the event is only one more
        projected, body = self.runs[run], by_address(body)
        step = "train" if isinstance(body, types.TrainStarted) else getattr(body, "step", "")
        recorded = RecordedEvent(index, event, milliseconds(event.time), projected.fold.states.get(step))
        intents = list(self._taken_in(recorded, projected, kind, body, mine))
        projected.at = index
        intents += self._equals(projected)
        self.touched.add(run)
        return intents

    def _taken_in(
        self, recorded: RecordedEvent, projected: ProjectedRun, kind: Kind, body: types.Body, mine: bool
    ) -> Iterator[Intent]:
        """The fold first, then what changed by it."""
        if isinstance(body, types.StepCached):
            yield from self._cached(recorded, projected, body)
        elif isinstance(body, types.ReplayCompleted):
            counts = mine and self._own is not None and of_this_log(body.log_checkpoint, self._own)
            if counts and of_the_log(body.verdicts, body.log_checkpoint):
                projected.fold.judge(Fact(recorded.index, recorded.event.time, body, recorded.event.actor), counts=True)
                yield from verdicts.replayed(recorded, projected, body)
                yield self._note(projected)
                yield from self._verified_models.after(projected)
        elif isinstance(body, types.RunLabelled):
            if recorded.event.stream == label_stream(projected.name):
                yield from lifecycle.labelled(recorded, projected, body)
                yield self._note(projected)
        elif kind.numbers is not None:
            if recorded.event.stream == evaluation_stream(
                projected.name
            ):  # no part of the execution, so not of its fold
                yield from training.measured(recorded, projected, body)
        else:
            if isinstance(body, types.TrainWithdrawn):
                yield from projected.withdraw(body.step)
            projected.fold.apply(recorded.index, recorded.event, body)
            yield from self._changed(recorded, projected, body)
            yield from self._followed(projected, body)

    def _replayed(self, event: Event, body: types.ReplaySegment) -> Iterator[Intent]:
        projected = self.runs.get(body.run)
        if projected is None or self._own is None or event.stream != replay_stream(body.run):
            return
        replays = self._replays.setdefault(body.run, verdicts.Replays())
        replays.held(body.segment)
        yield from replays.told(projected.id())

    def _followed(self, projected: ProjectedRun, body: types.Body) -> Iterator[Intent]:
        """How far those who execute segments again are behind."""
        if self._own is None or not isinstance(body, types.TrainSegment | types.TrainWithdrawn):
            return
        replays = self._replays.setdefault(projected.name, verdicts.Replays())
        if isinstance(body, types.TrainSegment):
            replays.recorded(body)
        else:
            replays.withdrawn(body.step)
        yield from replays.told(projected.id())

    def _equals(self, projected: ProjectedRun) -> Iterator[Intent]:
        for other, word in self._twins.after(projected):
            yield Tags(other.id(), {"marin.verified": word})
            yield self._note(other, word)

    def _note(self, projected: ProjectedRun, word: str = "") -> Intent:
        started = projected.fold.started
        assert started is not None, "a run is projected from its beginning on"
        word = word or projected.verified
        return Tags(
            projected.id(),
            {"mlflow.note.content": self._experiments.note(projected.experiment, started.body, word, projected.about)},
        )

    def _changed(self, recorded: RecordedEvent, projected: ProjectedRun, body: types.Body) -> Iterator[Intent]:
        if isinstance(body, types.StepCompleted):
            self._results[recorded.index] = projected.name, projected.fold.steps[body.step]
        if isinstance(body, types.RunStarted):
            swept = self._swept.get(body.recipe_digest, ())
            yield from lifecycle.run_started(recorded, projected, body, self._experiments, swept)
        elif isinstance(body, GraphStarted):
            yield from lifecycle.graph_started(recorded, projected, body, self._experiments)
            yield from self._sweep(recorded, body)
        elif type(body) in CHANGES:
            yield from CHANGES[type(body)](recorded, projected, body)

    def _sweep(self, recorded: RecordedEvent, body: GraphStarted) -> Iterator[Intent]:
        """The runs of a sweep are called by what sets them apart, those too that were there before it."""
        recipes, keys = words_in(body, RECIPES), words_in(body, VARIED)
        if not recipes:
            return
        self._swept |= dict.fromkeys(recipes, keys)
        for projected in self.runs.values():
            started = projected.fold.started
            if started is not None and started.body.recipe_digest in recipes:
                name = run_name(started.body, keys, self._experiments.cited(started.body))
                yield Tags(projected.id(), {"mlflow.runName": name})
        experiment = self._experiments.named("", body.name)
        yield from self._experiments.opened(experiment, recorded.time)
        yield from self._experiments.varied(experiment, keys)

    def _cached(self, recorded: RecordedEvent, projected: ProjectedRun, body: types.StepCached) -> Iterator[Intent]:
        if recorded.before is not None and recorded.before.state == "completed":
            projected.fold.apply(recorded.index, recorded.event, None)
            return
        name, made = self._results.get(body.completed_at, ("", None))
        source = self.runs.get(name)
        source = None if source is projected else source
        if made is not None and (source is None or made.step != body.step):
            made = None
        result = reused_result(Fact(recorded.index, recorded.event.time, body), made)
        projected.fold.take_over(
            recorded.index, recorded.event, result, source.fold.recorded if source is not None else None
        )
        yield from steps.cached(recorded, projected, body, source)

    def _experiment_of(self, body: types.Body) -> str:
        if isinstance(body, types.RunStarted):
            return self._experiments.named(body.experiment, body.pipeline)
        if not isinstance(body, GraphStarted):
            return ""
        return self._experiments.named("", body.name) if body.file else lifecycle.COMMANDS


def as_others_word(intent: Intent) -> Intent:
    """What a run's recipe and its measurements are called is the word of its recorder: such a name is marked where it
    could be taken for one of the ledger's own."""
    if isinstance(intent, Points | PointsGone):
        return intent if (key := marked(intent.key)) == intent.key else replace(intent, key=key)
    if isinstance(intent, Params) and any(marked(name) != name for name in intent.values):
        return replace(intent, values={marked(name): value for name, value in intent.values.items()})
    return intent


def _run_in(body: types.Body) -> str:
    """The run that a body speaks of, or the graph; "" where it speaks of neither."""
    return str(getattr(body, "run", getattr(body, "graph", "")))
