"""The train step of the pipeline, recorded: segments in order, each with its digests, states in the store.

Resuming is the ordinary start: the last recorded segment of this run whose checkpoint is in the store is where the
work goes on, and if there is none that is train step 0.
"""

from __future__ import annotations

import logging
import shutil
from importlib.metadata import version
from pathlib import Path

from jax.sharding import Mesh

from ledger import Artifact, is_state, put_state
from marin.errors import Interrupted, Paused
from marin.execution.step import PREVIOUS, StepResult, Task
from marin.process.cache import compilation_cache
from marin.process.progress import bar
from marin.recipe.seeds import seeds_of
from marin.record.events import (
    CHECKPOINT_SAVED,
    GRAD_NORM,
    METRICS_RECORDED,
    TRAIN_SEGMENT,
    TRAIN_STARTED,
    CheckpointSaved,
    Json,
    TrainSegment,
    TrainStarted,
    read,
    write,
)
from marin.record.meter import Meter, recorded
from marin.training.loop import NotFinite, SegmentRecord, Training
from marin.training.model import vocabulary_size
from marin.training.runtime import hosts
from marin.training.runtime.compilation import use_compilation_cache
from marin.training.runtime.stopping import StopSignal
from marin.training.state import arrays_of, initial_program
from marin.training.step.slices import SlicedState

logger = logging.getLogger(__name__)


def program_identity(training: Training) -> Json:
    """What is compiled and by what: StableHLO digests, flags, compiler. Independent of the number of devices."""
    arithmetic = training.recipe.arithmetic
    return {
        "functions": {**training.step.program(), "initial": initial_program(training.recipe, training.vocab_size)},
        "xla_flags": list(arithmetic.xla_flags),
        "threads": arithmetic.threads,
        "profile": arithmetic.profile,
        "jax": version("jax"),
        "jaxlib": version("jaxlib"),
        "levanter": version("marin-levanter"),
    }


def described(mesh: Mesh) -> Json:
    """Platform and kind of the devices that train, the process of each, and its coordinates where the platform has
    some."""
    devices = mesh.devices.ravel().tolist()
    found: Json = {
        "platform": devices[0].platform,
        "kind": devices[0].device_kind,
        "processes": [device.process_index for device in devices],
    }
    places = [list(device.coords) for device in devices if getattr(device, "coords", None) is not None]
    return found | {"coordinates": places} if places else found


def train(task: Task) -> StepResult:
    """Execute or resume the training of ``task.recipe``; the final state lands in ``task.out``."""
    recipe, journal = task.recipe, task.journal
    use_compilation_cache(compilation_cache())
    training = Training(
        recipe, task.inputs["tokens"] / "train", vocabulary_size(task.inputs["tokenizer"]), task.execution
    )
    state, manifest = training.start(task.inputs.get(PREVIOUS))
    first, last = recipe.first_step, recipe.last_step
    at, pause = first, task.execution.pause_at
    done = hosts.agreed(found_resumable(task))
    if done is not None:
        segment = read(TrainSegment, done[0], where="last recorded segment")
        checkpoint = read(CheckpointSaved, done[1], where="last training checkpoint")
        folder = task.work / "resume"
        shutil.rmtree(folder, ignore_errors=True)
        task.store.checkout(checkpoint.artifact, folder)
        state, manifest = training.resume(folder, segment.end_state, where=f"checkpoint of train step {segment.end}")
        shutil.rmtree(folder)
        at = segment.end
        logger.info("resuming at train step %d", at)
    program = program_identity(training)  # in every process: Levanter's loss asks all of them what it chose
    if hosts.leader():
        journal.record(
            TRAIN_STARTED,
            TrainStarted(
                run=task.run,
                first_step=at,
                num_steps=last,
                state=manifest.digest,
                manifest=task.store.put_bytes(manifest.encode()).digest,
                program=program,
                seeds=seeds_of(recipe),
                devices=task.execution.devices,
                processes=hosts.processes(),
                attempt=task.attempt,
                device=described(training.mesh),
            ),
        )
    folder = task.work / "checkpoint"
    meter = Meter()
    with StopSignal() as stop, bar("train", last - first, at - first) as progress:
        while at < last:
            if pause is not None and at >= pause:
                raise Paused(
                    "training is paused",
                    where=f"before train step {at}",
                    found=f"state {manifest.digest}",
                    cure="run the same command without the pause: it goes on from here, on any number of devices",
                )
            length = recipe.trainer.steps_per_segment
            end = min(last, first + ((at - first) // length + 1) * length, *([pause] if pause is not None else []))
            try:
                state, record = training.segment(
                    state,
                    manifest,
                    at,
                    end,
                    stop=stop,
                    progress=lambda step, loss: progress(step + 1 - first, f"loss {loss:.3f}"),
                )
            except NotFinite as error:
                raise error.saved_as(keep_last(task, training, error, folder)) from error
            save_segment(task, training, state, record, folder)
            if hosts.leader():
                tokens = (record.end - record.start) * recipe.trainer.batch_size * recipe.model.seq_len
                journal.record(
                    METRICS_RECORDED,
                    recorded(
                        task.run,
                        "train",
                        record.start,
                        {GRAD_NORM: record.grad_norms},
                        meter.lap(record.end - record.start, tokens),
                    ),
                )
            logger.info("train steps %d to %d recorded", record.start, record.end - 1)
            at, manifest = record.end, record.end_state
            if stop.received is not None and at < last:
                raise Interrupted(
                    "training was asked to stop",
                    where=f"after train step {at - 1}",
                    found=stop.received.name,
                    cure="run the same command again: it goes on from here",
                )
    if not hosts.agreed(folder.exists()):
        training.save(state, folder)
    if not hosts.leader():
        return StepResult(kind="state", digest=manifest.digest)
    shutil.copytree(folder, task.out / "checkpoint")
    (task.out / "state.json").write_bytes(manifest.encode())
    return result_of(task, manifest.digest, sum(tensor.nbytes for tensor in manifest.tensors))


def result_of(task: Task, digest: str, size: int) -> StepResult:
    """Losses of all recorded segments of this run, in order, as metrics and as a table to plot."""
    losses: dict[int, float] = {}
    for body in task.journal.history(TRAIN_SEGMENT):
        assert isinstance(body, TrainSegment)
        losses |= {body.start + i: float.fromhex(loss) for i, loss in enumerate(body.losses)}
    first = task.recipe.first_step
    ordered = [losses[step] for step in range(first, task.recipe.last_step)]
    rows = "".join(f"{step},{loss!r}\n" for step, loss in enumerate(ordered, first))
    tokens = task.recipe.trainer.num_steps * task.recipe.trainer.batch_size * task.recipe.model.seq_len
    return StepResult(
        kind="state",
        digest=digest,
        size=size,
        tables={"loss": "step,loss\n" + rows},
        metrics={"loss_first": ordered[0], "loss_last": ordered[-1], "tokens": float(tokens)},
    )


def found_resumable(task: Task) -> list[Json] | None:
    """What :func:`resumable` finds, as the leader tells it to the others."""
    found = resumable(task) if hosts.leader() else None
    return None if found is None else [write(body) for body in found]


def resumable(task: Task) -> tuple[TrainSegment, CheckpointSaved] | None:
    """The furthest recorded segment of this run whose checkpoint the store still has."""
    saved = {body.state: body for body in task.journal.history(CHECKPOINT_SAVED) if isinstance(body, CheckpointSaved)}
    for body in reversed(task.journal.history(TRAIN_SEGMENT)):
        assert isinstance(body, TrainSegment)
        checkpoint = saved.get(body.end_state)
        if checkpoint is not None and task.store.has(checkpoint.artifact):
            return body, checkpoint
    return None


def keep_last(task: Task, training: Training, error: NotFinite, folder: Path) -> str:
    """Record what led to the step that failed, with the state before it; the digest of its stored checkpoint."""
    record = error.record
    if record.end > record.start:
        return save_segment(task, training, error.state, record, folder)
    shutil.rmtree(folder, ignore_errors=True)
    training.save(error.state, folder)
    digest = ""
    if hosts.leader():
        artifact = task.store.put_tree(folder)
        task.journal.record(
            CHECKPOINT_SAVED,
            CheckpointSaved(
                run=task.run,
                step=record.start,
                state=record.end_state.digest,
                artifact=artifact.digest,
                manifest=task.store.put_bytes(record.end_state.encode()).digest,
                size=artifact.size,
            ),
        )
        digest = artifact.digest
    hosts.agreed(True)
    return digest


def save_segment(task: Task, training: Training, state: SlicedState, record: SegmentRecord, folder: Path) -> str:
    """Bytes first, then the events that name them; the checkpoint's digest, for the leader. All processes take part in
    saving; the leader records, and before it has none of them goes on: whoever left early would be missed, and the
    leader be ended over its work."""
    artifact = _pack(task, training, state) if task.execution.pack_checkpoints else _save(task, training, state, folder)
    if artifact is not None:
        manifest = task.store.put_bytes(record.end_state.encode())
        trace = task.store.put_bytes(record.trace)
        task.journal.record(
            CHECKPOINT_SAVED,
            CheckpointSaved(
                run=task.run,
                step=record.end,
                state=record.end_state.digest,
                artifact=artifact.digest,
                manifest=manifest.digest,
                size=artifact.size,
            ),
        )
        task.journal.record(TRAIN_SEGMENT, segment_event(task.run, record, trace.digest))
    hosts.agreed(True)
    return artifact.digest if artifact is not None else ""


def _save(task: Task, training: Training, state: SlicedState, folder: Path) -> Artifact | None:
    """The checkpoint as Levanter writes it; None in a process that does not lead."""
    shutil.rmtree(folder, ignore_errors=True)
    training.save(state, folder)
    return task.store.put_tree(folder) if hosts.leader() else None


def _pack(task: Task, training: Training, state: SlicedState) -> Artifact | None:
    """The checkpoint tensor by tensor, as what changed since the last one that is here (``ledger.put_state``)."""
    collected = training.step.collect(state)
    if not hosts.leader():
        return None
    saved = [body.artifact for body in task.journal.history(CHECKPOINT_SAVED) if isinstance(body, CheckpointSaved)]
    base = saved[-1] if saved and is_state(task.store, saved[-1]) else None
    return put_state(task.store, arrays_of(collected), base)


def segment_event(run: str, record: SegmentRecord, trace: str) -> TrainSegment:
    return TrainSegment(
        run=run,
        start=record.start,
        end=record.end,
        losses=[loss.hex() for loss in record.losses],
        batches=record.batches,
        fingerprints=record.fingerprints,
        start_state=record.start_state.digest,
        end_state=record.end_state.digest,
        trace=trace,
    )
