"""One bit of one parameter, flipped in memory during training by an operator who signs what follows from it: for a run
of any recipe. ``python -m bench.faults.forged FOLDER STEP`` takes the run below FOLDER/honest and prints where the
false copy is.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from bench.faults.params import EXECUTION
from marin.history.runs import load, resolve
from marin.process.arithmetic import apply
from marin.record.root import open_root


def main(folder: Path, step: int) -> None:
    """Train again from the segment of ``step`` with one bit changed after it, and publish that."""
    honest = open_root(str(folder / "honest" / ".marin"))
    history = honest.history()
    apply(load(history, resolve(history, "latest")).recipe.arithmetic, EXECUTION)

    from bench.faults import operator  # imports jax: the variables are set by now
    from bench.faults.operator import Claims
    from bench.faults.world import World
    from marin.training.state import TrainState

    world = World.of(folder)
    root, claims = world.fork(), Claims()
    tensor = "model/transformer/layers/stacked/mlp/down_proj/weight"

    def tamper(at: int, after: TrainState) -> TrainState | None:
        return operator.edited(after, tensor, 5, 3) if at == step else None

    since = max(fact.body.start for fact in world.view().segments if fact.body.start <= step)
    operator.train(world, root, claims, world.outputs["tokens"], world.outputs["tokenizer"], since=since, tamper=tamper)
    world.publish(root, operator.rebuild(world, claims))
    sys.stdout.write(json.dumps({"root": root.location, "step": step, "tensor": tensor}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
