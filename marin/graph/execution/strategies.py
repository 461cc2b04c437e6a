"""How steps are executed, one strategy for each kind: a function of an experiment file, and a step of the pipeline.

The loop (:mod:`marin.graph.execution.loop`) looks up, takes leases, waits and records. A step of the pipeline is one more
way to execute: in a process that does what `marin stage` does, which writes the step's events itself, in the run of its
variant. :meth:`Strategies.of` is the one place that chooses by the kind how a step is executed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import msgspec

from ledger import LedgerError
from marin.execution import tracker
from marin.execution.leases.granted import Grant
from marin.execution.plan import Plan
from marin.graph.execution.record import Options, Work
from marin.graph.execution.stage import StageAnswer, StageTask, execute_stage, prepare_stage
from marin.graph.execution.work import FunctionTask, execute_job
from marin.graph.planning import Planner
from marin.graph.results import Action, NodeResult
from marin.graph.step import Step
from marin.process.arithmetic import settings
from marin.provenance.environment import available_cores
from marin.record.root import Root
from marin.runners.jobs import Job, error_of
from marin.runners.reservation import reservation
from marin.runners.resources import Resources
from marin.work.placed import decode, encode
from marin.work.recorded import StoredResult

Ended = StoredResult | NodeResult | LedgerError
"""What came of one execution: a result that is still to be recorded, one that is recorded, or an error."""


class Strategy(Protocol):
    """Executes the steps of one kind. A strategy decides nothing of what a step makes, nor whether it has it already."""

    @property
    def is_recorded(self) -> bool:
        """Whether the executor writes their events; else the process that executes one does."""

    def is_here(self, step: Step) -> bool:
        """Whether the executor calls it in its own process."""

    def job(self, work: Work) -> Job:
        """What another process is to do."""

    def ended(self, work: Work, answer: bytes) -> Ended | None:
        """What became of a job; None: it paused where it was to, and goes on elsewhere under the same lease."""


@dataclass(frozen=True)
class Functions:
    """A :class:`Strategy`. Functions of an experiment file: called here, or in a process that loads the file again. The
    executor records what they made."""

    root: Root
    file: Path | None
    options: Options
    is_recorded = True

    def is_here(self, step: Step) -> bool:
        """See :class:`Strategy`. Without a file no other process could find the function."""
        return step.resources.in_process or self.file is None

    def job(self, work: Work) -> Job:
        assert self.file is not None, "without a file, functions are called here"
        step = work.node.step
        inputs = dict(work.inputs)
        task = FunctionTask(self.root.absolute, os.fsencode(self.file), step.name, work.identity.digest, inputs)
        needs = Resources(cpus=_cpus(step, self.options), gpus=step.resources.gpus, memory=step.resources.memory)
        return Job(work.node.address, execute_job, encode(task), needs)

    def ended(self, work: Work, answer: bytes) -> Ended | None:
        return decode(answer, StoredResult)


@dataclass(frozen=True)
class Stages:
    """A :class:`Strategy`. Steps of the pipeline, each in the run of its variant. What they make and how they fail is recorded
    by the process that executes them."""

    root: Root
    planner: Planner
    options: Options
    executor: str
    is_recorded = False

    def is_here(self, step: Step) -> bool:
        """See :class:`Strategy`. The arithmetic contract is for a whole process."""
        return False

    def job(self, work: Work) -> Job:
        """See :class:`Strategy`. On a Ray, training is a job of Ray Train that its own task launches."""
        step, address, asked = work.node.step, work.node.address, self.options.execution
        definition, variant = step.definition, self.planner.variants[address]
        assert definition is not None, "a function is not a step of the pipeline"
        trains = asked.runner == "ray" and definition.name == "train"
        pause_at, devices = self._until(work)
        execution = msgspec.structs.replace(
            asked,
            devices=devices,
            processes=(step.resources.processes or asked.processes) if trains else 1,
            runner="ray" if trains else "local",
            pause_at=pause_at,
            continues=self.planner.results[variant.previous].origin if variant.previous else None,
        )
        placed = msgspec.structs.replace(execution, runner=asked.runner)
        if work.expected is not None:
            upstream = (*variant.plan.before(definition.name), definition)
            variant = replace(variant, plan=Plan(f"{variant.plan.name}.check", upstream, variant.plan.pinned))
        task = StageTask.of(
            self.root,
            variant,
            self.planner.bound(variant.recipe, variant),
            definition.name,
            identity=work.identity.digest,
            grant=Grant(self.executor, work.key),
            force=self.options.force or bool(step.apart) or work.expected is not None,
            execution=execution,
            pinned={
                name: self.planner.results[pin].completed_at
                for name, pin in variant.pinned.items()
                if pin in self.planner.results
            },
        )
        return Job(
            f"{address} ({variant.plan.name})",
            execute_stage,
            encode(task),
            reservation(
                definition, variant.recipe, placed, cpus=_cpus(step, self.options), memory=step.resources.memory
            ),
            environment=tracker.environment(),
            launches=trains,
            prepare=prepare_stage,
            # A second execution, which is compared, has a process of its own: what hangs on a hash seed shows there.
            alike=str(settings(variant.recipe.arithmetic, execution))
            if asked.runner == "local" and work.expected is None
            else "",
        )

    def ended(self, work: Work, answer: bytes) -> Ended | None:
        ended = decode(answer, StageAnswer)
        if ended.outcome is None:
            return error_of(ended.paused) if self._pauses(work) else None
        how: Action = "executed" if ended.outcome.action == "executed" else "cached"
        return NodeResult.of(work.node.address, how, ended.outcome.result)

    def _until(self, work: Work) -> tuple[int | None, int]:
        """Before which train step a training is to pause, and its devices until then: the next of its moves, or what
        the caller asked for, whichever comes first."""
        needs = work.node.step.resources
        moves = needs.moves if self._continues(work) else ()
        pause_at, devices = moves[work.move] if work.move < len(moves) else (None, needs.devices)
        asked = self.options.execution
        return (asked.pause_at if self._pauses(work) else pause_at), devices or asked.devices

    def _pauses(self, work: Work) -> bool:
        """Whether the pause that comes next is the caller's."""
        moves, asked = work.node.step.resources.moves, self.options.execution.pause_at
        if asked is None or not self._continues(work):
            return False
        return work.move >= len(moves) or asked <= moves[work.move][0]

    def _continues(self, work: Work) -> bool:
        """Whether it is a training, which can pause and go on."""
        definition = work.node.step.definition
        return definition is not None and definition.continues


@dataclass(frozen=True)
class Strategies:
    """The strategy of each step of a graph."""

    functions: Functions
    stages: Stages

    def of(self, step: Step) -> Strategy:
        """How ``step`` is executed."""
        return self.functions if step.definition is None else self.stages


def _cpus(step: Step, options: Options) -> int:
    """The cores that a step reserves: on this machine at most those that it has."""
    asked = step.resources.cpus
    return min(asked, available_cores()) if options.execution.runner == "local" else asked
