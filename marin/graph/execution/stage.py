"""A step of the pipeline in a process of its own, of this machine or of a cluster: what `marin stage` does, without files.

What travels is data: the recipe in the ledger's form, the names of the stages that the variant wants, and which of them
this is. The process brings it to its output in the variant's run: joined or begun, reused or executed, resumed where an
earlier attempt stopped.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from marin.errors import Paused
from marin.execution import tracker
from marin.execution.executor import StageOutcome, plan_step, run_stage
from marin.execution.leases.granted import Grant
from marin.execution.leases.held import HeldLeases
from marin.execution.leases.lease import Claimant
from marin.execution.leases.step import StepLease
from marin.execution.plan import Plan
from marin.graph.execution.work import by_bytes
from marin.graph.results import results_at
from marin.graph.variants import Variant
from marin.kinds.families.step import DATA_STEPS
from marin.pipeline.stages import PIPELINE
from marin.process.arithmetic import apply
from marin.process.waiting import waiting
from marin.recipe.schema import Execution, Recipe, from_plain, plain
from marin.record.events import Json
from marin.record.root import Root, open_root
from marin.runners.engines import open_jobs
from marin.runners.jobs import Job, parts_of
from marin.runners.reservation import reservation
from marin.work.placed import encode


class StageTask(msgspec.Struct, frozen=True):
    """The stage ``stage`` of a plan of these ``stages``; ``recipe`` is plain. ``identity``, ``grant`` and ``pinned`` are those of
    :func:`run_stage`."""

    root: str
    name: str
    stages: list[str]
    overridden: dict[str, str]
    recipe: Json
    stage: str
    identity: str
    grant: Grant
    force: bool
    execution: Execution
    pinned: dict[str, int] = {}

    @classmethod
    def of(cls, root: Root, variant: Variant, recipe: Recipe, stage: str, **asked: Any) -> StageTask:
        """A stage of ``variant``."""
        plan, described = variant.plan, plain(recipe)
        assert isinstance(described, dict)
        names = [step.name for step in plan.steps]
        return cls(root.absolute, plan.name, names, dict(plan.pinned), described, stage, **asked)


class StageAnswer(msgspec.Struct, frozen=True):
    """How it ended: with an outcome, or ``paused`` (:func:`marin.runners.jobs.parts_of`)."""

    outcome: StageOutcome | None
    paused: list[str] = []


def stage_on_ray(
    name: str, *, plan: Plan, recipe: Recipe, root: Root, project: Path | None, execution: Execution, force: bool
) -> bool:
    """Have the step executed by a process of a Ray that reserves what the step computes with, unless it has its output:
    whether it was. :func:`run_stage` finds the result then, and writes the files.

    Raises:
        LedgerError: what the step refused; ``Unavailable`` where the cluster has no such machine.
    """
    held = HeldLeases(root, Claimant.of_process())
    ask = partial(plan_step, name, plan=plan, recipe=recipe, root=root, project=project)

    def is_missing(changed: bool) -> bool:
        return not changed or force or ask() == (identity, None)

    with ExitStack() as taken:
        begun, identity = False, ""
        while not begun:  # before anything is reserved: who waits for a lease must not hold what its holder needs
            identity, result = ask()
            if result is not None and not force:
                return False
            lease = StepLease(root, held, identity, name)
            if not (begun := taken.enter_context(lease.taken([], is_missing))):
                lease.wait()
        definition, here = plan.step(name), msgspec.structs.replace(execution, runner="local", processes=1)
        task = StageTask.of(
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
        job = Job(name, execute_stage, encode(task), reserved, environment=tracker.environment())
        with open_jobs("ray", address=execution.address, root=root.absolute) as jobs:
            jobs.submit(job).result()
    return True


@by_bytes(StageTask)
def prepare_stage(task: StageTask) -> StageTask:
    """Import what the steps that compute import, under the contract of the task."""
    if task.stage not in DATA_STEPS:
        apply(from_plain(task.recipe, where=task.name).arithmetic, task.execution)
        with waiting("importing jax and Levanter"):
            import marin.evaluation.evaluate
            import marin.training.export
            import marin.training.run  # noqa: F401
    return task


@by_bytes(StageTask)
def execute_stage(task: StageTask) -> StageAnswer:
    """A step of the pipeline, in a fresh process."""
    plan = Plan(task.name, tuple(PIPELINE.step(name) for name in task.stages), task.overridden)
    root = open_root(task.root)
    try:
        outcome = run_stage(
            task.stage,
            plan=plan,
            recipe=from_plain(task.recipe, where=task.name),
            root=root,
            project=None,
            execution=task.execution,
            force=task.force,
            identity=task.identity,
            grant=task.grant,
            pinned=results_at(root, task.pinned),
        )
    except Paused as pause:
        return StageAnswer(None, parts_of(pause))
    return StageAnswer(outcome)
