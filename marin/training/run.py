"""The train step of the pipeline, recorded: segments in order, each with its digests, states in the store.

Resuming is the ordinary start: the last recorded segment of this run whose checkpoint is in the store is where the
work goes on, and if there is none that is train step 0.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version

from jax.sharding import Mesh

from ledger import StateManifest
from marin.errors import Interrupted, Paused, UsageError
from marin.execution.step import PREVIOUS, StepResult, Task
from marin.process.cache import compilation_cache
from marin.process.progress import bar
from marin.process.waiting import waiting
from marin.provenance.plugins import load_plugin
from marin.recipe.model import LEARNING, WORDS
from marin.recipe.objective import between_updates
from marin.recipe.schema import Keep, Recipe, may_be_masked
from marin.recipe.seeds import seeds_of
from marin.record import events
from marin.record.meter import Meter, segment_metrics
from marin.training.checkpoints.saving import Saved, Saver
from marin.training.initial import initial_program
from marin.training.loop import NotFinite, SegmentRecord, Steps, Training
from marin.training.model import vocabulary_size
from marin.training.optimizers.rule import groups
from marin.training.runtime import hosts
from marin.training.runtime.compilation import use_compilation_cache
from marin.training.runtime.stopping import StopSignal
from marin.training.state import EXPERT, TENSOR
from marin.training.tokens.cache import count_tokens

logger = logging.getLogger(__name__)


def program_identity(training: Training) -> events.Json:
    """What is compiled and by what: StableHLO digests, and :func:`compiled_identity`."""
    functions = {
        **training.step.program(),
        **training.programs,
        "initial": initial_program(training.recipe, training.vocab_size, training.step.layout.form),
    }
    return {"functions": functions} | compiled_identity(training)


def compiled_identity(training: Training) -> events.Json:
    """Flags, versions, the groups of an optimizer that has some and, where one device's programs are compiled apart from the
    mesh, their optimised HLO with the kind of device and its compiler. Independent of the number of devices, and known without
    tracing anything again."""
    arithmetic, optimised = training.recipe.arithmetic, training.step.optimised
    known: events.Json = {
        "xla_flags": list(arithmetic.xla_flags),
        "threads": arithmetic.threads,
        "profile": arithmetic.profile,
        "jax": version("jax"),
        "jaxlib": version("jaxlib"),
        "levanter": version("marin-levanter"),
        **_optimizer_groups(training),
    }
    if not optimised:
        return known
    device = training.mesh.devices.flat[0]
    compiler = version("libtpu") if device.platform == "tpu" else " ".join(device.client.platform_version.split())
    return known | {"optimised": dict(optimised), "device_kind": device.device_kind, "compiler": compiler}


def _optimizer_groups(training: Training) -> events.Json:
    """Of an optimizer that looks across tensors: the parameters that each of its rules moves, by their paths in the model."""
    if training.recipe.optimizer.elementwise:
        return {}
    layout = training.step.layout
    paths = [name.removeprefix("model/") for name in layout.param_names]
    found = groups(training.recipe, layout.named).items()
    return {"optimizer_groups": {name: [paths[number] for number in numbers] for name, numbers in found}}


def check_pause(recipe: Recipe, pause: int | None) -> None:
    """Raises UsageError where a training was to stop where no state may be recorded."""
    if pause is not None and not between_updates(recipe, pause):
        raise UsageError(
            "a pause within an update",
            where="--pause-at",
            expected="a train step before which a state may be recorded",
            found=str(pause),
            cure="pause at a multiple of objective.num_iterations; with objective.updates_behind of trainer.steps_per_segment",
        )


def retained(recipe: Recipe, keep: Keep | None) -> events.Retention | None:
    """The policy as it is recorded: the states that an evaluation is due for are kept too, for a verifier measures them
    again."""
    if keep is None:
        return None
    return events.Retention(every=sorted({keep.every, recipe.evaluation.every or 0} - {0}), last=keep.last)


def describe_devices(mesh: Mesh) -> events.Json:
    """Platform and kind of the devices that train, the process of each, how many share the matrices or
    the experts of a layer where some do, and coordinates where the platform has some."""
    devices = mesh.devices.ravel().tolist()
    found: events.Json = {
        "platform": devices[0].platform,
        "kind": devices[0].device_kind,
        "processes": [device.process_index for device in devices],
        **({"tensor_parallel": mesh.shape[TENSOR]} if TENSOR in mesh.shape else {}),
        **({"expert_parallel": mesh.shape[EXPERT]} if EXPERT in mesh.shape else {}),
    }
    places = [list(device.coords) for device in devices if getattr(device, "coords", None) is not None]
    return found | {"coordinates": places} if places else found


def train(task: Task) -> StepResult:
    """Execute or resume the training of ``task.recipe``. The final state is in the store; ``task.out`` gets its list of
    tensors, and the result names its tree.

    Raises:
        UsageError: more epochs than the recipe allows, or packing that would cut conversations.
        DataError: a batch has nothing to learn.
        Paused: before the train step that the execution named.
        Interrupted: asked to stop; the state is recorded.
    """
    recipe = task.recipe
    cache = (task.stored["tokens"] if "tokens" in task.stored else task.inputs["tokens"]) / "train"
    # What can be refused is refused before anything is compiled, which takes minutes.
    if recipe.trainer.most_epochs is not None:
        load_plugin(*WORDS, "trainer.most_epochs").check_epochs(recipe, count_tokens(cache))
    if recipe.objective is None and may_be_masked(recipe):
        load_plugin(*LEARNING, "what is learned of conversations")(recipe, cache)
    check_pause(recipe, task.execution.pause_at)
    use_compilation_cache(compilation_cache())
    with waiting("compiling the train step"):
        training = Training(
            recipe,
            cache,
            vocabulary_size(task.inputs["tokenizer"], recipe.model),
            task.execution,
            task.inputs["tokenizer"],
            task.store,
        )
    first, last = recipe.first_step, recipe.last_step
    marks: list[int] = []
    if recipe.trainer.states_at_words is not None:
        states_at = load_plugin(*WORDS, "trainer.states_at_words").states_at
        marks = hosts.broadcast(states_at(recipe, task.inputs["tokenizer"], cache) if hosts.leader() else None)
    # One process looks for a state to go on from, and all take its answer: the log may grow between two looks.
    at, pause, tree = first, task.execution.pause_at, None
    done = hosts.broadcast(resumable_by_leader(task))
    if done is None:
        with waiting("making the initial state"):
            state, manifest = training.start(task.inputs.get(PREVIOUS))
    else:
        segment = events.read(events.TrainSegment, done[0], where="last recorded segment")
        tree, at = events.read(events.CheckpointSaved, done[1], where="last training checkpoint").artifact, segment.end
        where = f"checkpoint of train step {at}"
        state, manifest = training.resume((task.store, tree), segment.end_state, where=where)
        logger.info("resuming at train step %d", at)
    with waiting("naming the compiled programs"):
        program = program_identity(training)  # in every process: Levanter's loss asks all of them what it chose
    recorder = Recorder(task, manifest, tree)
    if hosts.leader():
        recorder.started(training, at, program)
    meter = Meter()
    with (
        closing(training),
        training.saver(task.store, task.work / "slices", pack=task.execution.pack_checkpoints, base=tree) as saver,
        StopSignal() as stop,
        bar("train", last - first, at - first) as progress,
    ):
        # States that are in the store by now are recorded between two train steps, not at the end of a segment: a process that
        # dies loses less.
        def reached(step: int, loss: float) -> None:
            saver.settle()
            progress(step + 1 - first, f"loss {loss:.3f}")

        while at < last:
            if pause is not None and at >= pause:
                saver.settle(wait=True)
                raise Paused(
                    "training is paused",
                    where=f"before train step {at}",
                    found=f"state {recorder.manifest.digest}",
                    cure="run the same command without the pause: it goes on from here, on any number of devices",
                )
            length = recipe.trainer.steps_per_segment
            # A segment's length is counted from the first train step, not from where this attempt began: all attempts at one
            # training have the same segments. Marks and a pause end one earlier.
            due = (step for step in (*marks, *([pause] if pause is not None else ())) if step > at)
            end = min(last, first + ((at - first) // length + 1) * length, *due)
            try:
                state, steps = training.steps(state, at, end, stop=stop, progress=reached)
            # What was there before the number that is not finite is saved, so that a user can look for its cause.
            except NotFinite as error:
                saver.settle(wait=True)
                raise error.saved_as(keep_last(saver, recorder, error)) from error
            tokens = (steps.end - steps.start) * recipe.trainer.batch_size * recipe.model.seq_len
            lap = meter.lap(steps.end - steps.start, tokens)
            saver.save(state, partial(recorder.segment, steps, lap))
            at = steps.end
            # Asked to stop in the last segment, a training ends as if nobody had asked.
            if stop.received is not None and at < last:
                saver.settle(wait=True)
                raise Interrupted(
                    "training was asked to stop",
                    where=f"after train step {at - 1}",
                    found=stop.received.name,
                    cure="run the same command again: it goes on from here",
                )
        saver.settle(wait=True)
    if not hosts.leader():
        return StepResult(kind="state")
    (task.out / "state.json").write_bytes(recorder.manifest.encode())
    return result_of(task, recorder.manifest, recorder.tree or "")


@dataclass
class Recorder:
    """Puts the leader's facts into the ledger: a segment when its last state is in the store. ``manifest`` and ``tree``: of
    the last recorded state; before the first segment there may be no tree."""

    task: Task
    manifest: StateManifest
    tree: str | None

    def started(self, training: Training, at: int, program: events.Json) -> None:
        """The training goes on at train step ``at``."""
        task = self.task
        task.journal.record(
            events.TRAIN_STARTED,
            events.TrainStarted(
                run=task.run,
                first_step=at,
                num_steps=task.recipe.last_step,
                state=self.manifest.digest,
                manifest=task.store.put_bytes(self.manifest.encode()).digest,
                program=program,
                seeds=seeds_of(task.recipe),
                devices=task.execution.devices,
                processes=hosts.processes(),
                attempt=task.attempt,
                device=describe_devices(training.mesh),
                retention=retained(task.recipe, task.execution.keep),
            ),
        )

    def segment(self, steps: Steps, lap: Mapping[str, float], saved: Saved) -> None:
        """Train steps whose last state is saved: bytes first, then the events that name them."""
        task, before = self.task, self.manifest
        trace = task.store.put_bytes(steps.trace)
        for record in steps.records.values():
            task.store.put_bytes(record)
        self.checkpoint(steps.end, saved)
        task.journal.record(
            events.TRAIN_SEGMENT, segment_event(task.run, SegmentRecord(steps, before, saved.manifest), trace.digest)
        )
        curves = {events.GRAD_NORM: steps.grad_norms, **steps.routers, **steps.completions}
        task.journal.record(events.METRICS_RECORDED, segment_metrics(task.run, "train", steps.start, curves, lap))
        logger.info("train steps %d to %d recorded", steps.start, steps.end - 1)

    def checkpoint(self, step: int, saved: Saved) -> None:
        """A state that is saved, as the one before train step ``step``."""
        task = self.task
        task.journal.record(
            events.CHECKPOINT_SAVED,
            events.CheckpointSaved(
                run=task.run,
                step=step,
                state=saved.manifest.digest,
                artifact=saved.artifact.digest,
                manifest=task.store.put_bytes(saved.manifest.encode()).digest,
                size=saved.artifact.size,
            ),
        )
        self.manifest, self.tree = saved.manifest, saved.artifact.digest


def result_of(task: Task, manifest: StateManifest, tree: str) -> StepResult:
    """The state in ``tree`` as the step's output. Losses of all recorded segments of this run, in order, as metrics and as a
    table to plot."""
    losses: dict[int, float] = {}
    for body in task.journal.history(events.TRAIN_SEGMENT):
        assert isinstance(body, events.TrainSegment)
        losses |= {body.start + i: float.fromhex(loss) for i, loss in enumerate(body.losses)}
    first = task.recipe.first_step
    ordered = [losses[step] for step in range(first, task.recipe.last_step)]
    rows = "".join(f"{step},{loss!r}\n" for step, loss in enumerate(ordered, first))
    tokens = task.recipe.trainer.num_steps * task.recipe.trainer.batch_size * task.recipe.model.seq_len
    return StepResult(
        kind="state",
        digest=manifest.digest,
        size=sum(tensor.nbytes for tensor in manifest.tensors),
        trees={"checkpoint": tree},
        tables={"loss": "step,loss\n" + rows},
        metrics={"loss_first": ordered[0], "loss_last": ordered[-1], "tokens": float(tokens)},
    )


def resumable_by_leader(task: Task) -> list[events.Json] | None:
    """What :func:`resumable` finds, as the leader tells it to the others."""
    found = resumable(task) if hosts.leader() else None
    return None if found is None else [events.write(body) for body in found]


def resumable(task: Task) -> tuple[events.TrainSegment, events.CheckpointSaved] | None:
    """The furthest recorded segment of this run whose checkpoint the store still has."""
    saved = {
        body.state: body
        for body in task.journal.history(events.CHECKPOINT_SAVED)
        if isinstance(body, events.CheckpointSaved)
    }
    for body in reversed(task.journal.history(events.TRAIN_SEGMENT)):
        assert isinstance(body, events.TrainSegment)
        checkpoint = saved.get(body.end_state)
        if checkpoint is not None and task.store.has(checkpoint.artifact) and between_updates(task.recipe, body.end):
            return body, checkpoint
    return None


def keep_last(saver: Saver, recorder: Recorder, error: NotFinite) -> str:
    """Record what led to the step that failed, with the state before it; the digest of its stored checkpoint."""
    steps = error.steps
    done = (
        partial(recorder.segment, steps, {}) if steps.end > steps.start else partial(recorder.checkpoint, steps.start)
    )
    saver.save(error.state, done)
    saver.settle(wait=True)
    return recorder.tree or ""


def segment_event(run: str, record: SegmentRecord, trace: str) -> events.TrainSegment:
    """The event of a segment; ``trace``: the digest of the stored one."""
    return events.TrainSegment(
        run=run,
        start=record.steps.start,
        end=record.steps.end,
        losses=[loss.hex() for loss in record.steps.losses],
        batches=record.steps.batches,
        fingerprints=record.steps.fingerprints,
        start_state=record.start_state.digest,
        end_state=record.end_state.digest,
        trace=trace,
    )
