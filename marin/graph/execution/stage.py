"""A step of the pipeline as a node of a graph, in a fresh process: exactly what `marin stage` does, without files.

What travels is data: the recipe in the ledger's form, the names of the stages that the variant wants, and which of them
this is. The process brings it to its output in the variant's run: joined or begun, taken over or executed, resumed where an
earlier attempt stopped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import msgspec

from marin.errors import Paused
from marin.execution.executor import run_stage
from marin.execution.plan import Plan
from marin.graph.variants import Variant
from marin.pipeline.stages import PIPELINE
from marin.recipe.schema import Execution, Recipe, from_plain, plain
from marin.record.root import Root, open_root
from marin.runners.jobs import parts_of


def stage_payload(
    root: Root,
    variant: Variant,
    recipe: Recipe,
    stage: str,
    *,
    identity: str,
    force: bool,
    execution: Execution,
    pinned: Mapping[str, int] | None = None,
) -> bytes:
    """What :func:`execute_stage` is given. ``identity`` and ``pinned`` are those of :func:`run_stage`."""
    return json.dumps(
        {
            "root": root.absolute,
            "name": variant.plan.name,
            "stages": [step.name for step in variant.plan.steps],
            "recipe": plain(recipe),
            "stage": stage,
            "identity": identity,
            "force": force,
            "execution": msgspec.to_builtins(execution),
            "pinned": dict(pinned or {}),
        }
    ).encode()


def execute_stage(payload: bytes) -> bytes:
    """A step of the pipeline (:data:`marin.runners.jobs.Function`)."""
    task = json.loads(payload)
    plan = Plan(task["name"], tuple(PIPELINE.step(name) for name in task["stages"]))
    try:
        outcome = run_stage(
            task["stage"],
            plan=plan,
            recipe=from_plain(task["recipe"], where=task["name"]),
            root=open_root(task["root"]),
            project=None,
            execution=msgspec.convert(task["execution"], Execution),
            force=task["force"],
            identity=task["identity"],
            pinned=task["pinned"],
        )
    except Paused as pause:
        return json.dumps({"paused": pause.where, "error": parts_of(pause)}).encode()
    action = "executed" if outcome.action == "executed" else "cached"
    return msgspec.json.encode({"action": action, "result": outcome.result})
