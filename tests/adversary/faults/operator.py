"""The dishonest operator: holds the key, the code and the machine, and records anything, without a
contradiction that could have been avoided.

The operator trains with one thing changed and records the rest of the run truly, or executes the truth and records another
recipe. :func:`rebuild` writes those events: digests, identities, inputs and metrics follow from what is claimed.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from haliax.jax_utils import is_jax_array_like

from ledger import Draft, Store, canonical_digest
from marin.execution.plan import code_identity, identity_of, plan_digest, step_config
from marin.execution.step import StepResult, Task
from marin.pipeline.stages import PIPELINE
from marin.provenance.code import code_folder
from marin.recipe.schema import Recipe, digest, plain
from marin.record import events as kinds
from marin.record.events import CheckpointSaved, Output, TrainSegment, write
from marin.record.root import Root
from marin.training.checkpoints.saving import save
from marin.training.data import Batch, Batches, batch_digest
from marin.training.loop import SegmentRecord, Steps, Training, fingerprint_of
from marin.training.run import segment_event
from marin.training.state import TrainState, leaves, local, manifest_of
from marin.training.step import fingerprint
from marin.training.step.contract import StepOutcome
from marin.verify.jax.replay import prepared
from marin.verify.rehearsal import MemoryJournal
from marin.work.recorded import StoredResult
from tests.adversary.faults.params import EXECUTION
from tests.adversary.faults.world import World, manifest_blob

Tamper = Callable[[int, TrainState], TrainState | None]
"""(train step, state after it) -> another state to record and go on from, or None to leave it."""
Feed = Callable[[int, Callable[[int], Batch]], Batch]
"""(train step, the honest batch of a step) -> the batch that is trained on."""


class Hopeless(Exception):
    """The fault makes training leave the numbers: nobody would publish that run, so another fault is drawn."""


@dataclass
class Claims:
    """What the operator claims. Nothing given: as the honest run has it."""

    recipe: Recipe | None = None
    made: dict[str, StoredResult] = field(default_factory=dict)
    segments: dict[int, TrainSegment] = field(default_factory=dict)
    checkpoints: dict[int, CheckpointSaved] = field(default_factory=dict)
    initial: tuple[str, str] | None = None
    evaluation: Mapping[str, float] | None = None


def train(
    world: World,
    root: Root,
    claims: Claims,
    tokens: Path,
    tokenizer: Path,
    *,
    since: int = 0,
    tamper: Tamper | None = None,
    feed: Feed | None = None,
) -> TrainState:
    """Train from the honest state before ``since`` (the first step of a segment), and claim what comes out.

    Raises:
        Hopeless: loss or gradient is not finite.
    """
    training = prepared(world.recipe, tokens, tokenizer, EXECUTION)
    state = world.state(since)
    for fact in world.view().segments:
        if fact.body.end > since:
            state = _segment(
                world, root, claims, training, tokens, state, (fact.body.start, fact.body.end), tamper, feed
            )
    claims.made["train"] = _trained(world, root, claims, state)
    return state


def _segment(
    world: World,
    root: Root,
    claims: Claims,
    training: Training,
    tokens: Path,
    state: TrainState,
    span: tuple[int, int],
    tamper: Tamper | None,
    feed: Feed | None,
) -> TrainState:
    before = manifest_of(state)
    steps = Steps(*span)
    placed = training.step.place(state)

    def honest(number: int) -> Batch:
        with Batches(world.recipe, tokens / "train", training.mesh, number) as stream:
            return next(stream)

    for number in range(*span):
        batch = honest(number) if feed is None else feed(number, honest)
        placed, outcome = training.step.run(placed, batch.tokens, batch.weights)
        if not outcome.finite:
            raise Hopeless
        other = tamper(number, training.step.collect(placed)) if tamper is not None else None
        if other is not None:
            placed = training.step.place(other)
            outcome = StepOutcome(outcome.loss, outcome.grad_norm, prints_of(other))
        steps.losses.append(float(outcome.loss))
        steps.batches.append(batch.digest)
        steps.fingerprints.append(fingerprint_of(outcome))
        steps.trace += np.ascontiguousarray(outcome.fingerprint, dtype="<u4").tobytes()
    after = training.step.collect(placed)
    store = root.store()
    record = SegmentRecord(steps, before, manifest_of(after))
    claims.segments[span[0]] = segment_event(world.run, record, store.put_bytes(steps.trace).digest)
    claims.checkpoints[span[1]] = stored_state(world, store, after, span[1])
    return after


def stored_state(world: World, store: Store, state: TrainState, number: int) -> CheckpointSaved:
    """A training checkpoint of any state, recorded as the one after ``number`` train steps."""
    folder = world.folder / "checkpoint"
    shutil.rmtree(folder, ignore_errors=True)
    save(state, folder)
    manifest, artifact = manifest_of(state), store.put_tree(folder)
    return CheckpointSaved(
        run=world.run,
        step=number,
        state=manifest.digest,
        artifact=artifact.digest,
        manifest=manifest_blob(store, manifest),
        size=artifact.size,
    )


def _trained(world: World, root: Root, claims: Claims, state: TrainState) -> StoredResult:
    folder = world.folder / "trained"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    save(state, folder / "checkpoint")
    manifest = manifest_of(state)
    (folder / "state.json").write_bytes(manifest.encode())
    artifact = root.store().put_tree(folder)
    output = Output(
        kind="state", digest=manifest.digest, size=sum(t.nbytes for t in manifest.tensors), artifact=artifact.digest
    )
    return trained_of(world, root, claims, output)


def trained_of(world: World, root: Root, claims: Claims, output: Output) -> StoredResult:
    """The claim about step train: metrics and table follow from the claimed losses."""
    segments = {fact.body.start: fact.body for fact in world.view().segments} | claims.segments
    losses = [float.fromhex(loss) for start in sorted(segments) for loss in segments[start].losses]
    table = "step,loss\n" + "".join(f"{step},{loss!r}\n" for step, loss in enumerate(losses))
    trainer = world.recipe.trainer
    return StoredResult(
        output,
        {
            "loss_first": losses[0],
            "loss_last": losses[-1],
            "tokens": float(trainer.num_steps * trainer.batch_size * world.recipe.model.seq_len),
        },
        {"loss": root.store().put_bytes(table.encode()).digest},
    )


def execute(world: World, root: Root, claims: Claims, name: str, inputs: Mapping[str, Path]) -> Path:
    """Execute a step truly on any inputs, and claim what it made."""
    folder = never_used(world, name)
    (folder / "out").mkdir()
    (folder / "scratch").mkdir()
    step, journal = PIPELINE.step(name), MemoryJournal()
    result = step.run(
        Task(
            run=world.run,
            recipe=world.recipe,
            inputs={key: inputs[key] for key in step.inputs},
            out=folder / "out",
            work=folder / "scratch",
            store=root.store(),
            journal=journal,
            execution=EXECUTION,
        )
    )
    claims.made[name] = made_of(root.store(), folder / "out", result)
    return folder / "out"


def never_used(world: World, name: str) -> Path:
    """An empty folder under a path that was never used: TensorStore remembers what lay under a path."""
    return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=world.folder / "forks"))


def made_of(store: Store, folder: Path, result: StepResult) -> StoredResult:
    """The claim about any step: what it says of the folder that it filled."""
    artifact = store.put_tree(folder)
    tables = {name: store.put_bytes(text.encode()).digest for name, text in result.tables.items()}
    return StoredResult(result.output(artifact.digest, artifact.size), dict(result.metrics), tables)


def finish(world: World, root: Root, claims: Claims, inputs: Mapping[str, Path]) -> None:
    """Evaluate and export what was trained, truly."""
    trained = world.folder / "trained"
    for name in ("evaluate", "export"):
        execute(world, root, claims, name, {**inputs, "train": trained})


def rebuild(world: World, claims: Claims) -> list[Draft]:
    """The events of the honest run as the operator claims them."""
    view, claimed = world.view(), claims.recipe or world.recipe
    made = {
        name: claims.made.get(name) or StoredResult(step.output, dict(step.metrics), dict(step.tables))
        for name, step in view.steps.items()
    }
    code = code_identity(PIPELINE, code_folder(), world.recipe)
    digests = {name: item.output.digest for name, item in made.items()}
    identities: dict[str, str] = {}
    for step in PIPELINE.steps:
        inputs = {name: digests[name] for name in step.inputs}
        identities[step.name] = identity_of(
            step.name, step_config(step, claimed), inputs, code.steps[step.name], code.lock
        )
    drafts = []
    for draft in world.drafts:
        body: dict[str, Any] = dict(draft.body)
        _claim(draft.type, body, claims, claimed, made, digests, identities, code)
        drafts.append(Draft(draft.type, draft.stream, body, id=draft.id, actor=draft.actor, time=draft.time))
    return drafts


def _claim(
    kind: str,
    body: dict[str, Any],
    claims: Claims,
    recipe: Recipe,
    made: Mapping[str, StoredResult],
    digests: Mapping[str, str],
    identities: Mapping[str, str],
    code: Any,
) -> None:
    if kind == kinds.RUN_STARTED:
        body |= {"recipe": plain(recipe), "recipe_digest": digest(recipe), "plan": plan_digest(PIPELINE, recipe, code)}
    elif kind == kinds.STEP_STARTED:
        step = PIPELINE.step(body["step"])
        config = step_config(step, recipe)
        body |= {
            "identity": identities[step.name],
            "config": config,
            "config_digest": canonical_digest(config),
            "inputs": {name: digests[name] for name in step.inputs},
        }
    elif kind == kinds.STEP_COMPLETED:
        name = body["step"]
        body |= {
            "identity": identities[name],
            "inputs": {i: digests[i] for i in PIPELINE.step(name).inputs},
            "output": write(made[name].output),
            "metrics": {k: v.hex() for k, v in made[name].metrics.items()},
            "tables": dict(made[name].tables),
        }
    elif kind == kinds.TRAIN_STARTED:
        body["seeds"] = body["seeds"] | {"root": str(recipe.seed)}
        if claims.initial is not None:
            body |= {"state": claims.initial[0], "manifest": claims.initial[1]}
    elif kind == kinds.TRAIN_SEGMENT and body["start"] in claims.segments:
        body |= write(claims.segments[body["start"]])
    elif kind == kinds.CHECKPOINT_SAVED and body["step"] in claims.checkpoints:
        body |= write(claims.checkpoints[body["step"]])
    elif kind == kinds.EVAL_COMPLETED:
        body |= {"model": digests["train"], "metrics": {k: v.hex() for k, v in made["evaluate"].metrics.items()}}
    elif kind == kinds.MODEL_EXPORTED:
        body |= {"model": digests["train"], "output": write(made["export"].output)}
    elif kind == kinds.RUN_COMPLETED:
        body |= {
            "outputs": {name: write(item.output) for name, item in made.items()},
            "metrics": {f"{n}.{k}": v.hex() for n, item in made.items() for k, v in item.metrics.items()},
        }


def prints_of(state: TrainState) -> np.ndarray:
    """uint32[tensors, 2]: the fingerprints of a state on the host."""
    return np.stack([fingerprint.of(local(value)) for _, value in leaves(state)])


def edited(state: TrainState, path: str, element: int, bit: int) -> TrainState:
    """``state`` with one bit of one element of one tensor flipped."""
    names = [name for name, _ in leaves(state)]
    at = names.index(path)
    arrays, rest = eqx.partition(state, is_jax_array_like)
    flat, tree = jax.tree.flatten(arrays)
    tensor = np.array(local(flat[at]))
    words = tensor.reshape(-1).view(f"u{tensor.dtype.itemsize}")
    words[element] ^= words.dtype.type(1 << bit)
    flat[at] = jax.numpy.asarray(tensor)
    result: TrainState = eqx.combine(jax.tree.unflatten(tree, flat), rest)
    return result


def with_token(batch: Batch, row: int, column: int, token: int, training: Training) -> Batch:
    """``batch`` with one token replaced, digested truly."""
    tokens = np.array(batch.tokens)
    tokens[row, column] = token
    return Batch(
        batch.step, batch.indices, training.step.batch(tokens), batch.weights, batch_digest(batch.indices, tokens)
    )


def forged_loss(loss: str, bit: int) -> str:
    """A recorded loss with one bit of its float32 changed."""
    word = np.float32(float.fromhex(loss)).view(np.uint32) ^ np.uint32(1 << bit)
    return float(np.uint32(word).view(np.float32)).hex()


def unmoved(before: TrainState, after: TrainState) -> TrainState:
    """``after`` with the parameters and moments of ``before``: a step that only counted."""
    arrays, rest = eqx.partition(after, is_jax_array_like)
    old = jax.tree.leaves(eqx.filter(before, is_jax_array_like))
    flat, tree = jax.tree.flatten(arrays)
    kept = [x if np.asarray(x).dtype.kind == "f" and np.asarray(x).ndim else y for x, y in zip(old, flat, strict=True)]
    result: TrainState = eqx.combine(jax.tree.unflatten(tree, kept), rest)
    return result
