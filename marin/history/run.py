"""A run as it is read back: frozen values, which :mod:`marin.history.fold` makes of its events.

A run is one plan on its way through its steps. An execution of an experiment's graph is read as a run too: its steps are
the nodes of the graph, by address.
"""

from __future__ import annotations

import math
from base64 import b32encode
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from secrets import token_bytes
from typing import Literal

from ledger import Event, canonical_digest
from marin.errors import MissingEvidence, UsageError
from marin.history.labels import Labels
from marin.kinds.kind import Fact as Fact
from marin.kinds.kind import StepView as StepView
from marin.recipe.schema import Recipe, from_plain
from marin.record.events import (
    DEFAULT_PIPELINE,
    LOOP,
    STEPS,
    CheckpointSaved,
    EvalCompleted,
    LoopSegment,
    ModelExported,
    Output,
    ReplayCompleted,
    RunCompleted,
    RunStarted,
    StepFailed,
    StepPreempted,
    TrainSegment,
    TrainStarted,
    write,
)
from marin.record.retention import let_go
from marin.record.verdicts import NAMES, NEVER, answerable, overall, standing

MAIN = "pipeline"
"""What people call the plan that dvc.yaml has. Events keep the name that they were recorded with."""
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
    def output(self) -> Output | None:
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
class Run:
    """One run, folded from its events. ``length`` is how many events its stream has: the number of the next one."""

    run: str
    started: Fact[RunStarted]
    last_index: int
    length: int
    steps: Mapping[str, StepView]
    """The results of its steps; ``states`` has every step that was begun."""
    attempts: Mapping[str, int]
    failures: tuple[Fact[StepFailed], ...]
    training: tuple[Fact[TrainStarted], ...]
    segments: tuple[Fact[TrainSegment], ...]
    """Those that stand, in the order of train steps: where an attempt repeats a segment, the later record."""
    checkpoints: tuple[Fact[CheckpointSaved], ...]
    evaluation: Fact[EvalCompleted] | None
    exported: Fact[ModelExported] | None
    completed: Fact[RunCompleted] | None
    verdicts: tuple[Fact[ReplayCompleted], ...]
    """Those that count; what somebody else's log says of its own runs is in ``claimed``."""
    claimed: tuple[Fact[ReplayCompleted], ...] = ()
    preemptions: tuple[Fact[StepPreempted], ...] = ()
    states: Mapping[str, StepState] = field(default_factory=dict)
    outcome: str = ""
    """How a graph says that it ended; "" for a run."""
    loop: tuple[Fact[LoopSegment], ...] = ()
    """What a loop of the user's own recorded, in the order of the log."""
    told: int = -1
    """The newest event that tells of the run itself; verdicts on it and views of it aside."""
    labels: Labels = field(default_factory=Labels)

    @property
    def plan(self) -> str:
        """Digest of recipe and code: runs with an equal one must have equal bits."""
        return self.started.body.plan

    @property
    def recipe(self) -> Recipe:
        """The recipe as it was recorded; raises :class:`UsageError` when this version cannot read it, or a loop of its user's own
        recorded the run."""
        if self.is_loop:
            raise UsageError(
                "a loop of its user's own recorded this run",
                where=f"run {self.run}",
                expected="a run of the pipeline, whose recipe says how its model is made",
                cure=f"it is looked at by `marin show {self.run}`, and executed again by `marin verify {self.run} --by COMMAND`",
            )
        return from_plain(self.started.body.recipe, where=f"run {self.run}")

    @property
    def is_loop(self) -> bool:
        """Whether its user's own loop recorded it: nothing here can execute it again."""
        return self.started.body.pipeline == LOOP

    @property
    def answerable(self) -> tuple[str, ...]:
        """The verdicts that a run of its kind can have (:func:`marin.record.verdicts.answerable`)."""
        return answerable(self.started.body.pipeline, self.steps)

    @property
    def begun(self) -> Beginning | None:
        """The state that its training began with; None before it did."""
        if not self.training:
            return None
        first = self.training[0].body
        alone = first.first_step == 0 and self.started.body.recipe.get("phase") is None
        return Beginning(first.first_step, first.state, alone)

    @property
    def let_go(self) -> frozenset[str]:
        """Artifacts of training checkpoints that the run does not keep: whether they are still here does not matter."""
        return let_go([fact.body for fact in self.training], [fact.body for fact in self.checkpoints])

    @property
    def status(self) -> str:
        """``completed``: every step has its output. ``failed``: the last thing heard of it was a failure; ``interrupted``:
        that somebody stopped it. ``open``: none of these. A graph ends as it says."""
        last = max(self.failures, key=lambda fact: fact.index, default=None)
        failed = last.index if last is not None else None
        stopped = last is not None and was_interrupted(last.body)
        return self.outcome or status(self.completed is not None, failed, self.last_index, interrupted=stopped)

    @property
    def is_running(self) -> bool:
        """Whether a step was begun and has not ended, as far as it is recorded. An open run without one stands between two
        steps; the process that stopped it there (Ctrl-C, while DVC began the next) could not say so."""
        return self.is_loop or any(state.state == "running" for state in self.states.values())

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
        told: list[TrainSegment | LoopSegment] = [fact.body for fact in self.segments]
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

    @property
    def bits_per_byte(self) -> float | None:
        """Bits that the model needs for a byte of held-out text: as the evaluation recorded it, or its loss (nats a token) by
        the text's tokens a byte. None where that does not follow from the record: of all tokens in whole sequences some were
        not scored, or they are of another text than the corpus."""
        if "bits_per_byte" in self.measured:
            return self.measured["bits_per_byte"]
        found, recipe = self.metrics, self.started.body.recipe
        model, cache = recipe.get("model"), recipe.get("tokens")
        length = model.get("seq_len") if isinstance(model, Mapping) else None
        taken = isinstance(cache, Mapping) and cache.get("artifact") is not None
        names = ("evaluate.loss", "evaluate.tokens", "tokens.validation_tokens", "corpus.validation_bytes")
        if not isinstance(length, int) or length < 1 or taken or not all(found.get(name, 0) > 0 for name in names):
            return None
        loss, scored, tokens, size = (found[name] for name in names)
        whole = tokens // length * (length - 1)  # the first token of a sequence is read and not asked for
        return loss / math.log(2) * tokens / size if scored == whole else None

    @property
    def verified(self) -> str:
        """``never``, or what the verdicts that count say as one word, and its date."""
        return verified(self.verdicts, self.answerable)

    @property
    def verdict(self) -> dict[str, str]:
        """What the verdicts that count say together, by name; empty where there are none."""
        return standing_of(self.verdicts)

    def ordered_states(self) -> list[StepState]:
        """Every step that was begun, in the order of the pipeline."""
        return ordered(self.states)

    def output(self, step: str) -> Output:
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


def was_interrupted(failure: StepFailed) -> bool:
    """Whether somebody stopped the step (Ctrl-C, SIGTERM): it did not fail, and the same command goes on with it."""
    return failure.error.startswith(("interrupted", "training was asked to stop"))


def standing_of(verdicts: Sequence[Fact[ReplayCompleted]]) -> dict[str, str]:
    """What these verdicts, oldest first, say together, by name (:func:`marin.record.verdicts.standing`)."""
    return standing(fact.body.verdicts for fact in verdicts)


def representative(
    verdicts: Sequence[Fact[ReplayCompleted]], answerable: Collection[str] = NAMES
) -> Fact[ReplayCompleted]:
    """Of these verdicts the newest that says by itself what all say together (:func:`marin.record.verdicts.overall`); where
    none does, the newest."""
    word = overall(standing_of(verdicts), answerable)
    alike = (fact for fact in reversed(verdicts) if overall(fact.body.verdicts, answerable) == word)
    return next(alike, verdicts[-1])


def verified(verdicts: Sequence[Fact[ReplayCompleted]], answerable: Collection[str] = NAMES) -> str:
    """``never``, or what these verdicts say together as one word, and since when."""
    if not verdicts:
        return NEVER
    return f"{overall(standing_of(verdicts), answerable)} {representative(verdicts, answerable).time[:10]}"


def record_digest(segment: TrainSegment) -> str:
    """Identity of what a replay compares: the whole record of a segment."""
    return canonical_digest(write(segment))


def unverified(run: Run, held: Collection[str]) -> int:
    """How many train steps the newest recorded state is ahead of the last one up to which every segment is among ``held``
    (:func:`record_digest`): no state older than that is unverified."""
    if not run.segments:
        return 0
    reached = run.segments[0].body.start
    for fact in run.segments:
        if fact.body.start != reached or record_digest(fact.body) not in held:
            break
        reached = fact.body.end
    return run.segments[-1].body.end - reached


def age_in_words(steps: int) -> str:
    """:func:`unverified` as pages and commands say it."""
    if not steps:
        return "every recorded state is verified"
    return f"no state older than {steps} train step{'s' if steps > 1 else ''} is unverified"


def ordered(states: Mapping[str, StepState]) -> list[StepState]:
    """These steps in the order of the pipeline."""
    place = {name: position for position, name in enumerate(STEPS)}
    return sorted(states.values(), key=lambda step: place.get(step.step, len(STEPS)))


def plan_of(pipeline: str) -> str:
    """What people call the plan whose recorded name is ``pipeline``."""
    return MAIN if pipeline == DEFAULT_PIPELINE else pipeline


def new_id() -> str:
    """The id of a run or of an execution of a graph: eight letters and digits, 40 random bits."""
    return b32encode(token_bytes(5)).decode().lower()
