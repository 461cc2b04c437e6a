"""A step of the pipeline in a process of its own, of this machine or of a cluster: what `marin stage` does, without files.

What travels is data: the recipe in the ledger's form, the names of the stages that the variant wants, and which of them
this is. The process brings it to its output in the variant's run: joined or begun, taken over or executed, resumed where an
earlier attempt stopped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import msgspec

from marin.errors import Paused
from marin.execution import tracker
from marin.execution.executor import planned, run_stage
from marin.execution.leases.held import HeldLeases
from marin.execution.leases.lease import Claimant
from marin.execution.leases.step import Grant, StepLease
from marin.execution.plan import Plan
from marin.graph.variants import Variant
from marin.pipeline.stages import PIPELINE
from marin.process.interruption import Interruption
from marin.recipe.schema import Execution, Recipe, from_plain, plain
from marin.record.root import Root, open_root
from marin.runners.engines import open_jobs
from marin.runners.jobs import Job, parts_of
from marin.runners.reservation import reservation


def stage_payload(
    root: Root,
    variant: Variant,
    recipe: Recipe,
    stage: str,
    *,
    identity: str,
    grant: Grant,
    force: bool,
    execution: Execution,
    pinned: Mapping[str, int] | None = None,
) -> bytes:
    """What :func:`execute_stage` is given. ``identity``, ``grant`` and ``pinned`` are those of :func:`run_stage`."""
    return json.dumps(
        {
            "root": root.absolute,
            "name": variant.plan.name,
            "stages": [step.name for step in variant.plan.steps],
            "overridden": dict(variant.plan.pinned),
            "recipe": plain(recipe),
            "stage": stage,
            "identity": identity,
            "grant": [grant.executor, grant.step],
            "force": force,
            "execution": msgspec.to_builtins(execution),
            "pinned": dict(pinned or {}),
        }
    ).encode()


def stage_on_ray(
    name: str, *, plan: Plan, recipe: Recipe, root: Root, project: Path | None, execution: Execution, force: bool
) -> bool:
    """Have the step executed by a process of a Ray that reserves what the step computes with, unless it has its output:
    whether it was. :func:`run_stage` finds the result then, and writes the files.

    Raises:
        LedgerError: what the step refused; ``Unavailable`` where the cluster has no such machine.
    """
    held = HeldLeases(root, Claimant.of_process())
    ask = partial(planned, name, plan=plan, recipe=recipe, root=root, project=project)

    def is_missing(changed: bool) -> bool:
        return not changed or force or ask() == (identity, None)

    with ExitStack() as taken:
        begun, identity = False, ""
        while not begun:  # before anything is reserved: who waits for a lease must not hold what its holder needs
            identity, result = ask()
            if result is not None and not force:
                return False
            lease = StepLease(root, held, identity, name)
            with Interruption() as interruption, interruption.shield():
                if begun := lease.begin([], is_missing):
                    taken.callback(lease.give_back)
            if not begun:
                lease.wait()
        definition, here = plan.step(name), msgspec.structs.replace(execution, runner="local", processes=1)
        payload = stage_payload(
            root,
            Variant(plan, recipe),
            recipe,
            name,
            identity=identity,
            grant=Grant(held.claimant.executor, identity),
            force=force,
            execution=here,
        )
        reserved = reservation(definition, recipe, execution, cpus=recipe.arithmetic.threads)
        job = Job(name, execute_stage, payload, reserved, environment=tracker.environment())
        with open_jobs("ray", address=execution.address, root=root.absolute) as jobs:
            jobs.submit(job).result()
    return True


def execute_stage(payload: bytes) -> bytes:
    """A step of the pipeline (:data:`marin.runners.jobs.Function`)."""
    task = json.loads(payload)
    plan = Plan(task["name"], tuple(PIPELINE.step(name) for name in task["stages"]), task["overridden"])
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
            grant=Grant(*task["grant"]),
            pinned=task["pinned"],
        )
    except Paused as pause:
        return json.dumps({"paused": pause.where, "error": parts_of(pause)}).encode()
    action = "executed" if outcome.action == "executed" else "cached"
    return msgspec.json.encode({"action": action, "result": outcome.result})
