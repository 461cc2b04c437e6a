"""What the events of a user's own loop must agree with. Pure: the record in, findings out.

Nothing here can execute the loop (:mod:`marin.loops.loop` records what it says), so what is compared is what follows from its
events alone: digests of what they hold, the chain of segments, the table of losses, and each number that is recorded a second
time. What follows from nothing (losses, states, outputs, metrics) is a claim until the verifier's own command makes it again
(:mod:`marin.verify.judges.loop`); metrics stay one, for they are compared with nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from ledger import canonical_digest, digest_bytes
from marin.history.run import Fact, Indexed, Run
from marin.history.runs import read_fact
from marin.kinds.kind import Pair
from marin.kinds.known import own_kind, type_of
from marin.record import events as kinds
from marin.record.events import LOOP, LoopSegment, Output
from marin.verify.derivation.attempts import beside
from marin.verify.derivation.record import Contradiction, RunRecord, facts
from marin.verify.derivation.records import in_texts


def contradictions(record: RunRecord) -> Iterator[Contradiction]:
    """All contradictions among the events of a loop's run, in the order of the log."""
    looked = _LoopPass(record)
    for place, item in enumerate(record.own.events):
        yield from looked.at(place, item)
    yield from _chain(record.run.loop)
    if record.taken or any(not beside(event) for _, event in record.outside):
        at = record.outside[0][0] if record.outside else record.run.started.index
        yield Contradiction(at, "stream", "a run that stands alone", "events of other streams that speak for it")


def loss_table(run: Run) -> bytes:
    """The table that the loop leaves of its losses."""
    rows = (f"{step},{loss!r}\n" for step, loss in run.losses.items())
    return ("step,loss\n" + "".join(rows)).encode()


class _LoopPass:
    """One pass over the events of the run's stream: what a kind gets to see (:class:`marin.kinds.kind.LoopContext`)."""

    def __init__(self, record: RunRecord) -> None:
        self.record, self.run = record, record.run
        self.started: Any = record.run.started.body
        decided = {"recipe": self.started.recipe, "code": self.started.code.get("tree"), "run": self.run.run}
        self.identity = canonical_digest(decided)
        self._outputs: Counter[str] = Counter()
        self._ended = False

    def at(self, place: int, item: Indexed) -> Iterator[Contradiction]:
        """What is wrong with the next event."""
        index, event = item
        kind = own_kind(event.type)
        if kind is None:
            return  # nothing here derives it: :func:`marin.verify.derivation.records.unexplained` says so
        if kind.loop is None:
            yield Contradiction(index, "type", "what a loop records", event.type)
            return
        fact = read_fact(kind.body, item)
        pairs: list[Pair] = [("run", self.run.run, event.body.get("run"))]
        order: tuple[type[kinds.Body], ...] = (kinds.RunStarted, kinds.StepStarted)
        first = order[place] if place < len(order) else None
        if first is not None or isinstance(fact.body, kinds.RunStarted | kinds.StepStarted):
            expected = type_of(first) if first is not None else "one beginning of the run and of its step"
            pairs.append(("type", expected, event.type))
        if not kind.verdict:
            if self._ended:
                pairs.append(("type", "nothing after the run's end", event.type))
            self._ended |= isinstance(fact.body, kinds.RunCompleted | kinds.StepFailed)
        if isinstance(fact.body, kinds.StepCompleted):
            self._outputs[fact.body.step] += 1
        agrees = kind.loop.agrees(fact, self) if kind.loop.agrees is not None else ()
        for name, wanted, found in (*pairs, *agrees):
            if wanted != found:
                yield Contradiction(index, name, *in_texts(wanted, found), LOOP)

    def times(self, output: str) -> int:
        """How often an output of this name was recorded up to here."""
        return self._outputs[output]

    @property
    def losses(self) -> Output:
        """The table of losses, as its segments give it."""
        table = loss_table(self.run)
        return Output(kind="losses", digest=digest_bytes(table), size=len(table), artifact=digest_bytes(table))

    def measured(self, recorded: Mapping[str, float]) -> Mapping[str, float]:
        """The last loss, and of each series what was logged last of its greatest step, where that is finite; or what runs of
        before have: the last finite value that was logged, where it is what was ``recorded``. What a machine measured is no
        number of a run, but where one of before claims it."""
        found: dict[str, tuple[int, float]] = {}
        before: dict[str, float] = {}
        for fact in facts(self.record.own, kinds.MetricsRecorded):
            for series in fact.body.series:
                if series.key == "loss" or (series.key.startswith(kinds.MACHINE) and series.key not in recorded):
                    continue
                for step, value in zip(series.steps, map(float.fromhex, series.values), strict=False):
                    if step >= found.get(series.key, (step,))[0]:
                        found[series.key] = step, value
                    if math.isfinite(value):
                        before[series.key] = value
        losses = list(self.run.losses.values())
        last = {"loss_last": losses[-1]} if losses and math.isfinite(losses[-1]) else {}
        now = {name: value for name, (_, value) in found.items() if math.isfinite(value)} | last
        return before | last if recorded == before | last else now


def _chain(segments: tuple[Fact[LoopSegment], ...]) -> Iterator[Contradiction]:
    """Train steps go on one after the other, and none is recorded twice."""
    last = segments[0].body.start if segments else 0
    for fact in segments:
        if fact.body.start != last:
            yield Contradiction(fact.index, "start", f"train step {last}", f"train step {fact.body.start}", LOOP)
        last = fact.body.end
