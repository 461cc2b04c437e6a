"""What training gives: the loss curve, training checkpoints, the evaluation, and models for the registry."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from marin.history.projection.pages import SAMPLES
from marin.history.projection.text import LOSS, TOKENS, curve_key, model_name, output_tags, single_key, tokens_of_step
from marin.kinds.families.measured import EvaluationRecorded
from marin.kinds.known import numbers_of
from marin.plugins.mlflow.folding.curves import OF_STATE
from marin.plugins.mlflow.folding.intents import Intent, ModelLogged, ModelRegistered, Points, Tags
from marin.plugins.mlflow.folding.projected import ProjectedRun, RecordedEvent
from marin.record import events
from marin.record.verdicts import EVALUATION

EXPORTED = (
    "Models exported by runs. The alias `verified` points at the last model whose run was re-executed and gave the "
    "same bits."
)


def segment(
    recorded: RecordedEvent, projected: ProjectedRun, body: events.TrainSegment | events.LoopSegment
) -> Iterator[Intent]:
    """The losses of train steps that have none yet; a loss that differs from the one that the same execution told is told
    of."""
    losses = dict(zip(range(body.start, body.end), map(float.fromhex, body.losses), strict=False))
    if projected.disagreement is None:
        known = projected.losses
        differing = (step for step, loss in losses.items() if step in known and known[step].hex() != loss.hex())
        projected.disagreement = next((step for step in differing if projected.was_told("train", LOSS, step)), None)
    yield from _losses(recorded, projected, losses)
    if projected.disagreement is not None:
        twice = f"train step {projected.disagreement} was recorded twice with other losses"
        yield Tags(projected.id(), {"marin.disagreement": twice})


def checkpoint(recorded: RecordedEvent, projected: ProjectedRun, body: events.CheckpointSaved) -> Iterator[Intent]:
    """A training checkpoint is a model of its own, each state once."""
    known = any(saved.state == body.state for saved in projected.checkpoints)
    projected.checkpoints.append(body)
    yield from projected.curves.stands((OF_STATE, body.state))
    run = projected.id()
    if not known:
        tags = {
            "marin.run": body.run,
            "marin.event": str(recorded.index),
            "marin.state": body.state,
            "marin.artifact": body.artifact,
            "marin.output.size": str(body.size),
        }
        yield ModelLogged(
            projected.ids.checkpoint(body.run, body),
            run,
            projected.experiment,
            model_name(f"{projected.experiment}-{body.run}-step-{body.step}"),
            "checkpoint",
            recorded.time,
            body.step,
            tags,
        )


def evaluated(recorded: RecordedEvent, projected: ProjectedRun, body: events.EvalCompleted) -> Iterator[Intent]:
    """What the evaluation measured stands on the run. What is told of it after its step had its result belongs to some
    later doing, and changes no number of that result: a list says the same."""
    known = projected.fold.states.get("evaluate")
    if known is not None and known.result is not None:
        return
    projected.evaluation = {name: float.fromhex(value) for name, value in body.metrics.items()}
    yield from _evaluation(recorded, projected)


def measured(recorded: RecordedEvent, projected: ProjectedRun, body: Any) -> Iterator[Intent]:
    """A point of each curve that was measured of a recorded state, at the number of the train step after it; none of a state
    that was withdrawn, on which no verdict is."""
    if not projected.stands(body.state):
        return
    if isinstance(body, EvaluationRecorded) and body.harness == events.TEXT_SAMPLES and not projected.sampled:
        projected.sampled = True
        yield Tags(projected.id(), {"mlflow.loggedArtifacts": json.dumps([{"path": SAMPLES, "type": "table"}])})
    for name, numbers in numbers_of(body).items():
        for key, value in numbers.items():
            points = [(body.step, float.fromhex(value))]
            told = Points(projected.id(), curve_key(EVALUATION, name, key), recorded.time, points)
            yield from projected.curves.measured(told, body.state)


def exported(recorded: RecordedEvent, projected: ProjectedRun, body: events.ModelExported) -> Iterator[Intent]:
    """A model that left in a public format: a version of the experiment's registered model, each content once."""
    if any(known.output.digest == body.output.digest for known in projected.exports):
        return
    projected.exports.append(body)
    model, run = projected.ids.model(body), projected.id()
    tags = {
        "marin.run": body.run,
        "marin.event": str(recorded.index),
        "marin.model": body.model,
        **output_tags(body.output),
    }
    yield ModelLogged(
        model,
        run,
        projected.experiment,
        model_name(f"{projected.experiment}-{body.run}"),
        body.format,
        recorded.time,
        projected.trained,
        tags,
    )
    name = model_name(projected.experiment)
    yield ModelRegistered(name, model, run, recorded.time, body.output.artifact, tags, EXPORTED)


def exported_by_step(recorded: RecordedEvent, projected: ProjectedRun, body: events.StepCompleted) -> Iterator[Intent]:
    """A log without model.exported still tells what the model is: the output of the step, made from that of train."""
    trained = body.inputs.get("train", body.output.digest)
    made = events.ModelExported(run=body.run, format=body.output.kind, model=trained, output=body.output)
    yield from exported(recorded, projected, made)


def taken_over(recorded: RecordedEvent, projected: ProjectedRun, step: str, source: ProjectedRun) -> Iterator[Intent]:
    """What a result of ``step`` brings along from the run that made it."""
    if step == "train":
        projected.checkpoints = list(source.checkpoints)
        projected.withdrawn = {state for state in source.withdrawn if not source.stands(state)}
        yield from _losses(recorded, projected, projected.run.losses)
    if step == "evaluate":
        projected.evaluation = dict(projected.fold.steps[step].metrics)
        yield from _evaluation(recorded, projected)
    if step == "export":
        projected.exports = list(source.exports)


def _evaluation(recorded: RecordedEvent, projected: ProjectedRun) -> Iterator[Intent]:
    for name, value in projected.evaluation.items():
        told = Points(projected.id(), single_key("evaluate", name), recorded.time, [(projected.trained, value)])
        yield from projected.tell(told, "evaluate", again=True)


def _losses(recorded: RecordedEvent, projected: ProjectedRun, losses: Mapping[int, float]) -> Iterator[Intent]:
    if not losses:
        return
    yield from projected.tell(Points(projected.id(), LOSS, recorded.time, list(losses.items())), "train")
    assert projected.fold.started is not None, "a run is projected from its beginning on"
    if per_step := tokens_of_step(projected.fold.started.body.recipe):
        seen = [(step, float((step + 1) * per_step)) for step in losses]
        yield from projected.tell(Points(projected.id(), TOKENS, recorded.time, seen), "train")
