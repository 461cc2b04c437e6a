"""Steps: each is a nested run of MLflow, with its metrics and its data sets. The fold has taken in the event already.

A step's tags are few; its inputs, identity, code and program are in the ``record.json`` of its run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from marin.history.projection.text import flatten, key_of, milliseconds, single_key, single_keys
from marin.history.run import was_interrupted
from marin.plugins.mlflow.folding import training
from marin.plugins.mlflow.folding.intents import DataUsed, Intent, OpenRun, Params, Points, Status, Tags
from marin.plugins.mlflow.folding.projected import ProjectedRun, RecordedEvent
from marin.process.text import short
from marin.record import events

DATASETS = ("corpus", "tokens")
"""Steps whose outputs MLflow shows as data sets."""
OF_THE_MODEL = ("train", "evaluate")
"""Steps whose metrics say something of the model after so many train steps; those of the others stand at step 0."""


def started(recorded: RecordedEvent, projected: ProjectedRun, body: events.StepStarted) -> Iterator[Intent]:
    """An attempt begins; whatever was before, run and step are running."""
    yield from _open(recorded, projected, body.step)
    run = projected.id(body.step)
    if recorded.before is None:
        yield Params(run, flatten(body.config))
    yield Tags(run, {"marin.attempt": str(body.attempt), "marin.state": "running"})
    yield Status(run, "RUNNING", None)
    if projected.fold.completed is None:
        yield Status(projected.id(), "RUNNING", None)


def completed(recorded: RecordedEvent, projected: ProjectedRun, body: events.StepCompleted) -> Iterator[Intent]:
    """The step has its output."""
    yield from _open(recorded, projected, body.step)
    run = projected.id(body.step)
    yield Tags(run, {"marin.state": "completed", "marin.output": short(body.output.digest)})
    yield from projected.settle(body.step)
    yield from projected.tell(Points(run, "seconds", recorded.time, [(0, body.seconds)]), body.step, again=True)
    metrics = projected.fold.steps[body.step].metrics
    yield from _metrics(recorded, projected, body.step, metrics)
    if body.step == "evaluate":  # whatever another attempt told before, this is what it measured
        projected.evaluation = dict(metrics)
    if body.step == "export":
        yield from training.exported_by_step(recorded, projected, body)
    yield from _data(projected, body.step, body.inputs, body.output)
    yield Status(run, "FINISHED", recorded.time)


def cached(
    recorded: RecordedEvent, projected: ProjectedRun, body: events.StepCached, source: ProjectedRun | None
) -> Iterator[Intent]:
    """A result is taken over. From the run that made it (``source``) it brings curve, measurements and model along."""
    yield from _open(recorded, projected, body.step)
    run = projected.id(body.step)
    yield Tags(run, {"marin.state": "cached", "marin.output": short(body.output.digest)})
    yield from projected.settle(body.step)
    if source is not None:
        yield from training.taken_over(recorded, projected, body.step, source)
        yield from _metrics(recorded, projected, body.step, projected.fold.steps[body.step].metrics)
    yield from _data(projected, body.step, body.inputs, body.output)
    yield Status(run, "FINISHED", recorded.time)


def failed(recorded: RecordedEvent, projected: ProjectedRun, body: events.StepFailed) -> Iterator[Intent]:
    """The step stopped, and with it the run: by itself, or by somebody."""
    yield from _open(recorded, projected, body.step)
    run, stopped = projected.id(body.step), was_interrupted(body)
    ended = "KILLED" if stopped else "FAILED"
    yield Tags(run, {"marin.state": "interrupted" if stopped else "failed", "marin.error": body.error[:4000]})
    yield Status(run, ended, recorded.time)
    yield Tags(projected.id(), {"marin.error": f"{body.step}: {body.error}"[:4000]})
    yield Status(projected.id(), ended, recorded.time)


def train_started(recorded: RecordedEvent, projected: ProjectedRun, body: events.TrainStarted) -> Iterator[Intent]:
    """An attempt at training."""
    yield from _open(recorded, projected, "train")
    yield Tags(projected.id("train"), {"marin.devices": str(body.devices)})


def measured(recorded: RecordedEvent, projected: ProjectedRun, body: events.MetricsRecorded) -> Iterator[Intent]:
    """Measurements stand on the run, so that they can be laid over its loss; a segment told again adds nothing."""
    for series in body.series:
        values = map(float.fromhex, series.values)
        points = Points(
            projected.id(), key_of(series.key), recorded.time, list(zip(series.steps, values, strict=False))
        )
        yield from projected.tell(points, body.step)


def _open(recorded: RecordedEvent, projected: ProjectedRun, step: str) -> Iterator[Intent]:
    """The nested run of a step; a step may be first heard of by any of its events."""
    run = projected.id(step)
    began = milliseconds(projected.fold.states[step].started)
    yield OpenRun(run, projected.experiment, step, began, recorded.event.actor, parent=projected.id())
    yield Tags(run, {"marin.run": projected.name, "marin.step": step})


def _metrics(
    recorded: RecordedEvent, projected: ProjectedRun, step: str, metrics: Mapping[str, float]
) -> Iterator[Intent]:
    at = projected.trained if step in OF_THE_MODEL else 0
    keys = single_keys(metrics)
    for name, value in metrics.items():
        points = [(at, value)]
        yield from projected.tell(Points(projected.id(step), keys[name], recorded.time, points), step, again=True)
        if not (step == "evaluate" and projected.evaluation.get(name) == value):
            told = Points(projected.id(), f"{single_key(step)}.{keys[name]}", recorded.time, points)
            yield from projected.tell(told, step, again=True)


def _data(projected: ProjectedRun, step: str, inputs: Mapping[str, str], output: events.Output) -> Iterator[Intent]:
    """Data sets: what a data step makes is shown on the run and on the step, what a step reads on the step."""
    if step in DATASETS:
        for run in (projected.id(), projected.id(step)):
            yield _data_set(run, projected, step, output, step)
    for source in inputs:
        state = projected.fold.states.get(source) if source in DATASETS else None
        if state is not None and state.output is not None:
            yield _data_set(projected.id(step), projected, source, state.output, "input")


def _data_set(run: str, projected: ProjectedRun, step: str, output: events.Output, context: str) -> DataUsed:
    name = projected.recipe("dataset").get("name")
    profile: dict[str, object] = {"kind": output.kind, "size": output.size}
    shown = f"{name}/{step}" if isinstance(name, str) else step
    return DataUsed(run, projected.experiment, shown, output.digest, output.artifact, context, profile)
