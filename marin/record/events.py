"""The bodies of events and the names of their types, from the families that have them (:mod:`marin.kinds.families`): one door
for those who record and read.

A released name never changes meaning: a changed shape is a new version (``train.segment/v2``). 64-bit integers are strings,
floats that must be exact hex strings (``float.hex``), digests ``sha256:<hex>``.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ledger import Draft
from marin.errors import MarinError
from marin.kinds.body import Body as Body
from marin.kinds.body import Digest as Digest
from marin.kinds.body import HexFloat as HexFloat
from marin.kinds.body import Json as Json
from marin.kinds.body import Output as Output
from marin.kinds.families.evaluation import EVAL_COMPLETED as EVAL_COMPLETED
from marin.kinds.families.evaluation import EVALUATION_MEASURED as EVALUATION_MEASURED
from marin.kinds.families.evaluation import EVALUATION_RECORDED as EVALUATION_RECORDED
from marin.kinds.families.evaluation import MODEL_EXPORTED as MODEL_EXPORTED
from marin.kinds.families.evaluation import EvalCompleted as EvalCompleted
from marin.kinds.families.evaluation import EvaluatedTask as EvaluatedTask
from marin.kinds.families.evaluation import EvaluationMeasured as EvaluationMeasured
from marin.kinds.families.evaluation import EvaluationRecorded as EvaluationRecorded
from marin.kinds.families.evaluation import MeasuredSet as MeasuredSet
from marin.kinds.families.evaluation import ModelExported as ModelExported
from marin.kinds.families.experiment import EXPERIMENT_REGISTERED as EXPERIMENT_REGISTERED
from marin.kinds.families.experiment import EXPERIMENT_REPORTED as EXPERIMENT_REPORTED
from marin.kinds.families.experiment import SPEEDRUN_ENTERED as SPEEDRUN_ENTERED
from marin.kinds.families.experiment import ExperimentRegistered as ExperimentRegistered
from marin.kinds.families.experiment import ExperimentReported as ExperimentReported
from marin.kinds.families.experiment import Replayed as Replayed
from marin.kinds.families.experiment import SpeedrunEntered as SpeedrunEntered
from marin.kinds.families.following import STOP_REQUESTED as STOP_REQUESTED
from marin.kinds.families.following import TRAIN_WITHDRAWN as TRAIN_WITHDRAWN
from marin.kinds.families.following import StopRequested as StopRequested
from marin.kinds.families.following import TrainWithdrawn as TrainWithdrawn
from marin.kinds.families.graph import ARTIFACT_ADOPTED as ARTIFACT_ADOPTED
from marin.kinds.families.graph import GRAPH_COMPLETED as GRAPH_COMPLETED
from marin.kinds.families.graph import GRAPH_STARTED as GRAPH_STARTED
from marin.kinds.families.graph import STEP_CHECKED as STEP_CHECKED
from marin.kinds.families.graph import ArtifactAdopted as ArtifactAdopted
from marin.kinds.families.graph import GraphCompleted as GraphCompleted
from marin.kinds.families.graph import GraphStarted as GraphStarted
from marin.kinds.families.graph import StepChecked as StepChecked
from marin.kinds.families.lease import LEASE_RELEASED as LEASE_RELEASED
from marin.kinds.families.lease import LEASE_RENEWED as LEASE_RENEWED
from marin.kinds.families.lease import LEASE_TAKEN as LEASE_TAKEN
from marin.kinds.families.lease import LEASES as LEASES
from marin.kinds.families.lease import LeaseReleased as LeaseReleased
from marin.kinds.families.lease import LeaseRenewed as LeaseRenewed
from marin.kinds.families.lease import LeaseTaken as LeaseTaken
from marin.kinds.families.loop import LOOP_SEGMENT as LOOP_SEGMENT
from marin.kinds.families.loop import LoopSegment as LoopSegment
from marin.kinds.families.run import LOOP as LOOP
from marin.kinds.families.run import RUN_COMPLETED as RUN_COMPLETED
from marin.kinds.families.run import RUN_LABELLED as RUN_LABELLED
from marin.kinds.families.run import RUN_STARTED as RUN_STARTED
from marin.kinds.families.run import SEED_DRAWN as SEED_DRAWN
from marin.kinds.families.run import Continues as Continues
from marin.kinds.families.run import RunCompleted as RunCompleted
from marin.kinds.families.run import RunLabelled as RunLabelled
from marin.kinds.families.run import RunStarted as RunStarted
from marin.kinds.families.run import SeedDrawn as SeedDrawn
from marin.kinds.families.step import DATA_STEPS as DATA_STEPS
from marin.kinds.families.step import DEFAULT_PIPELINE as DEFAULT_PIPELINE
from marin.kinds.families.step import MODEL_STEPS as MODEL_STEPS
from marin.kinds.families.step import STEP_CACHED as STEP_CACHED
from marin.kinds.families.step import STEP_COMPLETED as STEP_COMPLETED
from marin.kinds.families.step import STEP_FAILED as STEP_FAILED
from marin.kinds.families.step import STEP_PAUSED as STEP_PAUSED
from marin.kinds.families.step import STEP_PREEMPTED as STEP_PREEMPTED
from marin.kinds.families.step import STEP_STARTED as STEP_STARTED
from marin.kinds.families.step import STEPS as STEPS
from marin.kinds.families.step import StepCached as StepCached
from marin.kinds.families.step import StepCompleted as StepCompleted
from marin.kinds.families.step import StepFailed as StepFailed
from marin.kinds.families.step import StepPaused as StepPaused
from marin.kinds.families.step import StepPreempted as StepPreempted
from marin.kinds.families.step import StepStarted as StepStarted
from marin.kinds.families.tracking import GRAD_NORM as GRAD_NORM
from marin.kinds.families.tracking import MEASURED as MEASURED
from marin.kinds.families.tracking import METRICS_RECORDED as METRICS_RECORDED
from marin.kinds.families.tracking import TRACKING_LOGGED as TRACKING_LOGGED
from marin.kinds.families.tracking import MetricsRecorded as MetricsRecorded
from marin.kinds.families.tracking import Series as Series
from marin.kinds.families.tracking import TrackingLogged as TrackingLogged
from marin.kinds.families.train import CHECKPOINT_SAVED as CHECKPOINT_SAVED
from marin.kinds.families.train import TRAIN_SEGMENT as TRAIN_SEGMENT
from marin.kinds.families.train import TRAIN_STARTED as TRAIN_STARTED
from marin.kinds.families.train import CheckpointSaved as CheckpointSaved
from marin.kinds.families.train import Retention as Retention
from marin.kinds.families.train import TrainSegment as TrainSegment
from marin.kinds.families.train import TrainStarted as TrainStarted
from marin.kinds.families.verification import REPLAY_COMPLETED as REPLAY_COMPLETED
from marin.kinds.families.verification import REPLAY_SEGMENT as REPLAY_SEGMENT
from marin.kinds.families.verification import STORE_SCRUBBED as STORE_SCRUBBED
from marin.kinds.families.verification import ReplayCompleted as ReplayCompleted
from marin.kinds.families.verification import ReplaySegment as ReplaySegment
from marin.kinds.families.verification import StoreScrubbed as StoreScrubbed
from marin.kinds.known import CORE, type_of

BODIES: dict[str, type[Body]] = {kind.type: kind.body for kind in CORE.values()}
"""The body of each type of event that the core writes."""
EVALUATIONS = tuple(kind.type for kind in CORE.values() if kind.judge == "evaluation")
"""Of recorded states, in a stream of its own."""


def read[T: Body](kind: type[T], body: Any, *, where: str) -> T:
    """``body`` as ``kind``; raises :class:`MarinError` with the path of the first field that does not fit."""
    try:
        return msgspec.convert(body, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise MarinError(
            "event body does not fit its type", where=where, expected=kind.__name__, found=str(error)
        ) from None


def draft(body: Body, stream: str, **more: Any) -> Draft:
    """An event that says ``body``, of the type that has it; ``more`` as :class:`ledger.Draft` takes it."""
    return Draft(type_of(type(body)), stream, write(body), **more)


def write(body: Body) -> Json:
    """The JSON-shaped builtins of ``body``."""
    result = msgspec.to_builtins(body)
    assert isinstance(result, dict)
    return result
