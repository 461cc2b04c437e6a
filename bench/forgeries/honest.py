"""The honest runs that forgeries are made from, executed once: a whole one, another that takes most of its results over,
and a phase that goes on from its last state. They are those of the fault bench, so they are tiny.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from bench.faults.params import EXECUTION, recipe
from bench.faults.world import World
from bench.forgeries.workshop import Base
from marin.execution import phases
from marin.execution.executor import run_stage
from marin.history.runs import load, run_ids
from marin.pipeline.stages import PIPELINE
from marin.recipe.schema import Execution, Recipe
from marin.record.root import Root, open_root


def make(folder: Path) -> Base:
    """Execute them in ``folder``, or take those that lie there already. The caller has applied the arithmetic
    contract."""
    os.environ["MARIN_KEY"] = str(folder / "operator.key")
    location = folder / "honest" / ".marin"
    if not (location / "vkey").exists():
        World.make(folder)
    root = open_root(str(location))
    names = run_ids(root.history())
    if len(names) == 1:
        other = recipe().evaluation
        evaluated = msgspec.structs.replace(recipe(), evaluation=msgspec.structs.replace(other, max_sequences=4))
        _executed(root, evaluated, EXECUTION)
        shorter = msgspec.structs.replace(recipe().trainer, num_steps=4)
        later = _phase(root, names[0], msgspec.structs.replace(recipe(), trainer=shorter))
        _executed(root, later, msgspec.structs.replace(EXECUTION, continues=names[0]))
        names = run_ids(root.history())
    return Base(folder, location, folder / "operator.key", *names[:3])


def _phase(root: Root, run: str, changed: Recipe) -> Recipe:
    """The recipe of a phase that continues ``run`` from a state before its end, so that not all of it counts."""
    view = load(root.history(), run)
    saved = view.checkpoints[1].body
    recipe_of = phases.successor(view.recipe, changed, at=saved.step)
    assert recipe_of.phase is not None
    begins = msgspec.structs.replace(recipe_of.phase, state=saved.state, tokenizer=view.output("tokenizer").digest)
    return msgspec.structs.replace(recipe_of, phase=begins)


def _executed(root: Root, chosen: Recipe, execution: Execution) -> None:
    project = Path(root.location).parent
    for step in PIPELINE.steps:
        run_stage(step.name, plan=PIPELINE, recipe=chosen, root=root, project=project, execution=execution)
