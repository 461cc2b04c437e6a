"""Training under another compiler flag than the recipe has, in a process of its own: the part of the operator that a
process under the honest flags can not play. ``python -m tests.adversary.faults.flagged FLAG WORLD ROOT RUN SINCE TARGET``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from marin.process.arithmetic import APPLIED, settings
from tests.adversary.faults.params import EXECUTION, recipe


def main(flag: str, folder: str, location: str, run: str, since: str, target: str) -> None:
    """Train from the honest state before ``since``, and write the claims."""
    from marin.record.root import open_root
    from marin.training.runtime import canary
    from marin.training.step import known
    from marin.training.step import shards as step
    from tests.adversary.faults import operator  # imports jax: the variables are set by now
    from tests.adversary.faults.kinds import Flagged
    from tests.adversary.faults.operator import Claims
    from tests.adversary.faults.world import World

    canary.check = known.check = lambda arithmetic: None  # all would refuse, and rightly
    step.TrainStep.foreign_products = lambda self: []  # type: ignore[method-assign]
    world = World(
        Path(folder), recipe(), run, (), {name: Path(folder) / "outputs" / name for name in ("tokens", "tokenizer")}
    )
    claims = Claims()
    operator.train(
        world, open_root(location), claims, world.outputs["tokens"], world.outputs["tokenizer"], since=int(since)
    )
    made = claims.made["train"]
    flagged = Flagged(
        {str(k): v for k, v in claims.segments.items()},
        {str(k): v for k, v in claims.checkpoints.items()},
        made.output,
        dict(made.metrics),
        dict(made.tables),
    )
    (Path(target) / "claims.json").write_bytes(msgspec.json.encode(flagged))


def in_force(flag: str) -> dict[str, str]:
    """The recipe's variables with one flag in the place of the recipe's own of that name, told as if they were
    applied."""
    values = settings(recipe().arithmetic, EXECUTION)
    name = flag.partition("=")[0]
    kept = [part for part in values["XLA_FLAGS"].split() if part.partition("=")[0] != name]
    values["XLA_FLAGS"] = " ".join([*kept, flag])
    return {**values, APPLIED: values["XLA_FLAGS"]}


if __name__ == "__main__":
    os.environ.update(in_force(sys.argv[1]))
    main(*sys.argv[1:])
