"""A small run under profile exact, and copies of it in which one bit of train step 1 is another; in a process of its own.

    forged.py make FOLDER        forge three copies of the run that lies below FOLDER/honest: a bit of a weight, of a moment
                                 and of a token; a JSON line for each, and one for the run itself
    forged.py judge FOLDER       execute step 1 of all four in NumPy and whole numbers (marin/exact/reference.py); for each a
                                 JSON line that says in what the record differs from it

The profile's settings are in the environment (marin/process/arithmetic.py). Whoever changed the bit recorded what came
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

from bench.faults import operator
from bench.faults.operator import Claims
from bench.faults.world import World
from marin.exact import reference
from marin.recipe.schema import Execution, Recipe
from marin.record.root import open_root
from marin.training.data import Batch, batches
from marin.training.exact_step import gradient_of, update_of
from marin.training.model import optimizer, vocabulary_size
from marin.training.slices import Layout
from marin.training.state import TrainState, arrays_of, leaves, load
from marin.training.step import mesh_of

STEP = 1
TENSORS = {"weight": "model/", "moment": "moments/inner_state/0/"}
BIT = 3
"""Of the fraction: small enough that training goes on."""


def forge(world: World, what: str) -> dict[str, Any]:
    """A copy of the run in which one bit of ``what`` is another, and trained on."""
    root, claims = world.fork(), Claims()
    tensor = ""
    if what in TENSORS:
        floats = [name for name, x in leaves(world.state(STEP)) if name.startswith(TENSORS[what]) and np.ndim(x) > 1]
        tensor = floats[0]

    def tamper(at: int, after: TrainState) -> TrainState | None:
        return operator.edited(after, tensor, 5, BIT) if tensor and at == STEP else None

    def feed(at: int, honest: Callable[[int], Batch]) -> Batch:
        batch = honest(at)
        if tensor or at != STEP:
            return batch
        token = int(np.asarray(batch.tokens)[1, 2]) ^ 1
        return operator.with_token(batch, 1, 2, token, training)

    from marin.verify.jax.replay import prepared

    tokens, tokenizer = world.outputs["tokens"], world.outputs["tokenizer"]
    training = prepared(world.recipe, tokens, tokenizer, Execution())
    operator.train(world, root, claims, tokens, tokenizer, since=STEP, tamper=tamper, feed=feed)
    world.publish(root, operator.rebuild(world, claims))
    return {"what": what, "root": root.location, "tensor": tensor}


def judge(world: World, location: str) -> list[str]:
    """What of the recorded train step is not what the reference makes of the state before it and the data."""
    root = open_root(location)
    segment = next(fact.body for fact in world.view(root).segments if fact.body.start == STEP)
    assert segment.end == STEP + 1, "one step is judged"
    before, after = (stored(world, root, number) for number in (STEP, STEP + 1))
    made = step(world.recipe, before, next(batches(world.recipe, world.outputs["tokens"] / "train", mesh_of(1), STEP)))
    found = dict(zip(list(arrays_of(before))[3:], made[0], strict=True))  # step, cursor and key are counted on the host
    differing = [name for name, x in arrays_of(after).items() if name in found and found[name].tobytes() != bits(x)]
    return differing + ["loss"] * (float(made[1]).hex() != segment.losses[0])


def bits(x: Any) -> bytes:
    """The bytes of an array."""
    return np.asarray(x).tobytes()


def stored(world: World, root: Any, number: int) -> TrainState:
    """The recorded state before train step ``number``, proven by its digest."""
    saved = next(fact.body for fact in world.view(root).checkpoints if fact.body.step == number)
    folder = world.folder / "judged"
    shutil.rmtree(folder, ignore_errors=True)
    root.store().checkout(saved.artifact, folder)
    state, _ = load(folder, world.recipe, vocabulary_size(world.outputs["tokenizer"]), saved.state, where=str(number))
    return state


def step(recipe: Recipe, before: TrainState, batch: Batch) -> tuple[list[np.ndarray], np.ndarray]:
    """Parameters and moments after a train step, and its loss, without a compiler."""
    layout = Layout(before, optimizer(recipe), 1)
    whole = [np.asarray(x) for x in arrays_of(before).values()][3:]
    count = len(layout.params)
    given = [*whole[:count], np.asarray(batch.tokens), np.asarray(batch.weights)]
    *grads, square, loss, weight = reference.run(gradient_of(recipe, layout).program, given)
    flat = [x.reshape(-1) if x.ndim else x for x in (*whole, *grads)]
    *after, mean, _ = reference.run(update_of(recipe, layout).program, [*flat, square, loss, weight])
    return [made.reshape(x.shape) for made, x in zip(after, whole, strict=True)], mean


def made(folder: Path) -> Iterator[dict[str, Any]]:
    """The run, and what is forged of it."""
    world = World.of(folder)
    yield {"what": "nothing", "root": world.root.location, "run": world.run, "tensor": ""}
    yield from map(partial(forge, world), (*TENSORS, "token"))


def judged(folder: Path) -> Iterator[dict[str, Any]]:
    """What the reference says of each."""
    world = World.of(folder)
    for place in (folder / "honest" / ".marin", *sorted((folder / "forks").glob("*/.marin"))):
        yield {"root": str(place), "differs": judge(world, str(place))}


if __name__ == "__main__":
    task, where = {"make": made, "judge": judged}[sys.argv[1]], Path(sys.argv[2])
    for line in task(where):
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
