"""One run on its way into MLflow: the fold of its events, and what MLflow was told of it.

What was told is kept beside what holds, so that points which stand no more are taken back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ledger import Event
from marin.history.projection.identity import Ids
from marin.history.projection.text import LOSS
from marin.history.run import JudgedFold, Run, StepState, standing_of, verified
from marin.plugins.mlflow.folding.curves import CurveChange, Curves
from marin.plugins.mlflow.folding.intents import Points
from marin.record.events import CheckpointSaved, ModelExported
from marin.record.verdicts import NAMES, answerable, overall


@dataclass(frozen=True)
class RecordedEvent:
    """One event as the writers of intents see it; ``before`` is how far the step that it names had come."""

    index: int
    event: Event
    time: int
    """In milliseconds since 1970."""
    before: StepState | None = None


@dataclass
class ProjectedRun:
    """``experiment`` is the name under which MLflow shows the run; ``at`` the last event that spoke of it; ``number``: how many
    began before it."""

    ids: Ids
    fold: JudgedFold
    experiment: str
    at: int
    number: int = 0
    losses: dict[int, float] = field(default_factory=dict)
    curves: Curves = field(default_factory=Curves)
    evaluation: Mapping[str, float] = field(default_factory=dict)
    checkpoints: list[CheckpointSaved] = field(default_factory=list)
    exports: list[ModelExported] = field(default_factory=list)
    withdrawn: set[str] = field(default_factory=set)
    """States that its training recorded and withdrew."""
    sampled: bool = False
    """Whether samples of text are recorded of its states."""
    disagreement: int | None = None
    """The first train step that was recorded twice, with other losses."""

    @property
    def about(self) -> str:
        """What somebody says of it."""
        return self.fold.labels.description

    @property
    def name(self) -> str:
        """The ledger's id of the run."""
        return self.fold.run

    @property
    def run(self) -> Run:
        """The run as it is by now."""
        return self.fold.view()

    @property
    def passes(self) -> bool:
        """Whether all of the run, as it is by now, was verified."""
        return overall(standing_of(self.fold.verdicts()), self.answerable) == "PASS"

    @property
    def answerable(self) -> tuple[str, ...]:
        """The verdicts that it can have."""
        started = self.fold.started
        return NAMES if started is None else answerable(started.body.pipeline, self.fold.steps)

    @property
    def verified(self) -> str:
        """``never``, or what the verdicts on it say together, and since when."""
        return verified(self.fold.verdicts(), self.answerable)

    @property
    def trained(self) -> int:
        """How many train steps are recorded: where on the axis of steps a measurement of the model belongs."""
        return next(reversed(self.losses), -1) + 1

    @property
    def model(self) -> ModelExported | None:
        """The exported model that stands: the one that the step's result is, where it has one."""
        result = self.fold.steps.get("export")
        known = (one for one in reversed(self.exports) if result is None or one.output.digest == result.output.digest)
        return next(known, None)

    def tell(self, points: Points, step: str, *, again: bool = False) -> Iterator[CurveChange]:
        """Points of what is being executed of ``step``. They wait while another execution's result stands."""
        state, result = self.fold.states.get(step), self.fold.steps.get(step)
        ground = step, state.identity if state is not None else ""
        if result is not None and ground[1] not in ("", result.identity):
            self.curves.wait(points, ground)
        else:
            yield from self._with_losses(self.curves.tell(points, ground, again=again))

    def was_told(self, step: str, key: str, at: int) -> bool:
        """Whether what is being executed of ``step`` told this point before."""
        state = self.fold.states.get(step)
        return self.curves.has(self.id(), key, (step, state.identity if state is not None else ""), at)

    def settle(self, step: str) -> Iterator[CurveChange]:
        """The step has a result: its curves are those of the execution that gave it."""
        yield from self._with_losses(self.curves.stands((step, self.fold.steps[step].identity)))

    def _with_losses(self, intents: Iterable[CurveChange]) -> Iterator[CurveChange]:
        for intent in intents:
            if isinstance(intent, Points):
                if intent.key == LOSS:
                    self.losses.update(intent.points)
            elif intent.key == LOSS:
                for at in intent.steps:
                    self.losses.pop(at, None)
            yield intent

    def withdraw(self, step: int) -> Iterator[CurveChange]:
        """The training goes on from the state before ``step``: those after it stand no more, nor what is measured of them."""
        saved = self.fold.recorded.of(CheckpointSaved)
        gone = {fact.body.state for fact in saved if fact.body.step > step}
        self.withdrawn |= gone
        yield from self._with_losses(self.curves.withdraw("train", step))
        for state in sorted(gone):
            yield from self.curves.withdraw_state(state)

    def stands(self, state: str) -> bool:
        """Whether a state was not withdrawn, or was recorded again since."""
        return state not in self.withdrawn or any(
            fact.body.state == state for fact in self.fold.recorded.of(CheckpointSaved)
        )

    def id(self, step: str = "") -> str:
        """The MLflow id of the run, or of a step of it."""
        return self.ids.run(self.fold.run, step)

    def recipe(self, section: str) -> Mapping[str, object]:
        """A section of the recorded recipe; empty where it has none."""
        assert self.fold.started is not None, "a run is projected from its beginning on"
        found = self.fold.started.body.recipe.get(section)
        return found if isinstance(found, Mapping) else {}
