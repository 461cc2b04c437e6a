"""The fourteen kinds of fault. Each draws one fault with a seeded generator, puts it into a copy of the honest run, and
says where full verification must find it.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ledger import Draft
from marin.recipe.schema import Recipe
from marin.record import events as kinds
from marin.record.events import Output
from marin.record.root import Root
from marin.tensors.token_caches import tokens_content
from marin.training.data import Batch
from marin.training.state import TrainState, leaves, manifest_of
from marin.training.tokens.building import write_cache
from marin.training.tokens.cache import read_tokens
from marin.verify.jax.replay import prepared
from marin.verify.segments.ordering import by_execution
from marin.work.recorded import StoredResult
from tests.adversary.faults import operator
from tests.adversary.faults.operator import Claims, Hopeless
from tests.adversary.faults.params import EXECUTION
from tests.adversary.faults.world import World


@dataclass(frozen=True)
class Fault:
    """What was done, and where it has to be found: verdict, train step and tensors (None: not looked at), or the stage
    or event that a detail of the verdict has to name."""

    what: str
    verdict: str
    step: int | None = None
    tensors: tuple[str, ...] | None = None
    names: str = ""


Draw = Callable[[random.Random, World, Root, int], Fault]
"""(generator, world, copy to damage, number of the row within its kind) -> the fault that is in the copy now."""
STEPS = 12


def _flip_in_state(rng: random.Random, world: World, root: Root, group: str) -> Fault:
    """One bit of one element, flipped in memory during a train step, recorded as it is, and trained on."""
    state = world.state(0)
    if group in ("key", "cursor"):
        paths = [group]
    else:
        paths = [
            name
            for name, value in leaves(state)
            if name.startswith(group) and np.asarray(value).dtype.kind == "f" and np.asarray(value).ndim
        ]
    for _ in range(20):
        number = rng.randrange(STEPS)
        path = rng.choice(paths)
        tensor = np.asarray(dict(leaves(state))[path])
        element, bit = rng.randrange(max(1, tensor.size)), rng.randrange(8 * tensor.dtype.itemsize)
        claims = Claims()

        def tamper(
            at: int, after: TrainState, number: int = number, path: str = path, element: int = element, bit: int = bit
        ) -> TrainState | None:
            return operator.edited(after, path, element, bit) if at == number else None

        try:
            operator.train(
                world,
                root,
                claims,
                world.outputs["tokens"],
                world.outputs["tokenizer"],
                since=number // 4 * 4,
                tamper=tamper,
            )
        except Hopeless:
            continue
        return _publish(
            world,
            root,
            claims,
            Fault(f"bit {bit} of element {element} of {path} in train step {number}", "training", number, (path,)),
        )
    raise AssertionError("no bit that training survives")


def _publish(world: World, root: Root, claims: Claims, fault: Fault, *, honest_end: bool = True) -> Fault:
    """Record the claims; evaluation and export follow truly from what was trained."""
    if "train" in claims.made and honest_end:
        operator.finish(world, root, claims, {k: v for k, v in world.outputs.items() if k != "train"})
    world.publish(root, operator.rebuild(world, claims))
    return fault


def parameter(rng: random.Random, world: World, root: Root, row: int) -> Fault:
    return _flip_in_state(rng, world, root, "model/")


def moment(rng: random.Random, world: World, root: Root, row: int) -> Fault:
    return _flip_in_state(rng, world, root, "moments/inner_state/0/")


def key(rng: random.Random, world: World, root: Root, row: int) -> Fault:
    return _flip_in_state(rng, world, root, "key")


def cursor(rng: random.Random, world: World, root: Root, row: int) -> Fault:
    return _flip_in_state(rng, world, root, "cursor")


def token(rng: random.Random, world: World, root: Root, row: int) -> Fault:
    """Even rows: trained on another token than the data hold. Odd rows: the token cache itself is another."""
    claims = Claims()
    if row % 2 == 0:
        number, at = rng.randrange(STEPS), rng.randrange(4)
        column, bit = rng.randrange(16), rng.randrange(8)
        training = prepared(world.recipe, world.outputs["tokens"], world.outputs["tokenizer"], EXECUTION)

        def feed(step: int, honest: Callable[[int], Batch]) -> Batch:
            batch = honest(step)
            if step != number:
                return batch
            return operator.with_token(
                batch, at, column, int(np.asarray(batch.tokens)[at, column]) ^ 1 << bit, training
            )

        operator.train(
            world, root, claims, world.outputs["tokens"], world.outputs["tokenizer"], since=number // 4 * 4, feed=feed
        )
        return _publish(
            world,
            root,
            claims,
            Fault(f"bit {bit} of token {column} of sequence {at} in train step {number}", "training", number, ()),
        )
    stream, offsets = read_tokens(world.outputs["tokens"] / "train")
    at = rng.randrange(len(stream))
    stream[at] ^= 1 << rng.randrange(8)
    folder = _fresh(world, "tokens")
    write_cache(folder / "train", iter(stream[a:b] for a, b in pairwise(offsets.tolist())))
    shutil.copytree(world.outputs["tokens"] / "validation", folder / "validation")
    honest = world.view().steps["tokens"]
    digest, size = tokens_content(folder)
    output = Output(kind="tokens", digest=digest, size=size, artifact=root.store().put_tree(folder).digest)
    claims.made["tokens"] = StoredResult(output, dict(honest.metrics), dict(honest.tables))
    operator.train(world, root, claims, folder, world.outputs["tokenizer"])
    operator.finish(world, root, claims, {**world.outputs, "tokens": folder})
    return _publish(
        world, root, claims, Fault(f"token {at} of the token cache", "data", names="tokens"), honest_end=False
    )


def document(rng: random.Random, world: World, root: Root, row: int) -> Fault:
    """One letter of one document; everything after it follows truly."""
    claims, folder = Claims(), _fresh(world, "corpus")
    shutil.copytree(world.outputs["corpus"], folder, dirs_exist_ok=True)
    path = folder / "train.jsonl"
    lines = path.read_text("utf-8").splitlines()
    at = rng.randrange(len(lines))
    record = json.loads(lines[at])
    letters = [i for i, letter in enumerate(record["text"]) if letter.isascii() and letter.isalpha()]
    place = rng.choice(letters)
    text = record["text"]
    changed = chr(ord(text[place]) ^ 1) if chr(ord(text[place]) ^ 1).isalpha() else chr(ord(text[place]) ^ 2)
    record["text"] = text[:place] + changed + text[place + 1 :]
    lines[at] = json.dumps(record, sort_keys=True)
    path.chmod(0o644)
    path.write_text("\n".join(lines) + "\n", "utf-8")
    honest, artifact = world.view().steps["corpus"], root.store().put_tree(folder)
    claims.made["corpus"] = StoredResult(
        Output(kind="corpus", digest=artifact.digest, size=artifact.size, artifact=artifact.digest),
        dict(honest.metrics),
        dict(honest.tables),
    )
    inputs = dict(world.outputs) | {"corpus": folder}
    for name in ("tokenizer", "tokens"):
        inputs[name] = operator.execute(world, root, claims, name, inputs)
    operator.train(world, root, claims, inputs["tokens"], inputs["tokenizer"])
    operator.finish(world, root, claims, inputs)
    return _publish(world, root, claims, Fault(f"a letter of document {at}", "data", names="corpus"), honest_end=False)


def tokenizer(rng: random.Random, world: World, root: Root, row: int) -> Fault:
    """Even rows: two merges exchanged, everything after it true. Odd rows: a bit of the stored file."""
    if row % 2:
        return _at_rest(rng, world, root, world.view().output("tokenizer").artifact, "output of tokenizer")
    claims, folder = Claims(), _fresh(world, "tokenizer")
    shutil.copytree(world.outputs["tokenizer"], folder, dirs_exist_ok=True)
    path = folder / "tokenizer.json"
    saved = json.loads(path.read_text("utf-8"))
    merges = saved["model"]["merges"]
    at = rng.randrange(len(merges) // 2)
    merges[at], merges[at + 1] = merges[at + 1], merges[at]
    path.chmod(0o644)
    path.write_text(json.dumps(saved, indent=2, ensure_ascii=False) + "\n", "utf-8")
    honest, artifact = world.view().steps["tokenizer"], root.store().put_tree(folder)
    claims.made["tokenizer"] = StoredResult(
        Output(kind="tokenizer", digest=artifact.digest, size=artifact.size, artifact=artifact.digest),
        dict(honest.metrics),
        dict(honest.tables),
    )
    inputs = dict(world.outputs) | {"tokenizer": folder}
    inputs["tokens"] = operator.execute(world, root, claims, "tokens", inputs)
    operator.train(world, root, claims, inputs["tokens"], folder)
    operator.finish(world, root, claims, inputs)
    fault = Fault(f"merges {at} and {at + 1} exchanged", "data", names="tokenizer")
    return _publish(world, root, claims, fault, honest_end=False)


PROVEN = {
    kinds.RUN_STARTED: ("pipeline", "plan", "recipe_digest"),
    kinds.STEP_STARTED: ("identity", "config_digest", "inputs", "code", "lock"),
    kinds.STEP_COMPLETED: ("identity", "inputs", "output", "metrics", "tables"),
    kinds.TRAIN_STARTED: ("num_steps", "state", "manifest"),
    kinds.TRAIN_SEGMENT: ("losses", "batches", "fingerprints", "start_state", "end_state", "trace"),
    kinds.CHECKPOINT_SAVED: ("state", "artifact", "manifest", "size"),
    kinds.EVAL_COMPLETED: ("model", "metrics"),
    kinds.MODEL_EXPORTED: ("format", "model", "output"),
    kinds.RUN_COMPLETED: ("outputs", "metrics"),
}
"""Fields that are drawn here. The others are names, which decide what an event is about at all; claims that nothing
depends on (times, attempts, devices, the description of the machine and of the commit, measurements, the digests of the
compiled program, which a replay compares and tells without judging); and the recipe, which is a kind of its own."""


def event(rng: random.Random, world: World, root: Root, row: int) -> Fault:
    """Even rows: one value of one event, and the whole log signed again. Odd rows: a bit of the stored log."""
    if row % 2:
        files = sorted(path for path in (root.local / "log" / "tile").rglob("*") if path.is_file())
        file = rng.choice(files)
        data = bytearray(file.read_bytes())
        bit = rng.randrange(8 * len(data))
        data[bit // 8] ^= 1 << bit % 8
        _replace(file, bytes(data))
        relative = file.relative_to(root.local).as_posix()
        return Fault(f"bit {bit} of {relative}", "ledger", names=relative)
    drafts = operator.rebuild(world, Claims())
    places = [
        (i, leaf)
        for i, draft in enumerate(drafts)
        for leaf in _leaves(draft.body)
        if leaf and leaf[0] in PROVEN.get(draft.type, ())
    ]
    at, path = places[rng.randrange(len(places))]
    kind = drafts[at].type
    body = json.loads(json.dumps(drafts[at].body))
    inner = body
    for part in path[:-1]:
        inner = inner[part]
    inner[path[-1]] = _altered(rng, inner[path[-1]], root, path)
    drafts[at] = Draft(kind, drafts[at].stream, body, id=drafts[at].id, actor=drafts[at].actor, time=drafts[at].time)
    world.publish(root, drafts)
    what = f"{'.'.join(map(str, path))} of event {at} ({kind.partition('/')[0]})"
    if kind == kinds.TRAIN_SEGMENT:
        number = body["start"] + path[1] if len(path) > 1 else None
        return Fault(what, "training", number, names="" if number is not None else "train")
    return Fault(what, "", names=_stage(kind, body, at))


def _stage(kind: str, body: Mapping[str, Any], at: int) -> str:
    return {
        kinds.TRAIN_STARTED: "train",
        kinds.CHECKPOINT_SAVED: "train",
        kinds.EVAL_COMPLETED: "evaluate",
        kinds.MODEL_EXPORTED: "export",
        kinds.RUN_STARTED: f"event {at}",
        kinds.RUN_COMPLETED: f"event {at}",
    }.get(kind, str(body.get("step", "")))


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, Mapping):
        return [leaf for name, item in value.items() for leaf in _leaves(item, (*path, name))]
    if isinstance(value, list):
        return [leaf for i, item in enumerate(value) for leaf in _leaves(item, (*path, i))]
    return [path]


def _altered(rng: random.Random, value: Any, root: Root, path: tuple[Any, ...]) -> Any:
    """Another value of the same form; where it names stored bytes, bytes of that name are stored too."""
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int):
        return value ^ 1 << rng.randrange(4)
    if value.startswith("sha256:"):
        if path[-1] in ("artifact", "trace", "manifest") or path[0] == "tables":
            store = root.store()
            if store.kind(value) == "tree":
                return rng.choice(
                    sorted(digest for digest, kind in store.digests() if kind == "tree" and digest != value)
                )
            if store.kind(value) == "blob":
                data = bytearray(store.read(value))
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
                return store.put_bytes(bytes(data)).digest
        number = int(value[7:], 16) ^ 1 << rng.randrange(256)
        return f"sha256:{number:064x}"
    if "0x" in value:
        return operator.forged_loss(value, rng.randrange(23))
    return value + "x"


def checkpoint(rng: random.Random, world: World, root: Root, row: int) -> Fault:
    """Even rows: another state stored, and recorded as if the steps led to it and went on from it. Odd rows: a bit of a
    stored file."""
    saved = world.view().checkpoints
    if row % 2:
        fact = rng.choice(saved)
        return _at_rest(rng, world, root, fact.body.artifact, f"training checkpoint of step {fact.body.step}")
    fact = rng.choice(saved[:-1])
    state = world.state(fact.body.step)
    paths = [name for name, value in leaves(state) if name.startswith("model/") and np.asarray(value).ndim]
    path = rng.choice(paths)
    size = np.asarray(dict(leaves(state))[path]).size
    element, bit = rng.randrange(size), rng.randrange(32)
    other = operator.edited(state, path, element, bit)
    claims, number = Claims(), fact.body.step
    claims.checkpoints[number] = operator.stored_state(world, root.store(), other, number)
    digest = manifest_of(other).digest
    for segment in world.view().segments:
        body = segment.body
        if body.end == number:
            claims.segments[body.start] = msgspec.structs.replace(body, end_state=digest)
        if body.start == number:
            claims.segments[body.start] = msgspec.structs.replace(body, start_state=digest)
    return _publish(
        world,
        root,
        claims,
        Fault(
            f"bit {bit} of element {element} of {path} in the state after step {number - 1}",
            "training",
            number - 1,
            (path,),
        ),
    )


def _at_rest(rng: random.Random, world: World, root: Root, tree: str, what: str) -> Fault:
    """One bit of a file that only this tree has."""
    store, view = root.store(), world.view()
    others = {
        entry.digest
        for artifact in {f.body.artifact for f in view.checkpoints} | {s.output.artifact for s in view.steps.values()}
        if artifact != tree
        for entry in store.manifest(artifact).entries
    }
    files = {e.digest for e in store.manifest(tree).entries if e.size}
    digest = rng.choice(sorted(files - others or files))  # the tokenizer's files are all in the export too
    name = digest.removeprefix("sha256:")
    (path,) = (
        path
        for path in (root.local / "store").rglob("*")
        if path.is_file() and "".join(path.relative_to(root.local / "store").parts).endswith(name)
    )
    data = bytearray(path.read_bytes())
    bit = rng.randrange(8 * len(data))
    data[bit // 8] ^= 1 << bit % 8
    _replace(path, bytes(data))
    return Fault(f"bit {bit} of a file of the {what}", "artifacts", names=what)


CHANGES: tuple[tuple[str, str, Any], ...] = (
    ("optimizer", "learning_rate", 0.00625),
    ("optimizer", "beta1", 0.91),
    ("optimizer", "beta2", 0.951),
    ("optimizer", "epsilon", 2e-8),
    ("optimizer", "weight_decay", 0.11),
    ("optimizer", "max_grad_norm", 0.5),
    ("optimizer", "warmup_steps", 3),
    ("optimizer", "min_lr_ratio", 0.125),
    ("optimizer", "schedule", "linear"),
    ("optimizer", "learning_rate", 0.0059),
    ("model", "layer_norm_epsilon", 1e-4),
    ("", "seed", 4),
    ("dataset", "seed", 1),
    ("dataset", "train_bytes", 62_000),
    ("tokenizer", "vocab_size", 401),
    ("evaluation", "max_sequences", 7),
)


def recipe_field(rng: random.Random, world: World, root: Root, row: int) -> Fault:
    """Another recipe recorded than was executed. Where it must be found is what a true execution of it says first."""
    section, name, value = rng.choice(CHANGES)
    claimed = _changed(world.recipe, section, name, value)
    claims = Claims(recipe=claimed)
    what = f"{section}.{name} recorded as {value}".lstrip(".")
    world.publish(root, operator.rebuild(world, claims))
    if section in ("dataset", "tokenizer"):
        return Fault(what, "data", names={"dataset": "corpus", "tokenizer": "tokenizer"}[section])
    if section == "evaluation":
        return Fault(what, "model", names="evaluate")
    return _first_difference(world, claimed, what)


def _changed(recipe: Recipe, section: str, name: str, value: Any) -> Recipe:
    if not section:
        return msgspec.structs.replace(recipe, **{name: value})
    return msgspec.structs.replace(
        recipe, **{section: msgspec.structs.replace(getattr(recipe, section), **{name: value})}
    )


def _first_difference(world: World, claimed: Recipe, what: str) -> Fault:
    """The first train step, and its tensors, in which a true execution of ``claimed`` differs from the honest run's
    record: found here from the traces, not by the code under test."""
    training = prepared(claimed, world.outputs["tokens"], world.outputs["tokenizer"], EXECUTION)
    state, manifest = training.start()
    view, store = world.view(), world.root.store()
    initial = manifest_of(world.state(0))
    if manifest.digest != initial.digest:
        return Fault(what, "training", 0, by_execution(initial.differing(manifest)))
    for fact in view.segments:
        state, record = training.segment(state, manifest, fact.body.start, fact.body.end)
        recorded = np.frombuffer(store.read(fact.body.trace), "<u4").reshape(-1, len(training.names), 2)
        found = np.frombuffer(record.steps.trace, "<u4").reshape(recorded.shape)
        for offset in range(len(recorded)):
            if fact.body.batches[offset] != record.steps.batches[offset]:
                return Fault(what, "training", fact.body.start + offset, ())
            if fact.body.fingerprints[offset] != record.steps.fingerprints[offset]:
                rows = np.flatnonzero((recorded[offset] != found[offset]).any(axis=1))
                return Fault(what, "training", fact.body.start + offset, by_execution(training.names[i] for i in rows))
        manifest = record.end_state
    raise AssertionError(f"{what}: no bit of this run depends on it")


FLAGS = (
    "--xla_cpu_max_isa=SSE4_2",
    "--xla_cpu_max_isa=AVX",
    "--xla_cpu_enable_fast_math=true",
    "--xla_disable_hlo_passes=algsimp",
)


def xla_flag(rng: random.Random, world: World, root: Root, row: int) -> Fault:
    """From some train step on executed under another compiler flag than the recipe has. That takes another process."""
    flag, since = FLAGS[row % 2], 4 * rng.randrange(1, 3)
    store = root.store()
    target = _fresh(world, "flagged")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.adversary.faults.flagged",
            flag,
            str(world.folder),
            str(root.local),
            world.run,
            str(since),
            str(target),
        ],
        env={k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XLA_")) and k != "MARIN_ARITHMETIC"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    claims = msgspec.json.decode((target / "claims.json").read_bytes(), type=Flagged).claims()
    shutil.rmtree(world.folder / "trained", ignore_errors=True)
    store.checkout(claims.made["train"].output.artifact, world.folder / "trained")
    fault = _publish(world, root, claims, Fault(f"{flag} from train step {since} on", "training"))
    view = world.view()
    training = prepared(world.recipe, world.outputs["tokens"], world.outputs["tokenizer"], EXECUTION)
    for fact in view.segments:
        other = claims.segments.get(fact.body.start)
        if other is None or other.fingerprints == fact.body.fingerprints:
            continue
        offset = next(
            i for i, (a, b) in enumerate(zip(fact.body.fingerprints, other.fingerprints, strict=True)) if a != b
        )
        rows = [
            np.frombuffer(store.read(t), "<u4").reshape(-1, len(training.names), 2)[offset]
            for t in (fact.body.trace, other.trace)
        ]
        differing = by_execution(training.names[i] for i in np.flatnonzero((rows[0] != rows[1]).any(axis=1)))
        return Fault(fault.what, "training", fact.body.start + offset, differing)
    raise AssertionError(f"{flag} changes no bit of this run")


class Flagged(msgspec.Struct):
    """What a process under another flag hands back."""

    segments: dict[str, kinds.TrainSegment]
    checkpoints: dict[str, kinds.CheckpointSaved]
    output: Output
    metrics: dict[str, float]
    tables: dict[str, str]

    def claims(self) -> Claims:
        """As the operator claims it."""
        return Claims(
            made={"train": StoredResult(self.output, self.metrics, self.tables)},
            segments={int(k): v for k, v in self.segments.items()},
            checkpoints={int(k): v for k, v in self.checkpoints.items()},
        )


def dropped_step(rng: random.Random, world: World, root: Root, row: int) -> Fault:
    """By turns: a batch passed over; an update not made; a record left out."""
    number = rng.randrange(STEPS)
    claims, tokens, words = Claims(), world.outputs["tokens"], world.outputs["tokenizer"]
    if row % 3 == 0:
        operator.train(
            world,
            root,
            claims,
            tokens,
            words,
            since=number // 4 * 4,
            feed=lambda step, honest: honest(step if step < number else step + 1),
        )
        return _publish(
            world, root, claims, Fault(f"the batch of train step {number} passed over", "training", number, ())
        )
    if row % 3 == 1:
        before: dict[int, TrainState] = {number // 4 * 4 - 1: world.state(number // 4 * 4)}

        def unmade(at: int, after: TrainState) -> TrainState | None:
            previous = before.pop(at - 1, None)
            before[at] = after
            if at != number or previous is None:
                return None
            return operator.unmoved(previous, after)

        operator.train(world, root, claims, tokens, words, since=number // 4 * 4, tamper=unmade)
        return _publish(world, root, claims, Fault(f"the update of train step {number} not made", "training", number))
    fact = next(f.body for f in world.view().segments if f.body.start <= number < f.body.end)
    cut = {
        name: [x for i, x in enumerate(getattr(fact, name)) if i != number - fact.start]
        for name in ("losses", "batches", "fingerprints")
    }
    claims.segments[fact.start] = msgspec.structs.replace(fact, **cut)
    return _publish(world, root, claims, Fault(f"the record of train step {number} left out", "training", fact.start))


def swapped_steps(rng: random.Random, world: World, root: Root, row: int) -> Fault:
    """Even rows: two batches in each other's place. Odd rows: two records in each other's place."""
    claims = Claims()
    if row % 2 == 0:
        number = rng.randrange(STEPS - 1)
        other = {number: number + 1, number + 1: number}
        operator.train(
            world,
            root,
            claims,
            world.outputs["tokens"],
            world.outputs["tokenizer"],
            since=number // 4 * 4,
            feed=lambda step, honest: honest(other.get(step, step)),
        )
        return _publish(
            world,
            root,
            claims,
            Fault(f"train steps {number} and {number + 1} executed in the other order", "training", number, ()),
        )
    fact = rng.choice(world.view().segments).body
    offset = rng.randrange(fact.end - fact.start - 1)
    changes = {}
    for name in ("losses", "batches", "fingerprints"):
        values = list(getattr(fact, name))
        values[offset], values[offset + 1] = values[offset + 1], values[offset]
        changes[name] = values
    claims.segments[fact.start] = msgspec.structs.replace(fact, **changes)
    claims.made["train"] = operator.trained_of(world, root, claims, world.view().output("train"))
    return _publish(
        world,
        root,
        claims,
        Fault(
            f"the records of train steps {fact.start + offset} and {fact.start + offset + 1} exchanged",
            "training",
            fact.start + offset,
            (),
        ),
        honest_end=False,
    )


def loss(rng: random.Random, world: World, root: Root, row: int) -> Fault:
    """One bit of one recorded loss; the table and the metrics follow it."""
    claims = Claims()
    fact = rng.choice(world.view().segments).body
    offset, bit = rng.randrange(fact.end - fact.start), rng.randrange(23)
    losses = list(fact.losses)
    losses[offset] = operator.forged_loss(losses[offset], bit)
    claims.segments[fact.start] = msgspec.structs.replace(fact, losses=losses)
    claims.made["train"] = operator.trained_of(world, root, claims, world.view().output("train"))
    return _publish(
        world,
        root,
        claims,
        Fault(f"bit {bit} of the loss of train step {fact.start + offset}", "training", fact.start + offset, ()),
        honest_end=False,
    )


KINDS: Mapping[str, Draw] = {
    "parameter": parameter,
    "optimizer moment": moment,
    "key": key,
    "data cursor": cursor,
    "training token": token,
    "document": document,
    "tokenizer": tokenizer,
    "event": event,
    "stored checkpoint": checkpoint,
    "recipe field": recipe_field,
    "XLA flag": xla_flag,
    "dropped step": dropped_step,
    "swapped steps": swapped_steps,
    "forged loss": loss,
}


def clean(rng: random.Random, world: World, root: Root, row: int) -> Fault:
    """No fault. Even rows: the honest log signed again. Odd rows: training executed and recorded again by the
    operator."""
    claims = Claims()
    if row % 2:
        operator.train(
            world, root, claims, world.outputs["tokens"], world.outputs["tokenizer"], since=4 * rng.randrange(3)
        )
    return _publish(world, root, claims, Fault("nothing", ""))


def _fresh(world: World, name: str) -> Path:
    """An empty folder under a path that was never used: TensorStore remembers what lay under a path."""
    return operator.never_used(world, name)


def _replace(path: Path, data: bytes) -> None:
    """Another file in the place of a hard link."""
    path.parent.chmod(0o755)
    path.unlink()
    path.write_bytes(data)
