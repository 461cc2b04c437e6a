"""One bit of one parameter, flipped in memory during training by an operator who signs what follows from it: for a run
of any recipe. ``python -m tests.adversary.faults.forged FOLDER STEP`` takes the run below FOLDER/honest and prints where the
false copy is.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from marin.history.runs import load, resolve
from marin.process.arithmetic import apply
from marin.record.root import open_root
from tests.adversary.faults.params import EXECUTION


def main(folder: Path, step: int) -> None:
    """Train again from the segment of ``step`` with one bit changed after it, and publish that."""
    honest = open_root(str(folder / "honest" / ".marin"))
    history = honest.history()
    apply(load(history, resolve(history, "latest")).recipe.arithmetic, EXECUTION)

    from marin.training.state import TrainState
    from tests.adversary.faults import operator  # imports jax: the variables are set by now
    from tests.adversary.faults.operator import Claims
    from tests.adversary.faults.world import World

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
