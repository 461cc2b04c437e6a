"""The result cache: what the ledger and the store have under an identity. Every door asks here, and nobody else decides.

A result is a hit when an event of exactly this identity records it (``step.completed``, a collection's end) and every
stored byte of it hashes to what the event says. Who made it does not matter: any run, any graph. Time, existence and DVC's
opinion count for nothing. Each question costs what is recorded under the identity, however long the ledger is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ledger import LedgerError, Store
from marin.history.executed import Fact, StepView
from marin.history.executions import History, completions, facts, is_a, read_fact, stream_of
from marin.history.fold import step_view
from marin.record.events import Body, RunStarted, StepCompleted, StepFailed

log = logging.getLogger(__name__)

REMEMBERED = 2_000


def results_of[B: Body, K](
    history: History,
    kind: type[B],
    key: Callable[[B], K],
    fits: Callable[[B], bool] = lambda body: True,
    *,
    stream: str | None = None,
    identity: str | None = None,
) -> dict[K, Fact[B]]:
    """What was made of the pieces of some work, by ``key``: of each the newest fact of this type that ``fits`` what is asked for
    now. Segments that were executed again, shards of a collection, trainings without documents: a piece that is not here is
    still to be executed. Bytes that a fact names are hashed when they are taken."""
    found = facts(history, kind, stream=stream, identity=identity)
    return {key(fact.body): fact for fact in found if fits(fact.body)}


@dataclass
class ResultCache:
    """The questions, over one state of the ledger; :attr:`history` may be set to a newer one."""

    history: History
    store: Store
    whole: dict[str, None] = field(default_factory=dict)
    """Artifacts that were hashed and found whole, the newest :data:`REMEMBERED`: outputs that several steps share are
    mostly near each other."""

    def recorded(self, step: str, identity: str, pipeline: str = "") -> list[StepView]:
        """The results of this step and identity, newest first; of runs of one pipeline only if it is named."""
        found = map(step_view, completions(self.history, step=step, identity=identity))
        return [view for view in found if not pipeline or self._pipeline(view.origin) == pipeline][::-1]

    def hit(self, step: str, identity: str, pipeline: str = "") -> StepView | None:
        """The newest recorded result that is whole, or None."""
        return self.first_whole(self.recorded(step, identity, pipeline))

    def first_whole(self, views: Iterable[StepView]) -> StepView | None:
        """The first of these results whose every byte is what it was, or None."""
        for view in views:
            damage = self.damage(view)
            if not damage:
                return view
            log.warning("%s: the result of event %d is not whole (%s); not used", view.step, view.completed_at, damage)
        return None

    def newest[B: Body](self, kind: type[B], identity: str, artifact: Callable[[B], str]) -> B | None:
        """The newest fact of another type with this identity, if the artifact that it names is whole."""
        newest = results_of(self.history, kind, lambda body: None, identity=identity).get(None)
        return None if newest is None or self.damage_of([artifact(newest.body)]) else newest.body

    def damage(self, view: StepView) -> str:
        """:meth:`damage_of` the stored bytes of a result."""
        return self.damage_of([view.output.artifact, *view.tables.values()])

    def damage_of(self, artifacts: Iterable[str]) -> str:
        """The first thing wrong with these artifacts, every byte of them hashed; "" when they are whole."""
        for digest in artifacts:
            if digest in self.whole:
                continue
            try:
                findings = self.store.verify(digest)
            except LedgerError as error:
                return str(error)
            if findings:
                return str(findings[0])
            self.whole[digest] = None
            if len(self.whole) > REMEMBERED:
                del self.whole[next(iter(self.whole))]
        return ""

    def failure(self, identity: str) -> Fact[StepFailed] | None:
        """A lasting failure that no later result made good."""
        last: Fact[StepFailed] | None = None
        for item in self.history.events(identity=identity):
            if is_a(item, StepCompleted):
                last = None
            elif is_a(item, StepFailed) and item[1].body.get("lasting"):
                last = read_fact(StepFailed, item)
        return last

    def _pipeline(self, run: str) -> str:
        started = facts(self.history, RunStarted, stream=stream_of(run))
        return next((fact.body.pipeline for fact in started), "")
