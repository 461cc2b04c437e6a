"""One run on its way into MLflow: the fold of its events, and what MLflow was told of it.

MLflow's values are written once and stay: a point of a curve that was told is not taken back. So what was told is kept
beside what holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ledger import Event
from marin.history.fold import RunFold
from marin.history.projection.identity import Ids
from marin.history.run import Run, StepState, standing_of, verified
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
    fold: RunFold
    experiment: str
    at: int
    number: int = 0
    losses: dict[int, float] = field(default_factory=dict)
    measured: dict[str, set[int]] = field(default_factory=dict)
    evaluation: Mapping[str, float] = field(default_factory=dict)
    checkpoints: list[CheckpointSaved] = field(default_factory=list)
    exports: list[ModelExported] = field(default_factory=list)
    withdrawn: set[str] = field(default_factory=set)
    """States that its training recorded and withdrew."""
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

    def withdraw(self, step: int) -> None:
        """The training goes on from the state before ``step``: those after it stand no more, nor what is measured of them."""
        saved = self.fold.recorded.of(CheckpointSaved)
        self.withdrawn |= {fact.body.state for fact in saved if fact.body.step > step}

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
