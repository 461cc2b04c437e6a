"""Whether what a run's events say of one thing is the same everywhere it is said. Pure: events in, findings out.

An operator who holds the key can sign any event. Replay finds what is said of bits; what is said twice (a recipe and
its digest, an output and the input of the next step, a metric and its copy in the run's end) is compared here, and what
follows from other events (an identity, the first and the last loss) is derived again. What nothing here can derive (a
step that the installed pipeline does not have, a type of event that this version does not know) is named, and keeps a
verdict from passing.

Claims that nothing else depends on are not evidence and are not compared: :data:`CLAIMED` declares them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ledger import LedgerError, canonical_digest
from marin.execution.plan import Plan, identity_of, step_config
from marin.execution.step import StepDefinition
from marin.history.run import Indexed, Run, StepView
from marin.preregistration.arms import registers
from marin.process.text import clipped
from marin.recipe.schema import Recipe, digest, plain
from marin.recipe.seeds import seeds_of
from marin.record import events as kinds
from marin.record.events import DATA_STEPS, GRAD_NORM, Continues, Output
from marin.record.outputs import KINDS, by_content
from marin.record.schemas import MALFORMED
from marin.verify.derivation import loops
from marin.verify.derivation.fields import unknown_fields
from marin.verify.derivation.record import OF_STEP, Contradiction, RunRecord, Stretch, Unexplained, pinned_steps
from marin.verify.derivation.standing import beside, disagreements, superseded
from marin.verify.derivation.unlearning import fork_pairs

MEASURED = ("system/", "router/")
"""How the names of measurements begin that no verdict derives: of the machine, and of where a mixture's tokens went."""

CLAIMED: Mapping[str, tuple[str, ...]] = {
    kinds.RUN_STARTED: ("code", "environment"),
    kinds.STEP_STARTED: ("attempt", "address"),
    kinds.STEP_COMPLETED: ("seconds", "address"),
    kinds.STEP_CACHED: (),
    kinds.TRAIN_STARTED: ("program", "devices", "attempt", "processes", "device", "retention"),
    kinds.TRAIN_SEGMENT: (),
    kinds.CHECKPOINT_SAVED: (),
    kinds.UNLEARNING_FORKED: (),
    kinds.TRAIN_WITHDRAWN: (),
    kinds.EVAL_COMPLETED: (),
    kinds.MODEL_EXPORTED: (),
    kinds.RUN_COMPLETED: (),
    kinds.METRICS_RECORDED: ("series",),
    kinds.STEP_FAILED: ("identity", "error", "address", "lasting"),
    kinds.STEP_PAUSED: ("identity", "where"),
    kinds.STEP_PREEMPTED: ("attempt", "launch", "reason", "processes", "devices", "at", "again"),
    kinds.REPLAY_COMPLETED: ("verdicts", "training", "first_divergence", "log_checkpoint", "details", "environment"),
}
"""Types of events that a run's stream may hold, and those of their fields that are only claimed, wholly or in part. Every
other field is compared with something that was derived, hashed or executed."""


def contradictions(record: RunRecord, plan: Plan) -> list[Contradiction]:
    """All contradictions among the events of a run, in the order of the log, stretch by stretch."""
    if record.run.is_loop:
        return list(loops.contradictions(record))
    try:
        recipe = record.run.recipe
    except LedgerError as error:
        return [Contradiction(record.run.started.index, "recipe", "one that this version reads", str(error))]
    found = list(_beginnings(record))
    for stretch in record.stretches:
        looked = _Looked(record, stretch, recipe, plan)
        found += [item for event in stretch.events for item in looked.at(event)]
    return [*found, *disagreements(record)]


def unexplained(record: RunRecord, plan: Plan, *, until: Continues | None = None) -> list[Unexplained]:
    """What the run's events say and nothing here derives: unknown types, steps, fields and measurements, and reports of a
    step that has no end: nothing says what it was made of, so nothing is executed for it. ``until``: where a later phase
    went on from this run. Its train steps are executed up to there, ended or not; but then nothing is that rests on an end.
    """
    if record.run.is_loop:
        return [Unexplained(item[0], what) for item in record.own.events for what in _unknown(item, loops.CLAIMED)]
    known = {step.name for step in plan.steps}
    left = until is not None and "train" not in record.run.steps
    found = [
        Unexplained(item[0], what)
        for stretch in record.stretches
        for item in stretch.events
        for what in (*_unexplained(item, known), *_without_end(item, record.run, left=left))
    ]
    return [
        *found,
        *(
            Unexplained(index, f"an event of type {event.type} in the stream {event.stream}, in the name of this run")
            for index, event in record.outside
            if not beside(event)
        ),
    ]


def _beginnings(record: RunRecord) -> Iterator[Contradiction]:
    """A run begins once, before everything else; one that is a phase says what it continues; and it cites what was
    registered before it."""
    for place, (index, event) in enumerate(record.own.events):
        if (event.type == kinds.RUN_STARTED) != (place == 0):
            yield Contradiction(index, "type", "one beginning of a run, first in its stream", event.type)
    phase, link = record.run.recipe.phase, record.run.started.body.continues
    if (phase is None) != (link is None):
        what = "the run that it continues, for its recipe is a phase's" if phase is not None else "none: it is no phase"
        yield Contradiction(record.run.started.index, "continues", what, "none" if link is None else f"run {link.run}")
    cited, started = record.run.started.body.experiment, record.run.started
    if cited and not any(
        fact.body.registration == cited
        and fact.index < started.index
        and registers(fact.body, record.run.recipe, started.body.pipeline)
        for fact in record.registrations
    ):
        yield Contradiction(started.index, "experiment", "a registration before it that has its recipe and seed", cited)


def _unknown(item: Indexed, types: Collection[str]) -> Iterator[str]:
    """Types that say nothing of themselves here, and fields that their type does not have."""
    event = item[1]
    kind = kinds.BODIES.get(event.type)
    if event.type == MALFORMED:
        yield f"an event of type {event.body.get('type')} that does not fit it ({event.body.get('found')})"
        return
    if kind is None or event.type not in types:
        yield f"an event of type {event.type}"
        return
    for name in unknown_fields(kind, event.body):
        yield f"a field {name} in an event of type {event.type}"


def _unexplained(item: Indexed, known: set[str]) -> Iterator[str]:
    event = item[1]
    yield from _unknown(item, CLAIMED)
    if event.type not in CLAIMED:
        return
    step = event.body.get("step")
    if isinstance(step, str) and step and step not in known:
        yield f"a step {step} ({event.type}), which the installed pipeline does not have"
    if event.type == kinds.METRICS_RECORDED:
        body = kinds.read(kinds.MetricsRecorded, event.body, where=f"event {item[0]}")
        for series in body.series:
            if (series.key != GRAD_NORM or body.step != "train") and not series.key.startswith(MEASURED):
                yield f"a measurement {series.key}"


_REST_ON_TRAIN = (kinds.EVAL_COMPLETED, kinds.MODEL_EXPORTED, kinds.RUN_COMPLETED)
"""Reports that no end of the training was looked at for, beside those of steps that have it among their inputs."""


def _without_end(item: Indexed, run: Run, *, left: bool) -> Iterator[str]:
    """A report of a step without an end. ``left``: of a training that a later phase goes on with, what rests on its end."""
    kind, body = item[1].type, item[1].body
    step = OF_STEP.get(kind)
    if step is not None and step not in run.steps and not (left and step == "train"):
        yield f"an event of type {kind} of step {step}, which has no end"
    elif left and (kind in _REST_ON_TRAIN or "train" in (body.get("inputs") or ())):
        yield f"an event of type {kind}, which rests on the end of step train, which has none"


class _Looked:
    """One pass over the events of one stretch, remembering what steps began with."""

    def __init__(self, record: RunRecord, stretch: Stretch, recipe: Recipe, plan: Plan) -> None:
        self.forks, self.requests, run = record.forks, record.requests, record.run
        self.run, self.stretch, self.recipe, self.plan = run, stretch, recipe, plan
        self._begun: dict[str, kinds.StepStarted] = {}
        self._gone = superseded(run, stretch)
        self._pinned = pinned_steps(run) & set(DATA_STEPS)

    def at(self, item: Indexed) -> Iterator[Contradiction]:
        index, event = item
        kind = kinds.BODIES.get(event.type)
        if kind is None:
            return
        body = kinds.read(kind, event.body, where=f"event {index}")
        if index in self._gone and not isinstance(body, kinds.StepStarted | kinds.StepCompleted | kinds.StepCached):
            return  # it can agree with nothing that stands: told as judged by nobody
        step, pairs = self._pairs(index, body)
        if "run" in event.body and event.type != kinds.REPLAY_COMPLETED:
            pairs.insert(0, ("run", self.stretch.run, event.body["run"]))
        for name, expected, found in pairs:
            if expected is not None and expected != found:
                yield Contradiction(index, name, *_texts(expected, found), step)

    def _pairs(self, index: int, body: kinds.Body) -> tuple[str, list[tuple[str, Any, Any]]]:
        match body:
            case kinds.RunStarted():
                return "", self._started(body)
            case kinds.StepStarted():
                return body.step, self._step_started(body)
            case kinds.StepCompleted():
                return body.step, self._completed_step(body)
            case kinds.StepCached():
                return body.step, self._cached(index, body)
            case kinds.TrainStarted():
                return "train", self._train_started(body)
            case kinds.CheckpointSaved():
                return "train", self._checkpoint(body)
            case kinds.MetricsRecorded():
                return body.step, self._measured(body)
            case kinds.UnlearningForked():
                return "train", list(fork_pairs(self.run, self.recipe, index, self.forks.get(index)))
            case kinds.TrainWithdrawn():
                return "train", self._withdrawn(index, body)
            case kinds.EvalCompleted():
                return "evaluate", self._evaluated(body)
            case kinds.ModelExported():
                return "export", [
                    ("model", self._digest("train"), body.model),
                    ("output", self._whole("export"), body.output),
                    ("format", self.recipe.export.format, body.format),
                ]
            case kinds.RunCompleted():
                return "", [
                    ("outputs", sorted(self.run.planned | set(body.outputs)), sorted(body.outputs)),
                    ("outputs", {name: view.output for name, view in self.run.steps.items()}, body.outputs),
                    ("metrics", self.run.metrics, {k: float.fromhex(v) for k, v in body.metrics.items()}),
                ]
        return "", []

    def _digest(self, step: str) -> str | None:
        view = self.run.steps.get(step)
        return view.output.digest if view is not None else None

    def _whole(self, step: str) -> Output | None:
        view = self.run.steps.get(step)
        return view.output if view is not None else None

    # -- the run and its steps

    def _started(self, body: kinds.RunStarted) -> list[tuple[str, Any, Any]]:
        written = {name: value for name, value in body.recipe.items() if name != "recipe_version"}
        pairs: list[tuple[str, Any, Any]] = [
            ("recipe_digest", digest(self.recipe), body.recipe_digest),
            ("recipe", plain(self.recipe), written),  # in the one form that a recipe has
        ]
        if not isinstance(steps := body.code.get("steps"), dict):
            return [*pairs, ("code.steps", "the code of each step of the plan", "none")]
        decided = {"code": steps, "lock": body.environment.get("lock"), "plan": body.pipeline}
        pinned = {"pinned": body.pinned} if body.pinned else {}
        expected = canonical_digest({**decided, "recipe": digest(self.recipe), **pinned})
        return [*pairs, ("plan", expected, body.plan)]

    def _step_started(self, body: kinds.StepStarted) -> list[tuple[str, Any, Any]]:
        self._begun[body.identity] = body
        started = self.stretch.started.body
        codes = started.code.get("steps")
        pairs: list[tuple[str, Any, Any]] = [
            ("config_digest", canonical_digest(body.config), body.config_digest),
            ("identity", self._identity(body), body.identity),
            ("lock", started.environment.get("lock") if body.lock else None, body.lock),
            ("code", codes.get(body.step) if isinstance(codes, dict) else None, body.code),
            ("inputs", self._inputs(body), body.inputs),
        ]
        definition = self._definition(body.step)
        if definition is not None and self._stands(body.step, body.identity) and body.step not in self._pinned:
            pairs.append(("inputs", sorted(definition.inputs), sorted(body.inputs)))
            pairs += self._config(definition, body.config)
        return pairs

    def _identity(self, body: kinds.StepStarted) -> str:
        lock = body.lock or self.stretch.started.body.environment.get("lock", "")
        return identity_of(body.step, body.config, body.inputs, body.code, lock)

    def _config(self, definition: StepDefinition, config: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
        """The configuration that the recipe gives the step. What local files hold is part of the corpus' and not in the
        recipe: the data that is executed here has to lead to the same sources."""
        if definition.name == "corpus":
            expected = {"dataset": plain(self.recipe.dataset), "sources": config.get("sources")}
            return [("config", expected, dict(config))]
        return [("config", step_config(definition, self.recipe), dict(config))]

    def _completed_step(self, body: kinds.StepCompleted) -> list[tuple[str, Any, Any]]:
        pairs: list[tuple[str, Any, Any]] = [("inputs", self._inputs(body), body.inputs)]
        begun = self._begun.get(body.identity)
        if begun is None:
            return [*pairs, ("identity", "that of a step that began", body.identity)]
        pairs += [("step", begun.step, body.step), ("inputs", begun.inputs, body.inputs)]
        if body.step in KINDS:
            pairs.append(("output.kind", KINDS[body.step], body.output.kind))
        if not by_content(body.output):
            pairs.append(("output.artifact", body.output.digest, body.output.artifact))  # a tree is its own digest
        if body.step == "train" and self._stands("train", body.identity):
            pairs.append(("metrics", self._train_metrics(), {k: float.fromhex(v) for k, v in body.metrics.items()}))
        return pairs

    def _cached(self, index: int, body: kinds.StepCached) -> list[tuple[str, Any, Any]]:
        view = self.run.steps.get(body.step)
        pairs: list[tuple[str, Any, Any]] = [("inputs", self._inputs(body), body.inputs)]
        if body.completed_at >= index:
            pairs.append(("completed_at", f"an event before {index}", body.completed_at))
        if view is not None and view.index == index:
            pairs += [("identity", view.identity, body.identity), ("inputs", dict(view.inputs), body.inputs)]
        return pairs

    def _inputs(self, body: kinds.StepStarted | kinds.StepCompleted | kinds.StepCached) -> dict[str, str] | None:
        """What the event has as inputs, with the digests that the steps named there have as outputs, as far as they are
        steps; None for a result that another one of this run took the place of, when its inputs had changed."""
        if not self._stands(body.step, body.identity):
            return None
        return {
            name: self.run.steps[name].output.digest if name in self.run.steps else found
            for name, found in body.inputs.items()
        }

    def _stands(self, step: str, identity: str) -> bool:
        """Whether the run's output of ``step`` is of this identity, or there is none yet."""
        view: StepView | None = self.run.steps.get(step)
        return view is None or view.identity == identity

    def _definition(self, step: str) -> StepDefinition | None:
        return next((known for known in self.plan.steps if known.name == step), None)

    # -- what steps record

    def _train_metrics(self) -> dict[str, float] | None:
        losses = [float.fromhex(loss) for fact in self.run.segments for loss in fact.body.losses]
        trainer = self.recipe.trainer
        if len(losses) != trainer.num_steps:
            return None  # a gap, or more than this run's own steps: the chain of segments says so
        return {
            "loss_first": losses[0],
            "loss_last": losses[-1],
            "tokens": float(trainer.num_steps * trainer.batch_size * self.recipe.model.seq_len),
        }

    def _train_started(self, body: kinds.TrainStarted) -> list[tuple[str, Any, Any]]:
        arithmetic = self.recipe.arithmetic
        states = self._states()
        return [
            ("num_steps", self.recipe.last_step, body.num_steps),
            *self._among("first_step", body.first_step),
            ("state", states.get(body.first_step), body.state),
            ("program.xla_flags", list(arithmetic.xla_flags), body.program.get("xla_flags")),
            ("program.threads", arithmetic.threads, body.program.get("threads")),
            ("program.profile", arithmetic.profile, body.program.get("profile")),
            ("seeds", seeds_of(self.recipe), body.seeds),
        ]

    def _checkpoint(self, body: kinds.CheckpointSaved) -> list[tuple[str, Any, Any]]:
        states = self._states()  # none yet: the writer stopped between the two events
        return [*self._among("step", body.step), ("state", states.get(body.step), body.state)]

    def _withdrawn(self, index: int, body: kinds.TrainWithdrawn) -> list[tuple[str, Any, Any]]:
        """A training withdraws what a follower had refuted before, from the state on that was named."""
        asked = self.requests.get(body.request)
        if asked is None or asked.index >= index or asked.body.run != self.stretch.run:
            wanted = f"a {kinds.STOP_REQUESTED} of run {self.stretch.run} before it"
            return [("request", wanted, f"event {body.request}")]
        if not any(
            place < asked.index
            and event.body["start"] >= body.step
            and canonical_digest(event.body) == asked.body.segment
            for place, event in self.stretch.events
            if event.type == kinds.TRAIN_SEGMENT
        ):
            wanted = f"one about a segment from train step {body.step} on, recorded before it"
            return [("request", wanted, f"event {body.request}, about {asked.body.segment or 'no segment'}")]
        return [*self._among("step", body.step), ("step", asked.body.step, body.step)]

    def _states(self) -> dict[int, str]:
        """Train step -> the state before it, as the segments have it."""
        ends = {fact.body.end: fact.body.end_state for fact in self.run.segments}
        return ends | {fact.body.start: fact.body.start_state for fact in self.run.segments}

    def _among(self, field: str, step: int) -> list[tuple[str, Any, Any]]:
        """Whether the run has a state before this train step."""
        first, last = self.recipe.first_step, self.recipe.last_step
        return [] if first <= step <= last else [(field, f"a train step from {first} to {last}", f"train step {step}")]

    def _measured(self, body: kinds.MetricsRecorded) -> list[tuple[str, Any, Any]]:
        """A series has one value for each train step, and every step is one of the run's."""
        first, last = self.recipe.first_step, self.recipe.last_step
        return [
            (f"series {series.key}", "a value for each of the run's train steps that it names", "another number")
            for series in body.series
            if len(series.steps) != len(series.values) or not all(first <= step < last for step in series.steps)
        ]

    def _evaluated(self, body: kinds.EvalCompleted) -> list[tuple[str, Any, Any]]:
        pairs: list[tuple[str, Any, Any]] = [("model", self._digest("train"), body.model)]
        if (view := self.run.steps.get("evaluate")) is not None:
            pairs.append(("metrics", dict(view.metrics), {k: float.fromhex(v) for k, v in body.metrics.items()}))
        return pairs


def _texts(expected: Any, found: Any) -> tuple[str, str]:
    """The first place in which two values differ, short."""
    if isinstance(expected, dict) and isinstance(found, dict):
        key = next((k for k in sorted(expected.keys() | found.keys()) if expected.get(k) != found.get(k)), None)
        if key is not None:
            return tuple(f"{key}={_found_in_words(side.get(key))}" for side in (expected, found))  # type: ignore[return-value]
    return _found_in_words(expected), _found_in_words(found)


def _found_in_words(value: Any) -> str:
    return clipped(str(value), 120)
