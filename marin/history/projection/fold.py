"""The fold: events of the ledger -> intended MLflow writes, and what is known of each run.

Pure: no clock, no random draw, no file, no MLflow. The same events give the same intents whether they arrive in one go
or one by one, which is what makes the projection rebuildable. The fold itself is never stored; a new process folds the
log again from its start and drops the intents that were applied before.

An event that is not of this product, or whose body does not fit its type, changes nothing: a projection has to survive
whatever is in the log. It is counted in ``skipped``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import structs

from ledger import Event
from marin.errors import MarinError
from marin.history.projection.aliases import VerifiedModels
from marin.history.projection.identity import mlflow_id
from marin.history.projection.intents import (
    DataUsed,
    ExperimentTags,
    Intent,
    ModelMade,
    ModelRegistered,
    OpenExperiment,
    OpenRun,
    Params,
    Points,
    Shelve,
    Status,
    Tags,
)
from marin.history.projection.logged import LoggedFold
from marin.history.projection.record import RunRecord, StepRecord, milliseconds
from marin.record import events as types
from marin.record.outputs import bytes_of
from marin.record.verdicts import Past, effective, of_this_log

LOSS = "train/loss"
TOKENS = "train/tokens"
EXPORTED = (
    "Models exported by runs. The alias `verified` points at the last model whose run was re-executed and gave the "
    "same bits."
)
DATASETS = ("corpus", "tokens")
"""Steps whose outputs MLflow shows as data sets."""
LONGEST_FACT = 100
OF_THE_MODEL = ("train", "evaluate")
"""Steps whose metrics say something of the model after so many train steps; those of the others stand at step 0."""

_HEX_FLOAT = re.compile(r"^-?0x[01]\.[0-9a-f]+p[+-]\d+$")
_NOT_IN_A_MODEL = re.compile(r"[/:.%\"']")
_NOT_IN_A_KEY = re.compile(r"[^\w\-./: ]", re.ASCII)


def text(value: object) -> str:
    """A value of an event body as people read it: hex floats as decimals, lists and mappings as JSON."""
    if isinstance(value, str):
        return repr(float.fromhex(value)) if _HEX_FLOAT.match(value) else value
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def flatten(value: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested mappings as one, keys joined by dots and freed of what MLflow does not take in a key."""
    flat: dict[str, str] = {}
    for key, item in value.items():
        name = f"{prefix}{_NOT_IN_A_KEY.sub('_', str(key))}"
        if isinstance(item, Mapping) and item:
            flat.update(flatten(item, f"{name}."))
        else:
            flat[name] = text(item)
    return flat


@dataclass(frozen=True)
class _Told:
    """One event as the handlers see it."""

    index: int
    event: Event
    time: int


class Fold:
    """Folds events in the order of the log. ``origin`` names the ledger: it is part of every MLflow id. ``own``: that
    log, where this user's key signs it, as the verdicts in it must be over it; None where it is somebody else's: the
    verdicts in it are his word, and not shown."""

    def __init__(self, origin: str, *, own: Past | None = None) -> None:
        self.origin, self._own = origin, own
        self.runs: dict[str, RunRecord] = {}
        self.skipped = 0
        self._experiments: set[str] = set()
        self._completed: dict[int, str] = {}
        self._hypotheses: dict[str, str] = {}
        self._registered: dict[str, str] = {}
        self._verified_models = VerifiedModels()
        self.logged = LoggedFold()
        self.touched: set[str] = set()
        self._handlers: dict[str, tuple[type[types.Body], Callable[..., Iterator[Intent]]]] = {
            types.RUN_STARTED: (types.RunStarted, self._run_started),
            types.RUN_COMPLETED: (types.RunCompleted, self._run_completed),
            types.STEP_STARTED: (types.StepStarted, self._step_started),
            types.STEP_COMPLETED: (types.StepCompleted, self._step_completed),
            types.STEP_CACHED: (types.StepCached, self._step_cached),
            types.STEP_FAILED: (types.StepFailed, self._step_failed),
            types.TRAIN_STARTED: (types.TrainStarted, self._train_started),
            types.TRAIN_SEGMENT: (types.TrainSegment, self._train_segment),
            types.CHECKPOINT_SAVED: (types.CheckpointSaved, self._checkpoint_saved),
            types.EVAL_COMPLETED: (types.EvalCompleted, self._eval_completed),
            types.MODEL_EXPORTED: (types.ModelExported, self._model_exported),
            types.REPLAY_COMPLETED: (types.ReplayCompleted, self._replay_completed),
            types.METRICS_RECORDED: (types.MetricsRecorded, self._metrics_recorded),
            types.GRAPH_STARTED: (types.GraphStarted, self._graph_started),
            types.GRAPH_COMPLETED: (types.GraphCompleted, self._graph_completed),
            types.EXPERIMENT_REGISTERED: (types.ExperimentRegistered, self._experiment_registered),
            types.EXPERIMENT_REPORTED: (types.ExperimentReported, self._experiment_reported),
        }

    def run_id(self, run: str, step: str = "") -> str:
        """The MLflow id of a run, or of a step of it."""
        return mlflow_id(self.origin, "run", run, step) if step else mlflow_id(self.origin, "run", run)

    def apply(self, index: int, event: Event) -> list[Intent]:
        """Take in one event; returns what MLflow should be told."""
        if event.type == types.TRACKING_LOGGED:
            return self._tracking_logged(index, event)
        kind, handler = self._handlers.get(event.type, (None, None))
        if kind is None or handler is None:
            return []
        try:
            body = types.read(kind, event.body, where=f"event {index}")
        except MarinError:
            self.skipped += 1
            return []
        run = _run_in(body)
        if run not in self.runs and run and not isinstance(body, types.RunStarted | types.GraphStarted):
            self.skipped += 1
            return []
        address = getattr(body, "address", "")
        if address and isinstance(event.body.get("step"), str):
            body = msgspec.structs.replace(body, step=address)  # in a graph many nodes may be executions of one step
        verified = self.runs[run].verified() if run in self.runs else ""
        intents = list(handler(_Told(index, event, milliseconds(event.time)), body))
        if run in self.runs:
            self.runs[run].last_index = index
            if event.type != types.REPLAY_COMPLETED:
                intents += self._went_on(self.runs[run], index, verified)
            self.touched.add(run)
        self.logged.watch(intents)
        return intents

    def _tracking_logged(self, index: int, event: Event) -> list[Intent]:
        """What a user logged by plain MLflow; an edit of a ledger's run is told on that run."""
        try:
            body = types.read(types.TrackingLogged, event.body, where=f"event {index}")
        except MarinError:
            self.skipped += 1
            return []
        intents = self.logged.apply(index, event, milliseconds(event.time), body)
        if intents is None:
            self.skipped += 1
            return []
        return intents

    def shelves(self, run: str) -> Iterator[Shelve]:
        """What MLflow shows as artifacts of a run, its steps and its models."""
        record = self.runs[run]
        mounts = {step.name: bytes_of(step.output) for step in record.ordered_steps() if step.output is not None}
        mounts |= {name: bytes_of(output) for name, output in record.outputs.items()}
        for step in record.ordered_steps():
            identity = self.run_id(run, step.name)
            own = {"output": bytes_of(step.output)} if step.output is not None else {}
            yield Shelve(
                identity, run, record.last_index, own, ("loss.png",) if step.name == "train" and record.losses else ()
            )
        for saved in record.checkpoints:
            yield Shelve(f"m-{self.checkpoint_id(run, saved)}", run, record.last_index, {"": saved.artifact})
        for export in record.exports:
            yield Shelve(f"m-{self.model_id(export)}", run, record.last_index, {"": bytes_of(export.output)})
        yield Shelve(self.run_id(run), run, record.last_index, mounts, pages_of(record))

    def apply_all(self, log: Iterable[tuple[int, Event]]) -> Iterator[Intent]:
        """The intents of many events."""
        for index, event in log:
            yield from self.apply(index, event)

    def _run_started(self, told: _Told, body: types.RunStarted) -> Iterator[Intent]:
        if body.run in self.runs:
            return
        experiment = self._registered.get(body.experiment, body.pipeline)
        self.runs[body.run] = RunRecord(
            run=body.run,
            pipeline=experiment,
            index=told.index,
            started=told.event.time,
            actor=told.event.actor,
            plan=body.plan,
            recipe_digest=body.recipe_digest,
            recipe=body.recipe,
            code=body.code,
            environment=body.environment,
        )
        yield from self._open_experiment(experiment, told.time)
        run = self.run_id(body.run)
        yield OpenRun(run, experiment, body.run, told.time, told.event.actor)
        yield Params(run, flatten(body.recipe))
        tags = {
            "marin.run": body.run,
            "marin.recipe": body.recipe_digest,
            "marin.plan": body.plan,
            "marin.code": text(body.code.get("digest", body.code.get("tree", body.code.get("commit", "")))),
            "marin.event": str(told.index),
            "marin.root": self.origin,
            "marin.verified": "never",
            "mlflow.source.name": "dvc.yaml" if body.pipeline == types.DEFAULT_PIPELINE else body.pipeline,
            "mlflow.source.type": "PROJECT",
            "mlflow.note.content": self._note(experiment, body.run),
        }
        if isinstance(commit := body.code.get("commit"), str) and commit:
            tags["mlflow.source.git.commit"] = commit
        tags |= _facts(body.code, "marin.code", without=("digest", "tree", "steps", "diff"))
        tags |= _facts(body.environment, "marin.environment")
        yield Tags(run, tags)

    def _open_experiment(self, name: str, time: int) -> Iterator[Intent]:
        if name in self._experiments:
            return
        self._experiments.add(name)
        yield OpenExperiment(
            name,
            time,
            {
                "mlflow.experimentKind": "custom_model_development",
                "marin.root": self.origin,
                "mlflow.note.content": self._about(name),
            },
        )

    def _about(self, name: str) -> str:
        """The note of an experiment: its hypothesis where one was registered, and where all this comes from."""
        source = f"Runs of **{_plain(name)}**, projected from the ledger `{_plain(self.origin)}`."
        hypothesis = self._hypotheses.get(name)
        return f"Hypothesis, registered before the runs: {_plain(hypothesis)}\n\n{source}" if hypothesis else source

    def _note(self, experiment: str, run: str) -> str:
        hypothesis = self._hypotheses.get(experiment)
        about = f"Hypothesis of the experiment: {_plain(hypothesis)}\n\n" if hypothesis else ""
        return (
            f"{about}Artifacts: `report.html` says what was run, with which result and which verdicts, `lineage.html` what "
            "it was made from, `data_order.html` in which order the data was seen. To replay it and compare every bit: "
            f"`marin verify {_plain(run)}`."
        )

    def _experiment_registered(self, told: _Told, body: types.ExperimentRegistered) -> Iterator[Intent]:
        name = body.experiment
        self._hypotheses[name], self._registered[body.registration] = body.hypothesis, name
        yield from self._open_experiment(name, told.time)
        yield ExperimentTags(
            name,
            {
                "mlflow.note.content": self._about(name),
                "marin.hypothesis": body.hypothesis[:5000],
                "marin.question": body.question[:5000],
                "marin.registration": body.registration,
                "marin.registered": str(told.index),
            },
        )

    def _experiment_reported(self, told: _Told, body: types.ExperimentReported) -> Iterator[Intent]:
        """The report of an experiment is a run of its own there, with the stored tables and plots as its artifacts."""
        run = mlflow_id(self.origin, "report", body.experiment)
        yield from self._open_experiment(body.experiment, told.time)
        yield OpenRun(run, body.experiment, "report", told.time, told.event.actor)
        yield Tags(
            run,
            {
                "marin.event": str(told.index),
                "marin.root": self.origin,
                "marin.conclusion": body.verdict,
                "mlflow.note.content": f"The report of {_plain(body.experiment)}: {_plain(body.verdict)}.",
            },
        )
        yield Status(run, "FINISHED", told.time)
        yield Shelve(run, "", told.index, {"report": body.artifact})
        yield ExperimentTags(body.experiment, {"marin.conclusion": body.verdict, "marin.reported": str(told.index)})

    def _graph_started(self, told: _Told, body: types.GraphStarted) -> Iterator[Intent]:
        """An execution of an experiment file: a run whose steps are nodes of its graph, by address."""
        if body.graph in self.runs:
            return
        self.runs[body.graph] = RunRecord(
            run=body.graph,
            pipeline=body.name,
            index=told.index,
            started=told.event.time,
            actor=told.event.actor,
            plan=body.declaration,
            recipe_digest=body.declaration,
            recipe={},
            code=body.code,
            environment=body.environment,
        )
        yield from self._open_experiment(body.name, told.time)
        run = self.run_id(body.graph)
        yield OpenRun(run, body.name, body.graph, told.time, told.event.actor)
        yield Params(run, flatten(body.options) | {"file": body.file, "steps": str(body.steps)})
        tags = {
            "marin.run": body.graph,
            "marin.plan": body.declaration,
            "marin.event": str(told.index),
            "marin.root": self.origin,
            "mlflow.source.name": body.file or body.name,
            "mlflow.source.type": "PROJECT",
            "mlflow.note.content": "An execution of the experiment's graph; its nodes are nested runs, pipeline steps are in "
            "the runs of their arms.",
        }
        yield Tags(
            run,
            tags
            | _facts(body.code, "marin.code", without=("digest", "tree", "steps", "diff"))
            | _facts(body.environment, "marin.environment"),
        )

    def _graph_completed(self, told: _Told, body: types.GraphCompleted) -> Iterator[Intent]:
        record = self.runs[body.graph]
        record.ended, record.outputs, record.outcome = told.event.time, body.outputs, body.outcome
        run = self.run_id(body.graph)
        yield Tags(
            run,
            {
                "marin.completed": str(told.index),
                "marin.outcome": body.outcome,
                "marin.results": body.results,
                **{f"marin.output.{name}": output.digest for name, output in body.outputs.items()},
                **{f"marin.steps.{name}": str(count) for name, count in body.counts.items()},
            },
        )
        ended = {"completed": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}.get(body.outcome, "FAILED")
        yield Status(run, ended, told.time)

    def _metrics_recorded(self, told: _Told, body: types.MetricsRecorded) -> Iterator[Intent]:
        """Measurements stand on the run, so that they can be laid over its loss; a segment told again adds nothing."""
        record = self.runs[body.run]
        for series in body.series:
            seen = record.measured.setdefault(series.key, set())
            points = [
                (step, _number(value))
                for step, value in zip(series.steps, series.values, strict=False)
                if step not in seen
            ]
            seen.update(step for step, _ in points)
            if points:
                yield Points(self.run_id(body.run), _NOT_IN_A_KEY.sub("_", series.key), told.time, points)

    def _step_started(self, told: _Told, body: types.StepStarted) -> Iterator[Intent]:
        record = self.runs[body.run]
        known = record.steps.get(body.step)
        first = told.event.time if known is None else known.started
        record.steps[body.step] = StepRecord(
            body.step,
            "running",
            first,
            attempt=body.attempt,
            identity=body.identity,
            inputs=body.inputs,
            index=told.index,
        )
        yield from self._open_step(told, record, body.step)
        run = self.run_id(body.run, body.step)
        if known is None:
            yield Params(run, flatten(body.config))
        yield Tags(
            run,
            {
                "marin.attempt": str(body.attempt),
                "marin.identity": body.identity,
                "marin.config": body.config_digest,
                "marin.code": body.code,
                "marin.state": "running",
                **{f"marin.input.{name}": digest for name, digest in body.inputs.items()},
            },
        )
        yield Status(run, "RUNNING", None)
        if record.ended is None:
            yield Status(self.run_id(body.run), "RUNNING", None)

    def _step_completed(self, told: _Told, body: types.StepCompleted) -> Iterator[Intent]:
        record = self.runs[body.run]
        yield from self._open_step(told, record, body.step)
        step = record.steps[body.step]
        step.state, step.ended, step.seconds, step.output = "completed", told.event.time, body.seconds, body.output
        step.inputs, step.identity, step.error, step.index = body.inputs, body.identity, "", told.index
        step.metrics = {name: _number(value) for name, value in body.metrics.items()}
        self._completed[told.index] = body.run
        run, parent = self.run_id(body.run, body.step), self.run_id(body.run)
        yield Tags(run, {"marin.state": "completed", **_output_tags(body.output)})
        yield Points(run, "seconds", told.time, [(0, body.seconds)])
        yield from self._step_metrics(told, record, step)
        if body.step == "evaluate" and not record.evaluation:
            record.evaluation = dict(step.metrics)
        if body.step == "export":
            # A log without model.exported still tells what the model is: the output of the step, made from that of
            # train.
            trained = body.inputs.get("train", body.output.digest)
            yield from self._export(
                told,
                record,
                types.ModelExported(run=body.run, format=body.output.kind, model=trained, output=body.output),
            )
        yield Tags(parent, {f"marin.output.{body.step}": body.output.digest})
        yield from self._data(record, body.step, body.inputs, body.output)
        yield Status(run, "FINISHED", told.time)

    def _step_cached(self, told: _Told, body: types.StepCached) -> Iterator[Intent]:
        record = self.runs[body.run]
        if body.step in record.steps and record.steps[body.step].state == "completed":
            return
        yield from self._open_step(told, record, body.step)
        step = record.steps[body.step]
        step.state, step.ended, step.output, step.completed_at = (
            "cached",
            told.event.time,
            body.output,
            body.completed_at,
        )
        step.inputs, step.identity, step.index = body.inputs, body.identity, told.index
        run = self.run_id(body.run, body.step)
        yield Tags(
            run,
            {
                "marin.state": "cached",
                "marin.identity": body.identity,
                "marin.completed_at": str(body.completed_at),
                **_output_tags(body.output),
                **{f"marin.input.{name}": digest for name, digest in body.inputs.items()},
            },
        )
        yield Tags(self.run_id(body.run), {f"marin.output.{body.step}": body.output.digest})
        yield from self._take_over(told, record, step)
        yield from self._data(record, body.step, body.inputs, body.output)
        yield Status(run, "FINISHED", told.time)

    def _step_failed(self, told: _Told, body: types.StepFailed) -> Iterator[Intent]:
        record = self.runs[body.run]
        yield from self._open_step(told, record, body.step)
        step = record.steps[body.step]
        step.state, step.ended, step.error, step.index = "failed", told.event.time, body.error, told.index
        run = self.run_id(body.run, body.step)
        yield Tags(run, {"marin.state": "failed", "marin.error": body.error[:4000]})
        yield Status(run, "FAILED", told.time)
        yield Tags(self.run_id(body.run), {"marin.error": f"{body.step}: {body.error}"[:4000]})
        yield Status(self.run_id(body.run), "FAILED", told.time)

    def _train_started(self, told: _Told, body: types.TrainStarted) -> Iterator[Intent]:
        record = self.runs[body.run]
        yield from self._open_step(told, record, "train")
        tags = _facts(body.program, "marin.program")
        tags |= {
            "marin.devices": str(body.devices),
            "marin.first_step": str(body.first_step),
            "marin.start_state": body.state,
        }
        yield Tags(self.run_id(body.run, "train"), tags)

    def _train_segment(self, told: _Told, body: types.TrainSegment) -> Iterator[Intent]:
        record = self.runs[body.run]
        losses = dict(zip(range(body.start, body.end), map(_number, body.losses), strict=False))
        again = [step for step in losses if step in record.losses]
        record.disagreements += [step for step in again if losses[step].hex() != record.losses[step].hex()]
        record.segments.append(body)
        yield from self._losses(
            told, record, {step: loss for step, loss in losses.items() if step not in record.losses}
        )
        if record.disagreements:
            told_twice = f"train step {record.disagreements[0]} was recorded twice with other losses"
            yield Tags(self.run_id(body.run), {"marin.disagreement": told_twice})

    def _checkpoint_saved(self, told: _Told, body: types.CheckpointSaved) -> Iterator[Intent]:
        record = self.runs[body.run]
        known = any(saved.state == body.state for saved in record.checkpoints)
        record.checkpoints.append(body)
        run = self.run_id(body.run)
        yield Tags(run, {"marin.checkpoint": body.state, "marin.checkpoint.step": str(body.step)})
        if not known:
            tags = {
                "marin.run": body.run,
                "marin.event": str(told.index),
                "marin.state": body.state,
                "marin.artifact": body.artifact,
                "marin.output.size": str(body.size),
            }
            yield ModelMade(
                self.checkpoint_id(body.run, body),
                run,
                record.pipeline,
                _model_name(f"{record.pipeline}-{body.run}-step-{body.step}"),
                "checkpoint",
                told.time,
                body.step,
                tags,
            )

    def _eval_completed(self, told: _Told, body: types.EvalCompleted) -> Iterator[Intent]:
        record = self.runs[body.run]
        record.evaluation = {name: _number(value) for name, value in body.metrics.items()}
        for name, value in record.evaluation.items():
            yield Points(self.run_id(body.run), _key("evaluate", name), told.time, [(record.trained, value)])

    def _model_exported(self, told: _Told, body: types.ModelExported) -> Iterator[Intent]:
        yield from self._export(told, self.runs[body.run], body)

    def _export(self, told: _Told, record: RunRecord, body: types.ModelExported) -> Iterator[Intent]:
        if any(known.output.digest == body.output.digest for known in record.exports):
            return
        record.exports.append(body)
        model, run = self.model_id(body), self.run_id(body.run)
        tags = {
            "marin.run": body.run,
            "marin.event": str(told.index),
            "marin.model": body.model,
            **_output_tags(body.output),
        }
        yield ModelMade(
            model,
            run,
            record.pipeline,
            _model_name(f"{record.pipeline}-{body.run}"),
            body.format,
            told.time,
            record.trained,
            tags,
        )
        name = _model_name(record.pipeline)
        yield ModelRegistered(name, model, run, told.time, body.output.artifact, tags, EXPORTED)

    def _run_completed(self, told: _Told, body: types.RunCompleted) -> Iterator[Intent]:
        record = self.runs[body.run]
        record.ended, record.outputs = told.event.time, body.outputs
        run = self.run_id(body.run)
        yield Tags(
            run,
            {
                "marin.completed": str(told.index),
                **{f"marin.output.{name}": output.digest for name, output in body.outputs.items()},
            },
        )
        yield Status(run, "FINISHED", told.time)

    def _replay_completed(self, told: _Told, body: types.ReplayCompleted) -> Iterator[Intent]:
        if self._own is None or not of_this_log(body.log_checkpoint, self._own):
            return  # somebody else's word, or a verdict on a run of another log
        body = structs.replace(body, verdicts=effective(body.verdicts, body.training))
        record = self.runs[body.run]
        record.replays.append((told.index, told.event.time, told.event.actor, body))
        tags = {
            "marin.verified": record.verified(),
            "marin.verified.event": str(told.index),
            "marin.verified.by": told.event.actor,
        }
        tags |= {f"marin.verdict.{name}": verdict for name, verdict in record.verdicts().items()}
        if body.first_divergence is not None:
            tags["marin.first_divergence"] = text(body.first_divergence)[:4000]
        yield Tags(self.run_id(body.run), tags)
        yield from self._aliased(record)

    def _went_on(self, record: RunRecord, index: int, verified: str) -> Iterator[Intent]:
        """What a verification said, where the run goes on after it."""
        record.last_told = index
        if verified and record.verified() != verified:
            words = {f"marin.verdict.{name}": verdict for name, verdict in record.verdicts().items()}
            yield Tags(self.run_id(record.run), {"marin.verified": record.verified(), **words})
            yield from self._aliased(record)

    def _aliased(self, record: RunRecord) -> Iterator[Intent]:
        model = self.model_id(record.exports[-1]) if record.exports else ""
        yield from self._verified_models.after(self.runs, record.run, _model_name(record.pipeline), model)

    def model_id(self, body: types.ModelExported) -> str:
        """The MLflow id (without its ``m-``) of a model that a run exported."""
        return mlflow_id(self.origin, "model", body.run, body.output.digest)

    def checkpoint_id(self, run: str, body: types.CheckpointSaved) -> str:
        """The MLflow id (without its ``m-``) of a training checkpoint of a run."""
        return mlflow_id(self.origin, "checkpoint", run, body.state)

    def _open_step(self, told: _Told, record: RunRecord, step: str) -> Iterator[Intent]:
        """The nested run of a step; a step may be first heard of by any of its events."""
        record.steps.setdefault(step, StepRecord(step, "running", told.event.time, index=told.index))
        run = self.run_id(record.run, step)
        started = milliseconds(record.steps[step].started)
        yield OpenRun(run, record.pipeline, step, started, told.event.actor, parent=self.run_id(record.run))
        yield Tags(
            run,
            {"marin.run": record.run, "marin.step": step, "marin.event": str(told.index), "marin.root": self.origin},
        )

    def _losses(self, told: _Told, record: RunRecord, new: Mapping[int, float]) -> Iterator[Intent]:
        if not new:
            return
        record.losses.update(new)
        run = self.run_id(record.run)
        yield Points(run, LOSS, told.time, list(new.items()))
        if (per_step := _tokens_per_step(record.recipe)) is not None:
            yield Points(run, TOKENS, told.time, [(step, float((step + 1) * per_step)) for step in new])

    def _step_metrics(self, told: _Told, record: RunRecord, step: StepRecord) -> Iterator[Intent]:
        at = record.trained if step.name in OF_THE_MODEL else 0
        for name, value in step.metrics.items():
            yield Points(self.run_id(record.run, step.name), _key(name), told.time, [(at, value)])
            if not (step.name == "evaluate" and record.evaluation.get(name) == value):
                yield Points(self.run_id(record.run), _key(step.name, name), told.time, [(at, value)])

    def _take_over(self, told: _Told, record: RunRecord, step: StepRecord) -> Iterator[Intent]:
        """A result that came from an earlier run brings that run's curve, measurements and model along."""
        source = self.runs.get(self._completed.get(step.completed_at if step.completed_at is not None else -1, ""))
        if source is None or source is record:
            return
        if step.name == "train":
            record.segments = list(source.segments)
            record.checkpoints = list(source.checkpoints)
            yield from self._losses(
                told, record, {at: loss for at, loss in source.losses.items() if at not in record.losses}
            )
        if step.name == "evaluate":
            record.evaluation = dict(source.evaluation)
            for name, value in record.evaluation.items():
                yield Points(self.run_id(record.run), _key("evaluate", name), told.time, [(record.trained, value)])
        if step.name == "export":
            record.exports = list(source.exports)
        step.metrics = dict(source.steps[step.name].metrics) if step.name in source.steps else {}
        yield from self._step_metrics(told, record, step)

    def _data(self, record: RunRecord, step: str, inputs: Mapping[str, str], output: types.Output) -> Iterator[Intent]:
        """Data sets: what a data step makes is shown on the run and on the step, what a step reads on the step."""
        if step in DATASETS:
            name = _data_name(record, step)
            profile: dict[str, object] = {"kind": output.kind, "size": output.size}
            for run in (self.run_id(record.run), self.run_id(record.run, step)):
                yield DataUsed(run, record.pipeline, name, output.digest, output.artifact, step, profile)
        for source in inputs:
            made = record.steps[source].output if source in DATASETS and source in record.steps else None
            if made is not None:
                yield DataUsed(
                    self.run_id(record.run, step),
                    record.pipeline,
                    _data_name(record, source),
                    made.digest,
                    made.artifact,
                    "input",
                    {"kind": made.kind, "size": made.size},
                )


def pages_of(record: RunRecord) -> tuple[str, ...]:
    """The pages that a run has by now."""
    found = ["report.html"]
    if record.losses:
        found += ["loss.png", "data_order.html"]
    if record.steps:
        found.append("lineage.html")
    if record.replays:
        found.append("verification.html")
    return tuple(found)


def _model_name(name: str) -> str:
    """A name that MLflow takes for a model."""
    return _NOT_IN_A_MODEL.sub("_", name)


def _run_in(body: types.Body) -> str:
    """The run that a body speaks of, or the graph; "" where it speaks of neither."""
    return str(getattr(body, "run", getattr(body, "graph", "")))


def _number(hex_float: str) -> float:
    return float.fromhex(hex_float)


def _key(*parts: str) -> str:
    """The name of a metric with one value. MLflow's run page makes a section of what stands before a slash, in front of
    all others; only the curves have one, so that they are what is seen first."""
    return _NOT_IN_A_KEY.sub("_", ".".join(parts)).replace("/", ".")


def _facts(value: Mapping[str, Any], prefix: str, *, without: tuple[str, ...] = ()) -> dict[str, str]:
    """A mapping as tags: short values only, because a page of tags has to be read by somebody."""
    return {
        f"{prefix}.{key}": item
        for key, item in flatten(value).items()
        if 0 < len(item) <= LONGEST_FACT and key.partition(".")[0] not in without
    }


def _plain(value: str) -> str:
    """A value inside Markdown, also of a code span: one line, with nothing left that closes the span, opens a tag or
    begins a heading, a list or a table of verdicts."""
    return re.sub(r"[`<>\[\]*]", "_", " ".join(value.split()))


def _output_tags(output: types.Output) -> dict[str, str]:
    return {
        "marin.output": output.digest,
        "marin.artifact": output.artifact,
        "marin.output.kind": output.kind,
        "marin.output.size": str(output.size),
    }


def _data_name(record: RunRecord, step: str) -> str:
    dataset = record.recipe.get("dataset")
    name = dataset.get("name") if isinstance(dataset, Mapping) else None
    return f"{name}/{step}" if isinstance(name, str) else step


def _tokens_per_step(recipe: Mapping[str, Any]) -> int | None:
    trainer, model = recipe.get("trainer"), recipe.get("model")
    if not isinstance(trainer, Mapping) or not isinstance(model, Mapping):
        return None
    batch, length = trainer.get("batch_size"), model.get("seq_len")
    return batch * length if isinstance(batch, int) and isinstance(length, int) else None
