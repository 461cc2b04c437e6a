"""A run under profile exact, and copies of it in which one bit of a train step is another; in a process of its own.

    forged.py make FOLDER STEP   forge three copies of the run that lies below FOLDER/honest: a bit of a weight, of a moment
                                 and of a token at STEP, with which a segment begins; a JSON line for each, and one for the
                                 run itself
    forged.py judge FOLDER STEP  execute that segment of all four in NumPy and whole numbers
    (marin/plugins/exact/reference.py); for
                                 each a JSON line that says in what the record differs from it

The profile's settings are in the environment (marin/process/arithmetic.py). Anyone who changed the bit recorded what came
out truly, and signed it: only executing shows it.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from marin.plugins.exact import reference
from marin.plugins.exact.step import gradient_of, update_of
from marin.recipe.schema import Execution, Recipe
from marin.record.root import open_root
from marin.training.checkpoints.whole import load
from marin.training.data import Batch, Batches
from marin.training.model import vocabulary_size
from marin.training.optimizers.rule import optimizer
from marin.training.state import TrainState, arrays_of, leaves
from marin.training.step.contract import mesh_of
from marin.training.step.slices import Layout
from tests.adversary.faults import operator
from tests.adversary.faults.operator import Claims
from tests.adversary.faults.world import World

TENSORS = {"weight": "model/", "moment": "moments/inner_state/0/"}
COUNTED = 3
"""Step, cursor and key come first in a state and are counted on the host."""
BIT = 3
"""Of the fraction: small enough that training goes on."""


def forge(world: World, number: int, what: str) -> dict[str, Any]:
    """A copy of the run in which one bit of ``what`` is another at train step ``number``, and trained on."""
    root, claims = world.fork(), Claims()
    tensor = ""
    if what in TENSORS:
        floats = [name for name, x in leaves(world.state(number)) if name.startswith(TENSORS[what]) and np.ndim(x) > 1]
        tensor = floats[0]

    def tamper(at: int, after: TrainState) -> TrainState | None:
        return operator.edited(after, tensor, 5, BIT) if tensor and at == number else None

    def feed(at: int, honest: Callable[[int], Batch]) -> Batch:
        batch = honest(at)
        if tensor or at != number:
            return batch
        token = int(np.asarray(batch.tokens)[1, 2]) ^ 1
        return operator.with_token(batch, 1, 2, token, training)

    from marin.verify.jax.replay import prepared

    tokens, tokenizer = world.outputs["tokens"], world.outputs["tokenizer"]
    training = prepared(world.recipe, tokens, tokenizer, Execution())
    operator.train(world, root, claims, tokens, tokenizer, since=number, tamper=tamper, feed=feed)
    world.publish(root, operator.rebuild(world, claims))
    return {"what": what, "root": root.location, "tensor": tensor}


def judge(world: World, number: int, location: str) -> list[str]:
    """What of the recorded segment is not what the reference makes of the state before it and the data: losses of train
    steps, tensors of the state after it."""
    root = open_root(location)
    segment = next(fact.body for fact in world.view(root).segments if fact.body.start == number)
    before, after = (stored(world, root, at) for at in (number, segment.end))
    whole = [np.asarray(x) for x in list(arrays_of(before).values())[COUNTED:]]
    differing = []
    with Batches(world.recipe, world.outputs["tokens"] / "train", mesh_of(1), number) as data:
        for at, recorded in enumerate(segment.losses, number):
            whole, loss = step(world.recipe, Layout(before, optimizer(world.recipe), 1), whole, next(data))
            differing += [f"loss {at}"] * (float(loss).hex() != recorded)
    names = list(arrays_of(before))[COUNTED:]
    found = dict(zip(names, whole, strict=True))
    return differing + [name for name in names if found[name].tobytes() != bits(arrays_of(after)[name])]


def bits(x: Any) -> bytes:
    """The bytes of an array."""
    return np.asarray(x).tobytes()


def stored(world: World, root: Any, number: int) -> TrainState:
    """The recorded state before train step ``number``, proven by its digest."""
    saved = next(fact.body for fact in world.view(root).checkpoints if fact.body.step == number)
    folder = world.folder / "judged"
    shutil.rmtree(folder, ignore_errors=True)
    root.store().checkout(saved.artifact, folder)
    state, _ = load(
        folder,
        world.recipe,
        vocabulary_size(world.outputs["tokenizer"], world.recipe.model),
        saved.state,
        where=str(number),
    )
    return state


def step(recipe: Recipe, layout: Layout, whole: list[np.ndarray], batch: Batch) -> tuple[list[np.ndarray], np.ndarray]:
    """Parameters and moments after a train step on ``whole``, those before it, and its loss, without a compiler."""
    count = len(layout.params)
    given = [*whole[:count], np.asarray(batch.tokens), np.asarray(batch.weights)]
    *grads, square, loss, weight = reference.run(gradient_of(recipe, layout).program, given)
    flat = [x.reshape(-1) if x.ndim else x for x in (*whole, *grads)]
    *after, mean, _ = reference.run(update_of(recipe, layout).program, [*flat, square, loss, weight])
    return [made.reshape(x.shape) for made, x in zip(after, whole, strict=True)], mean


def made(folder: Path, number: int) -> Iterator[dict[str, Any]]:
    """The run, and what is forged of it."""
    world = World.of(folder)
    yield {"what": "nothing", "root": world.root.location, "run": world.run, "tensor": ""}
    yield from map(partial(forge, world, number), (*TENSORS, "token"))


def judged(folder: Path, number: int) -> Iterator[dict[str, Any]]:
    """What the reference says of each."""
    world = World.of(folder)
    for place in (folder / "honest" / ".marin", *sorted((folder / "forks").glob("*/.marin"))):
        yield {"root": str(place), "differs": judge(world, number, str(place))}


if __name__ == "__main__":
    task = {"make": made, "judge": judged}[sys.argv[1]]
    for line in task(Path(sys.argv[2]), int(sys.argv[3])):
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
