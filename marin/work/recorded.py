"""What the log says of an attempt at a step: the one place that writes its events.

A stage, a function of a graph and a loop of the user's own begin and end alike. They differ in the stream that holds the
events, and in who appends them with what else in one batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ledger import Draft, canonical_digest
from marin.history.executed import Fact, StepView
from marin.history.executions import stream_of
from marin.history.fold import step_view
from marin.record import events
from marin.record.events import Output


@dataclass(frozen=True)
class StoredResult:
    """What an execution of a step made, recorded or not: the output, its metrics, its tables by digest, and how long it took.
    All of it is in the store, but for the bytes of a small value, which are in ``data`` until then."""

    output: Output
    metrics: Mapping[str, float]
    tables: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    data: bytes | None = None


@dataclass(frozen=True)
class Attempt:
    """An attempt at the step of this identity in ``run``. ``address``: its name in a graph; ``stream``: the one of a graph, if
    not that of the run."""

    run: str
    step: str
    identity: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    address: str = ""
    stream: str = ""

    def started(
        self, config: Mapping[str, Any], code: str, *, lock: str = "", number: int = 1, config_digest: str = ""
    ) -> Draft:
        """It begins. ``config_digest``: where the identity digests more than ``config``."""
        body = events.StepStarted(
            run=self.run,
            step=self.step,
            identity=self.identity,
            config_digest=config_digest or canonical_digest(dict(config)),
            config=dict(config),
            inputs=dict(self.inputs),
            code=code,
            attempt=number,
            address=self.address,
            lock=lock,
        )
        return self.draft(events.STEP_STARTED, body)

    def completed(self, made: StoredResult) -> Draft:
        """It has its output."""
        return self.draft(events.STEP_COMPLETED, self._completed(made))

    def result(self, made: StoredResult, index: int = -1) -> StepView:
        """What :meth:`completed` records as event ``index``, which is not known before the append."""
        return step_view(Fact(index, "", self._completed(made)))

    def failed(self, error: object, *, lasting: bool = False) -> Draft:
        """It stopped with this error."""
        body = events.StepFailed(
            run=self.run,
            step=self.step,
            identity=self.identity,
            error=str(error)[:4000],
            address=self.address,
            lasting=lasting,
        )
        return self.draft(events.STEP_FAILED, body)

    def paused(self, where: str) -> Draft:
        """It stopped where it was told to."""
        body = events.StepPaused(run=self.run, step=self.step, identity=self.identity, where=where)
        return self.draft(events.STEP_PAUSED, body)

    def draft(self, kind: str, body: events.Body) -> Draft:
        """An event of its stream."""
        return Draft(kind, self.stream or stream_of(self.run), events.write(body))

    def _completed(self, made: StoredResult) -> events.StepCompleted:
        return events.StepCompleted(
            run=self.run,
            step=self.step,
            identity=self.identity,
            inputs=dict(self.inputs),
            output=made.output,
            metrics={name: value.hex() for name, value in made.metrics.items()},
            seconds=made.seconds,
            tables=dict(made.tables),
            address=self.address,
        )


def cached(run: str, view: StepView) -> Draft:
    """The event by which ``run`` takes over a result that is recorded already."""
    body = events.StepCached(
        run=run,
        step=view.step,
        identity=view.identity,
        inputs=dict(view.inputs),
        output=view.output,
        completed_at=view.completed_at,
    )
    return Attempt(run, view.step, view.identity).draft(events.STEP_CACHED, body)
