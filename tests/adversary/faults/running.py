"""The operator while a training runs: the fourteen kinds of fault, put into the process that trains and records.

Everything goes the ordinary way, through :func:`marin.execution.executor.run_stage`, into a signed log that grows. One thing
in this process is another than it should be: the arithmetic of a train step, a batch, a state on its way to the store, what a
step makes, what the journal hands on, or bytes at rest. Train steps are stretched by a pause, so that a segment of this tiny
model takes as long as that of a small one.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ledger import Draft
from marin.execution.executor import run_stage
from marin.execution.plan import Plan
from marin.execution.step import StepDefinition, StepResult, Task
from marin.pipeline.stages import PIPELINE
from marin.recipe.schema import Recipe, from_mapping
from marin.record import events
from marin.record.creation import create_root
from marin.record.root import Root, open_root
from marin.tensors.token_caches import tokens_content
from marin.training.checkpoints.saving import Saver
from marin.training.data import Batch
from marin.training.loop import Training
from marin.training.state import TrainState, leaves
from marin.training.step.contract import StepOutcome
from marin.training.step.shards import TrainStep
from marin.training.tokens.building import write_cache
from marin.training.tokens.cache import read_tokens
from tests.adversary.faults import kinds, operator
from tests.adversary.faults.params import EXECUTION, PARAMS

LENGTH, STEPS, DRAWN = 4, 24, 12
"""Train steps of a segment, of the whole training, and among which a fault is drawn: three segments are left to stop it in."""
PAUSE = "BENCH_PAUSE"
"""The variable that says how many seconds a train step takes longer than it would: so that a segment takes as long as one of a
larger model, for a follower that has a core. On a machine that others use, it has less of one, and needs more."""
TOLD = "told.jsonl"
"""The bench's own account of what a training appended: the log itself may be damaged."""
BEFORE = ("corpus", "tokenizer", "tokens")


def recipe() -> Recipe:
    """What the operator says is trained."""
    return from_mapping({**PARAMS, "trainer": {**PARAMS["trainer"], "num_steps": STEPS}}, where="fault bench")


@dataclass
class Fault:
    """What is done, and from which train step on the record is another than an honest one; and where in this process it is
    done. ``upstream``: steps before the training that make something else; ``since``: the training goes on from there in
    another process, under the compiler flag ``flag``."""

    what: str
    step: int
    upstream: dict[str, Callable[[Task], StepResult]] = field(default_factory=dict)
    tamper: Callable[[int, TrainState, TrainState], TrainState | None] | None = None
    batch: Callable[[int, Callable[[int], Batch], Training], Batch] | None = None
    saved: Callable[[int, TrainState], TrainState | None] | None = None
    recorded: Callable[[Root, str, dict[str, Any]], dict[str, Any]] | None = None
    then: Callable[[Root, str, Mapping[str, Any]], None] | None = None
    recipe: Recipe | None = None
    since: int | None = None
    flag: str = ""


def _flipped(rng: random.Random, group: str, name: str) -> Fault:
    """One bit in memory after a train step. Exponents move by at most eight bits: a run that leaves the numbers stops by
    itself."""
    number, choice, place, bit = rng.randrange(DRAWN), rng.random(), rng.random(), rng.choice([*range(26), 31])

    def tamper(at: int, before: TrainState, after: TrainState) -> TrainState | None:
        if at != number:
            return None
        found = {
            path: np.asarray(value)
            for path, value in leaves(after)
            if path == group
            or (path.startswith(group) and np.asarray(value).dtype.kind == "f" and np.asarray(value).ndim)
        }
        path = sorted(found)[int(choice * len(found))]
        return operator.edited(after, path, int(place * max(1, found[path].size)), bit)

    return Fault(f"bit {bit} of a {name} in train step {number}", number, tamper=tamper)


def _token(rng: random.Random, within: int) -> Fault:
    if within % 2:
        place, bit = rng.random(), rng.randrange(8)

        def run(task: Task) -> StepResult:
            result = PIPELINE.step("tokens").run(task)
            cache = task.out / "train"
            stream, offsets = read_tokens(cache)
            stream[int(place * len(stream))] ^= 1 << bit
            shutil.rmtree(cache)
            write_cache(cache, iter(stream[a:b] for a, b in pairwise(offsets.tolist())))
            digest, size = tokens_content(task.out)
            return replace(result, digest=digest, size=size)

        return Fault("a token of the token cache", 0, upstream={"tokens": run})
    number, row, column, bit = rng.randrange(DRAWN), rng.randrange(4), rng.randrange(16), rng.randrange(8)

    def batch(at: int, honest: Callable[[int], Batch], training: Training) -> Batch:
        found = honest(at)
        if at != number:
            return found
        other = int(np.asarray(found.tokens)[row, column]) ^ 1 << bit
        return operator.with_token(found, row, column, other, training)

    return Fault(f"bit {bit} of token {column} of sequence {row} in train step {number}", number, batch=batch)


def _document(rng: random.Random) -> Fault:
    place = rng.random()

    def run(task: Task) -> StepResult:
        result = PIPELINE.step("corpus").run(task)
        path = task.out / "train.jsonl"
        lines = path.read_text("utf-8").splitlines()
        at = int(place * len(lines))
        told = json.loads(lines[at])
        first = next(i for i, letter in enumerate(told["text"]) if letter.isascii() and letter.isalpha())
        other = "b" if told["text"][first] != "b" else "d"
        lines[at] = json.dumps(
            told | {"text": told["text"][:first] + other + told["text"][first + 1 :]}, sort_keys=True
        )
        path.write_text("\n".join(lines) + "\n", "utf-8")
        return result

    return Fault("a letter of a document", 0, upstream={"corpus": run})


def _tokenizer(rng: random.Random, within: int) -> Fault:
    place = rng.random()
    if within % 2:
        return Fault("a bit of the stored tokenizer", 0, then=_at_rest(place, events.TRAIN_STARTED, 0, "tokenizer"))

    def run(task: Task) -> StepResult:
        result = PIPELINE.step("tokenizer").run(task)
        path = task.out / "tokenizer.json"
        saved = json.loads(path.read_text("utf-8"))
        merges = saved["model"]["merges"]
        at = int(place * len(merges) / 2)
        merges[at], merges[at + 1] = merges[at + 1], merges[at]
        path.write_text(json.dumps(saved, indent=2, ensure_ascii=False) + "\n", "utf-8")
        return result

    return Fault("two merges exchanged", 0, upstream={"tokenizer": run})


def _event(rng: random.Random, within: int) -> Fault:
    """Even rows: a value of an event that a training records. Odd rows: a bit of the stored log, while it runs."""
    number = rng.randrange(DRAWN // LENGTH) * LENGTH
    if within % 2:
        place, bit = rng.random(), rng.randrange(8)

        def damage(root: Root, kind: str, body: Mapping[str, Any]) -> None:
            if kind == events.TRAIN_SEGMENT and body["start"] == number:
                files = [path for path in sorted((root.local / "log").rglob("*")) if path.is_file()]
                files = [path for path in files if path.stat().st_size and path.name != ".lock"]
                path = files[int(place * len(files))]
                data = bytearray(path.read_bytes())
                written = [
                    at for at, byte in enumerate(data) if byte
                ]  # between records a journal has room, which says nothing
                data[written[int(place * len(written))]] ^= 1 << bit
                _replaced(path, bytes(data))

        return Fault(f"a bit of the stored log after train step {number + LENGTH - 1}", number, then=damage)
    kind = (events.TRAIN_SEGMENT, events.CHECKPOINT_SAVED, events.TRAIN_STARTED, events.TRAIN_SEGMENT)[within // 2 % 4]
    names = [name for name in kinds.PROVEN[kind] if name != "size" or kind == events.CHECKPOINT_SAVED]
    name, place = rng.choice(names), rng.random()

    def recorded(root: Root, found: str, body: dict[str, Any]) -> dict[str, Any]:
        at = {events.TRAIN_SEGMENT: "start", events.CHECKPOINT_SAVED: "step"}.get(found)
        if found != kind or (at is not None and body[at] != number + (LENGTH if at == "step" else 0)):
            return body
        value = body[name]
        if isinstance(value, list):
            changed = int(place * len(value))
            other = kinds._altered(rng, value[changed], root, (name, changed))
            return body | {name: [other if i == changed else one for i, one in enumerate(value)]}
        return body | {name: kinds._altered(rng, value, root, (name,))}

    return Fault(f"{name} of {kind}", 0 if kind == events.TRAIN_STARTED else number, recorded=recorded)


def _checkpoint(rng: random.Random, within: int) -> Fault:
    number, choice, place, bit = LENGTH * rng.randrange(1, 4), rng.random(), rng.random(), rng.randrange(26)
    if within % 2:
        what = f"a bit of the stored training checkpoint of step {number}"
        return Fault(what, number - LENGTH, then=_at_rest(place, events.CHECKPOINT_SAVED, number, ""))

    def saved(at: int, state: TrainState) -> TrainState | None:
        if at != number:
            return None
        found = [path for path, value in leaves(state) if path.startswith("model/") and np.asarray(value).ndim]
        path = found[int(choice * len(found))]
        return operator.edited(state, path, int(place * np.asarray(dict(leaves(state))[path]).size), bit)

    return Fault(f"another state stored after train step {number - 1}", number - LENGTH, saved=saved)


def _recipe(rng: random.Random) -> Fault:
    """Another recipe than the recorded one executed; what only evaluates says nothing while one trains."""
    section, name, value = rng.choice([change for change in kinds.CHANGES if change[0] != "evaluation"])
    changed = kinds._changed(recipe(), section, name, value)
    what = f"executed with {section}.{name} {value}".replace(" .", " ")
    if section not in ("dataset", "tokenizer"):
        return Fault(what, 0, recipe=changed)
    step = {"dataset": "corpus", "tokenizer": "tokenizer"}[section]
    return Fault(what, 0, upstream={step: lambda task: PIPELINE.step(step).run(replace(task, recipe=changed))})


def _dropped(rng: random.Random, within: int) -> Fault:
    number = rng.randrange(DRAWN)
    if within % 3 == 0:
        return Fault(
            f"the batch of train step {number} passed over",
            number,
            batch=lambda at, honest, _: honest(at if at < number else at + 1),
        )
    if within % 3 == 1:
        return Fault(
            f"the update of train step {number} not made",
            number,
            tamper=lambda at, before, after: operator.unmoved(before, after) if at == number else None,
        )

    def cut(values: list[Any], at: int) -> list[Any]:
        return [one for i, one in enumerate(values) if i != at]

    return Fault(f"the record of train step {number} left out", number, recorded=_in_segment(number, cut))


def _swapped(rng: random.Random, within: int) -> Fault:
    if within % 2 == 0:
        number = rng.randrange(DRAWN - 1)
        other = {number: number + 1, number + 1: number}
        return Fault(
            f"train steps {number} and {number + 1} executed in the other order",
            number,
            batch=lambda at, honest, _: honest(other.get(at, at)),
        )
    number = LENGTH * rng.randrange(DRAWN // LENGTH) + rng.randrange(LENGTH - 1)

    def swap(values: list[Any], at: int) -> list[Any]:
        values[at], values[at + 1] = values[at + 1], values[at]
        return values

    return Fault(
        f"the records of train steps {number} and {number + 1} exchanged", number, recorded=_in_segment(number, swap)
    )


def _loss(rng: random.Random) -> Fault:
    number, bit = rng.randrange(DRAWN), rng.randrange(23)

    def forge(values: list[Any], at: int) -> list[Any]:
        values[at] = operator.forged_loss(values[at], bit)
        return values

    return Fault(
        f"bit {bit} of the loss of train step {number}", number, recorded=_in_segment(number, forge, ("losses",))
    )


def _flag(rng: random.Random, flag: str) -> Fault:
    since = LENGTH * rng.randrange(1, 3)
    return Fault(f"{flag} from train step {since} on", since, flag=flag, since=since)


def _in_segment(
    number: int,
    change: Callable[[list[Any], int], list[Any]],
    names: Sequence[str] = ("losses", "batches", "fingerprints"),
) -> Callable[[Root, str, dict[str, Any]], dict[str, Any]]:
    def recorded(root: Root, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        if kind != events.TRAIN_SEGMENT or not body["start"] <= number < body["end"]:
            return body
        return body | {name: change(list(body[name]), number - body["start"]) for name in names}

    return recorded


def _at_rest(place: float, kind: str, step: int, output: str) -> Callable[[Root, str, Mapping[str, Any]], None]:
    """A bit of a stored file flips when an event of this kind has been recorded."""

    def damage(root: Root, found: str, body: Mapping[str, Any]) -> None:
        if found != kind or (kind == events.CHECKPOINT_SAVED and body["step"] != step):
            return
        store = root.store()
        tree = body["artifact"] if not output else _output(root, output)
        files = sorted(entry.digest for entry in store.manifest(tree).entries if entry.size)
        name = files[int(place * len(files))].removeprefix("sha256:")
        folder = root.local / "store"
        (path,) = (
            path
            for path in folder.rglob("*")
            if path.is_file() and "".join(path.relative_to(folder).parts).endswith(name)
        )
        data = bytearray(path.read_bytes())
        data[int(place * len(data))] ^= 1
        _replaced(path, bytes(data))

    return damage


def _output(root: Root, step: str) -> str:
    made = [event.body for _, event in root.reader().events() if event.type == events.STEP_COMPLETED]
    return next(str(body["output"]["artifact"]) for body in made if body["step"] == step)


def _replaced(path: Path, data: bytes) -> None:
    path.parent.chmod(0o755)
    path.unlink()
    path.write_bytes(data)


def drawn(kind: str, within: int, seed: int) -> Fault:
    """The fault of one row; the honest one for a clean run."""
    rng = random.Random(f"live:{seed}:{kind}:{within}")
    draws: Mapping[str, Callable[[], Fault]] = {
        "parameter": lambda: _flipped(rng, "model/", "parameter"),
        "optimizer moment": lambda: _flipped(rng, "moments/inner_state/0/", "moment"),
        "key": lambda: _flipped(rng, "key", "key"),
        "data cursor": lambda: _flipped(rng, "cursor", "cursor"),
        "training token": lambda: _token(rng, within),
        "document": lambda: _document(rng),
        "tokenizer": lambda: _tokenizer(rng, within),
        "event": lambda: _event(rng, within),
        "stored checkpoint": lambda: _checkpoint(rng, within),
        "recipe field": lambda: _recipe(rng),
        "XLA flag": lambda: _flag(rng, kinds.FLAGS[within % 2]),
        "dropped step": lambda: _dropped(rng, within),
        "swapped steps": lambda: _swapped(rng, within),
        "forged loss": lambda: _loss(rng),
    }
    return draws[kind]() if kind in draws else Fault("nothing", 0)


# -- the process that trains


def prepare(folder: Path, fault: Fault) -> None:
    """The steps before the training, in a new root below ``folder``."""
    root = create_root(str(folder / ".marin"), origin="marin.local/fault-bench")
    plan = _plan(fault)
    for name in BEFORE:
        run_stage(name, plan=plan, recipe=recipe(), root=root, project=None, execution=EXECUTION)


def train(folder: Path, fault: Fault, *, pause_at: int | None = None) -> None:
    """The training, with the fault in it."""
    root = open_root(str(folder / ".marin"))
    execution = msgspec.structs.replace(EXECUTION, pause_at=pause_at)
    if pause_at is None or not fault.flag:
        _lie(fault)
    else:
        _lie(Fault("nothing", 0))
    run_stage("train", plan=_plan(fault), recipe=recipe(), root=root, project=None, execution=execution)


def _plan(fault: Fault) -> Plan:
    def other(step: StepDefinition) -> StepDefinition:
        if step.name in fault.upstream:
            return replace(step, run=fault.upstream[step.name])
        if step.name == "train" and fault.recipe is not None:
            changed = fault.recipe
            return replace(step, run=lambda task: step.run(replace(task, recipe=changed)))
        return step

    return replace(PIPELINE, steps=tuple(map(other, PIPELINE.steps)))


def _lie(fault: Fault) -> None:
    """Put the fault into this process, and stretch its train steps."""
    at = [0]
    honest_batch, honest_run, honest_save, honest_append = Training._batch, TrainStep.run, Saver.save, Root.append

    def batch(self: Training, number: int) -> Batch:
        at[0] = number
        if fault.batch is None:
            return honest_batch(self, number)
        return fault.batch(number, lambda other: honest_batch(self, other), self)

    def run(self: TrainStep, state: Any, *given: Any, **named: Any) -> Any:
        time.sleep(float(os.environ.get(PAUSE, "1.2")))
        before = self.collect(state) if fault.tamper is not None else None
        after, outcome = honest_run(self, state, *given, **named)
        other = fault.tamper(at[0], before, self.collect(after)) if fault.tamper is not None and before else None
        if other is None:
            return after, outcome
        return self.place(other), StepOutcome(outcome.loss, outcome.grad_norm, operator.prints_of(other))

    def save(self: Saver, state: Any, done: Any) -> None:
        step = STEP[0]
        other = fault.saved(at[0] + 1, step.collect(state)) if fault.saved is not None and step is not None else None
        honest_save(self, state if other is None else step.place(other), done)

    def append(self: Root, drafts: Sequence[Draft]) -> Any:
        if fault.recorded is not None:
            drafts = [replace(one, body=fault.recorded(self, one.type, dict(one.body))) for one in drafts]
        receipts = honest_append(self, drafts)
        for one in drafts:
            with (self.local.parent / TOLD).open("a", encoding="utf-8") as file:
                file.write(json.dumps([one.type, dict(one.body)]) + "\n")
            if fault.then is not None:
                fault.then(self, one.type, one.body)
        return receipts

    STEP: list[Any] = [None]
    made = TrainStep.__init__

    def begin(self: TrainStep, *given: Any, **named: Any) -> None:
        made(self, *given, **named)
        STEP[0] = self

    Training._batch, TrainStep.run, Saver.save, Root.append = batch, run, save, append  # type: ignore[method-assign]
    TrainStep.__init__ = begin  # type: ignore[method-assign]


def main(folder: Path, kind: str, within: int, seed: int) -> None:
    """The second process of a training that goes on under another compiler flag."""
    from marin.pipeline import train as stage
    from marin.training.runtime import canary
    from marin.training.step import known

    vars(stage)["apply"] = lambda arithmetic, execution: None  # another contract is in force
    canary.check = known.check = lambda arithmetic: None  # all would refuse, and rightly
    TrainStep.foreign_products = lambda self: []  # type: ignore[method-assign]
    train(folder, drawn(kind, within, seed))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
