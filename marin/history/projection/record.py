"""What is known of one run, built up event by event.

A :class:`RunRecord` is the fold's own notebook: mutable, private to the fold that fills it, and read by the pages once
a round of events is through. It holds plain facts from event bodies and nothing that needs the store.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from marin.record.events import STEPS, CheckpointSaved, Json, ModelExported, Output, ReplayCompleted, TrainSegment
from marin.record.verdicts import of_all, overall


def milliseconds(time: str) -> int:
    """An event's RFC 3339 time as milliseconds since 1970, which is what MLflow counts in."""
    return round(datetime.fromisoformat(time).timestamp() * 1000)


@dataclass
class StepRecord:
    """A node of the plan in one run. ``state`` is running, completed, cached or failed."""

    name: str
    state: str
    started: str
    ended: str | None = None
    attempt: int = 1
    identity: str = ""
    inputs: dict[str, str] = field(default_factory=dict)
    output: Output | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    seconds: float | None = None
    error: str = ""
    index: int = 0
    completed_at: int | None = None


@dataclass
class RunRecord:
    """One run, as far as the log has been read."""

    run: str
    pipeline: str
    index: int
    started: str
    actor: str
    plan: str
    recipe_digest: str
    recipe: Json
    code: Json
    environment: Json
    steps: dict[str, StepRecord] = field(default_factory=dict)
    losses: dict[int, float] = field(default_factory=dict)
    measured: dict[str, set[int]] = field(default_factory=dict)
    segments: list[TrainSegment] = field(default_factory=list)
    checkpoints: list[CheckpointSaved] = field(default_factory=list)
    evaluation: dict[str, float] = field(default_factory=dict)
    exports: list[ModelExported] = field(default_factory=list)
    replays: list[tuple[int, str, str, ReplayCompleted]] = field(default_factory=list)
    outputs: dict[str, Output] = field(default_factory=dict)
    disagreements: list[int] = field(default_factory=list)
    ended: str | None = None
    outcome: str = ""
    last_index: int = 0
    last_told: int = 0
    """The last event that is no verdict."""

    @property
    def state(self) -> str:
        """running, completed, failed, or (of a graph) interrupted: what the latest facts add up to."""
        if self.ended is not None:
            return self.outcome or "completed"
        return "failed" if any(step.state == "failed" for step in self.steps.values()) else "running"

    @property
    def trained(self) -> int:
        """How many train steps are recorded: where on the axis of steps a measurement of the model belongs."""
        return next(reversed(self.losses), -1) + 1

    def ordered_steps(self) -> list[StepRecord]:
        """The steps in pipeline order."""
        place = {name: position for position, name in enumerate(STEPS)}
        return sorted(self.steps.values(), key=lambda step: place.get(step.name, len(STEPS)))

    def verified(self) -> str:
        """The value of the tag ``marin.verified``: never, or the last verdict and its date."""
        if not self.replays:
            return "never"
        time = self.replays[-1][1]
        return f"{overall(self.verdicts())} {time[:10]}"

    def passes(self) -> bool:
        """Whether all of the run, as it is by now, was verified."""
        return bool(self.replays) and overall(self.verdicts()) == "PASS"

    def verdicts(self) -> dict[str, str]:
        """Those of the last verification, as they count for the run as it is by now."""
        if not self.replays:
            return {}
        replay = self.replays[-1][3]
        return of_all(replay.verdicts, replay.log_checkpoint, self.last_told)
