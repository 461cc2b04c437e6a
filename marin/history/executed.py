"""A run as its own stream says it: the value that its events fold into (:mod:`marin.history.fold`)."""

from __future__ import annotations

from base64 import b32encode
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from secrets import token_bytes
from typing import Literal

from ledger import Event
from marin.errors import MissingEvidence, UsageError
from marin.kinds.kind import Fact as Fact
from marin.kinds.kind import StepView as StepView
from marin.recipe.schema import Recipe, from_plain
from marin.record import events

Indexed = tuple[int, Event]
"""An event and its index in the log."""


@dataclass(frozen=True)
class StepState:
    """How far a step of a run has come. ``started``: when its first attempt began; ``index``: the event that tells the
    state; ``config`` and ``code``: digests of what the last attempt was begun with, "" where this run began none;
    ``result``: what it made, None while it is made (again)."""

    step: str
    state: Literal["running", "completed", "cached", "failed"]
    started: str
    ended: str | None = None
    attempt: int = 1
    identity: str = ""
    inputs: Mapping[str, str] = field(default_factory=dict)
    config: str = ""
    code: str = ""
    error: str = ""
    index: int = 0
    result: StepView | None = None

    @property
    def output(self) -> events.Output | None:
        """What the step made, if it made anything."""
        return self.result.output if self.result is not None else None

    @property
    def metrics(self) -> Mapping[str, float]:
        """The numbers of its result."""
        return self.result.metrics if self.result is not None else {}


@dataclass(frozen=True)
class Beginning:
    """The state that a training began with, before train step ``step``. ``made_again``: it follows from the recipe and what that
    names, so that no checkpoint holds it; in a phase it is a state of another run."""

    step: int
    state: str
    made_again: bool


@dataclass(frozen=True)
class ExecutedRun:
    """One run, folded from its events. ``length`` is how many events its stream has: the number of the next one."""

    run: str
    started: Fact[events.RunStarted]
    last_index: int
    length: int
    steps: Mapping[str, StepView]
    """The results of its steps; ``states`` has every step that was begun."""
    attempts: Mapping[str, int]
    failures: tuple[Fact[events.StepFailed], ...]
    training: tuple[Fact[events.TrainStarted], ...]
    segments: tuple[Fact[events.TrainSegment], ...]
    """Those that stand, in the order of train steps: where an attempt repeats a segment, the later record."""
    checkpoints: tuple[Fact[events.CheckpointSaved], ...]
    evaluation: Fact[events.EvalCompleted] | None
    exported: Fact[events.ModelExported] | None
    completed: Fact[events.RunCompleted] | None
    preemptions: tuple[Fact[events.StepPreempted], ...] = ()
    states: Mapping[str, StepState] = field(default_factory=dict)
    outcome: str = ""
    """How a graph says that it ended; "" for a run."""
    loop: tuple[Fact[events.LoopSegment], ...] = ()
    """What a loop of the user's own recorded, in the order of the log."""
    told: int = -1
    """Index of the newest event of the run, not counting verdicts and labels."""

    @property
    def plan(self) -> str:
        """Digest of recipe and code: runs with an equal one must have equal bits."""
        return self.started.body.plan

    @property
    def recipe(self) -> Recipe:
        """The recipe as recorded; raises :class:`UsageError` where this version cannot read it, or a loop has none."""
        if self.is_loop:
            raise UsageError(
                "a loop of its user's own recorded this run",
                where=f"run {self.run}",
                expected="a run of the pipeline, whose recipe says how its model is made",
                cure=f"it is looked at by `marin show {self.run}`, and executed again by `marin verify {self.run} --by COMMAND`",
            )
        return from_plain(self.started.body.recipe, where=f"run {self.run}")

    @property
    def readable_recipe(self) -> Recipe | None:
        """:attr:`recipe`; None where there is none, or it is of another version: what needs it says so."""
        with suppress(UsageError):
            return self.recipe
        return None

    @property
    def is_loop(self) -> bool:
        """Whether its user's own loop recorded it: nothing here can execute it again."""
        return self.started.body.pipeline == events.LOOP

    @property
    def begun(self) -> Beginning | None:
        """The state that its training began with; None before it did."""
        if not self.training:
            return None
        first = self.training[0].body
        alone = first.first_step == 0 and self.started.body.recipe.get("phase") is None
        return Beginning(first.first_step, first.state, alone)

    @property
    def status(self) -> str:
        """``completed``: every step has its output. ``failed``: the last thing heard of it was a failure; ``interrupted``:
        that a user stopped it. ``open``: none of these. A graph ends as it says."""
        last = max(self.failures, key=lambda fact: fact.index, default=None)
        failed = last.index if last is not None else None
        stopped = last is not None and was_interrupted(last.body)
        return self.outcome or status(self.completed is not None, failed, self.last_index, interrupted=stopped)

    @property
    def planned(self) -> frozenset[str]:
        """The steps that the run says its plan has."""
        steps = self.started.body.code.get("steps")
        return frozenset(steps) if isinstance(steps, Mapping) else frozenset()

    @property
    def metrics(self) -> dict[str, float]:
        """All metrics of the run, as ``step.name``."""
        return {f"{step}.{name}": value for step, view in self.steps.items() for name, value in view.metrics.items()}

    @property
    def losses(self) -> dict[int, float]:
        """The loss of every train step that is recorded."""
        told: list[events.TrainSegment | events.LoopSegment] = [fact.body for fact in self.segments]
        told += [fact.body for fact in self.loop]
        return {body.start + place: float.fromhex(loss) for body in told for place, loss in enumerate(body.losses)}

    @property
    def measured(self) -> Mapping[str, float]:
        """What the evaluation measured, by name: as its step's result says, which lists show and verification compares; before
        there is one, as its own event says."""
        if "evaluate" in self.steps:
            return self.steps["evaluate"].metrics
        if self.evaluation is None:
            return {}
        return {name: float.fromhex(value) for name, value in self.evaluation.body.metrics.items()}

    def output(self, step: str) -> events.Output:
        """What ``step`` made; :class:`MissingEvidence` when the run has no output of it."""
        if step not in self.steps:
            raise MissingEvidence(
                "the run has no such output",
                where=f"run {self.run}",
                expected=f"an output of {step}",
                found=", ".join(self.steps) or "no outputs",
                cure="a loop of your own has what it saved (`run.save(NAME, PATH)`): `marin store get DIGEST` brings it, as "
                f"`marin show {self.run}` names it"
                if self.is_loop
                else f"run `marin stage {step}` or `dvc repro`; in an experiment file, name default_{step} among the steps",
            )
        return self.steps[step].output


def status(
    completed: bool, failed: int | None, last: int, *, interrupted: bool = False
) -> Literal["completed", "failed", "interrupted", "open"]:
    """The status of a run that failed last at event ``failed``, or was ``interrupted`` there, and of which event ``last`` is the
    newest."""
    if completed:
        return "completed"
    if failed is None or failed != last:
        return "open"
    return "interrupted" if interrupted else "failed"


def was_interrupted(failure: events.StepFailed) -> bool:
    """Whether a user stopped the step (Ctrl-C, SIGTERM): it did not fail, and the same command goes on with it."""
    return failure.error.startswith(("interrupted", "training was asked to stop"))


def new_id() -> str:
    """The id of a run or of an execution of a graph: eight letters and digits, 40 random bits."""
    return b32encode(token_bytes(5)).decode().lower()
