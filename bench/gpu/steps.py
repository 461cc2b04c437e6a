"""Train steps of one recipe on the device that jax finds, in a process of its own: the bits they leave and how long they take.

    python -m bench.gpu.steps ours|stock MODEL... --steps N [--save FILE] [--resume FILE] [--wait]

MODEL are words of `marin train` (`model=25m profile=gpu`). `ours` is the recipe's own step: the digest of the whole state
after half of the steps and after all of them; with `--save` the state at half the way is written, with `--resume` it is
read, in another process than wrote it, and only the second half is executed. `stock` is Levanter's Trainer as it comes,
same model, batch and precision. One JSON object to stdout; times are milliseconds by the clock. With `--wait` a line
`ready` comes before it once two steps are done, and the rest begins when a line is read: several can make ready at once and
step alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.training.train_step import levanters, numbers
from marin.process.arithmetic import apply
from marin.recipe.composition import compose
from marin.recipe.schema import Execution, Recipe

VOCABULARY, SMALL = 8192, 512
WARM = 2


@dataclass(frozen=True)
class Asked:
    """``words`` name the recipe, ``steps`` is even."""

    words: tuple[str, ...]
    steps: int
    save: Path | None
    resume: Path | None
    wait: bool

    def turn(self, number: int) -> None:
        """Called before each step: waits before the first that is timed."""
        if self.wait and number == WARM:
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            sys.stdin.readline()

    @property
    def recipe(self) -> Recipe:
        """What the words name."""
        return compose(self.words).recipe

    @property
    def vocab_size(self) -> int:
        """Small for the smallest model."""
        return SMALL if "model=nano" in self.words else VOCABULARY


def ours(asked: Asked) -> dict[str, Any]:
    """The recipe's own step, from its initial state or a state that was saved."""
    recipe = asked.recipe
    apply(recipe.arithmetic, Execution())
    began = time.perf_counter()
    import jax
    import numpy as np

    from marin.training.checkpoints.digesting import describe
    from marin.training.initial import initial_slices
    from marin.training.loop import step_of
    from marin.training.runtime import canary
    from marin.training.state import arrays_of, leaves, state_like
    from marin.training.step.contract import mesh_of

    canary.check(recipe.arithmetic)
    train = step_of(recipe, mesh_of(1), state_like(recipe, asked.vocab_size))
    if asked.resume is None:
        state = initial_slices(recipe, asked.vocab_size, train.layout, train.by_slice)
    else:
        like = state_like(recipe, asked.vocab_size)
        with np.load(asked.resume) as found:
            arrays = [found[name] for name, _ in leaves(like)]
        state = train.place(jax.tree.unflatten(jax.tree.structure(like), arrays))
    tokens, weights = (train.batch(values) for values in numbers(recipe, asked.vocab_size))
    half = asked.steps // 2
    digests: dict[str, str] = {}
    milliseconds, losses = [], []
    ready = time.perf_counter() - began
    for number in range(half if asked.resume else 0, asked.steps):
        asked.turn(number)
        if number == half and asked.save:
            np.savez(asked.save, allow_pickle=False, **arrays_of(train.collect(state)))
        started = time.perf_counter()
        state, outcome = train.run(state, tokens, weights)
        jax.block_until_ready((state.params, state.moments))
        milliseconds.append((time.perf_counter() - started) * 1e3)
        losses.append(float(outcome.loss).hex())
        if number + 1 in (half, asked.steps):
            digests[str(number + 1)] = describe(state, train.layout).digest
    return _figures(milliseconds, sum(x.size for x in jax.tree.leaves(train.layout.named)), ready) | {
        "losses": losses,
        "digests": digests,
    }


def stock(asked: Asked) -> dict[str, Any]:
    """Levanter as it comes."""
    began = time.perf_counter()
    step, parameters = levanters(asked.recipe, asked.vocab_size, sharded=False)
    ready = time.perf_counter() - began
    milliseconds = []
    for number in range(asked.steps):
        asked.turn(number)
        milliseconds.append(_timed(step))
    return _figures(milliseconds, parameters, ready)


def _timed(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return (time.perf_counter() - started) * 1e3


def _figures(milliseconds: list[float], parameters: int, ready: float) -> dict[str, Any]:
    import jax

    device = jax.devices()[0]
    return {
        "platform": device.platform,
        "device": device.device_kind,
        "devices": len(jax.devices()),
        "parameters": parameters,
        "seconds until ready": round(ready, 1),
        "milliseconds": [round(each, 2) for each in milliseconds],
        "median": round(statistics.median(milliseconds[WARM:] or milliseconds), 2),
        "peak_bytes": (device.memory_stats() or {}).get("peak_bytes_in_use"),
    }


def main() -> None:
    """Step, and say what came out."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.steps", description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("ours", "stock"))
    parser.add_argument("words", nargs="+")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--wait", action="store_true")
    options = parser.parse_args()
    asked = Asked(tuple(options.words), options.steps, options.save, options.resume, options.wait)
    json.dump({"ours": ours, "stock": stock}[options.what](asked), sys.stdout)


if __name__ == "__main__":
    main()
