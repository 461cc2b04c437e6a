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
from marin.process.text import clipped
from marin.record import events as kinds
from marin.record.events import LOOP, LoopSegment
from marin.verify.derivation.record import Contradiction, RunRecord, facts
from marin.verify.derivation.standing import beside

Pair = tuple[str, Any, Any]
"""A field, what it must be, and what it is."""

CLAIMED: Mapping[str, tuple[str, ...]] = {
    kinds.RUN_STARTED: ("recipe", "code", "environment"),
    kinds.STEP_STARTED: ("address", "lock"),
    kinds.LOOP_SEGMENT: (),
    kinds.METRICS_RECORDED: ("series",),
    kinds.STEP_COMPLETED: ("seconds", "address"),
    kinds.STEP_FAILED: ("error", "address", "lasting"),
    kinds.RUN_COMPLETED: (),
    kinds.REPLAY_COMPLETED: ("verdicts", "training", "first_divergence", "log_checkpoint", "details", "environment"),
}
"""Types of events that the stream of such a run may hold, and those of their fields that are only claimed."""


def contradictions(record: RunRecord) -> Iterator[Contradiction]:
    """All contradictions among the events of a loop's run, in the order of the log."""
    looked = _Looked(record)
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


class _Looked:
    """One pass over the events of the run's stream."""

    def __init__(self, record: RunRecord) -> None:
        self.record, self.run = record, record.run
        self.started = record.run.started.body
        self.seen: Counter[tuple[str, str]] = Counter()
        self.ended = False

    def at(self, place: int, item: Indexed) -> Iterator[Contradiction]:
        """What is wrong with the next event."""
        index, event = item
        kind = kinds.BODIES.get(event.type)
        if kind is None:
            return  # nothing here derives it: :func:`marin.verify.derivation.records.unexplained` says so
        if event.type not in CLAIMED:
            yield Contradiction(index, "type", "what a loop records", event.type)
            return
        body = kinds.read(kind, event.body, where=f"event {index}")
        pairs: list[Pair] = [("run", self.run.run, event.body.get("run"))]
        first = {0: kinds.RUN_STARTED, 1: kinds.STEP_STARTED}.get(place)
        if first is not None or event.type in (kinds.RUN_STARTED, kinds.STEP_STARTED):
            pairs.append(("type", first or "one beginning of the run and of its step", event.type))
        if event.type != kinds.REPLAY_COMPLETED:
            if self.ended:
                pairs.append(("type", "nothing after the run's end", event.type))
            self.ended |= event.type in (kinds.RUN_COMPLETED, kinds.STEP_FAILED)
        for name, expected, found in (*pairs, *self._pairs(body)):
            if expected != found:
                yield Contradiction(index, name, *_differing(expected, found), LOOP)

    def _pairs(self, body: kinds.Body) -> Iterator[Pair]:
        match body:
            case kinds.RunStarted():
                yield "recipe_digest", canonical_digest(body.recipe), body.recipe_digest
                yield "plan", canonical_digest([body.recipe_digest, body.code.get("tree")]), body.plan
                yield "continues, experiment, pinned", (None, "", {}), (body.continues, body.experiment, body.pinned)
            case kinds.StepStarted():
                yield "step", LOOP, body.step
                yield "identity", self._identity, body.identity
                yield "config_digest", self.started.recipe_digest, body.config_digest
                yield (
                    "config",
                    {name: value for name, value in self.started.recipe.items() if name != LOOP},
                    body.config,
                )
                yield "inputs", {}, body.inputs
                yield "code", self.started.code.get("tree"), body.code
                yield "attempt", 1, body.attempt
            case kinds.LoopSegment():
                yield from _segment(body)
            case kinds.MetricsRecorded():
                yield "step", LOOP, body.step
                for series in body.series:
                    yield f"series {series.key}", len(series.steps), len(series.values)
            case kinds.StepCompleted():
                yield from self._completed(body)
            case kinds.StepFailed():
                yield "step, identity", (LOOP, self._identity), (body.step, body.identity)
            case kinds.RunCompleted():
                outputs = {name: view.output for name, view in self.run.steps.items()}
                yield "outputs", outputs, body.outputs
                yield "outputs", True, LOOP in body.outputs
                yield "metrics", self.run.metrics, {name: float.fromhex(value) for name, value in body.metrics.items()}

    def _completed(self, body: kinds.StepCompleted) -> Iterator[Pair]:
        name, output = body.step, body.output
        self.seen["output", name] += 1
        yield (
            "step",
            "an output that was recorded once",
            ("an output that was recorded once" if self.seen["output", name] == 1 else f"{name} once more"),
        )
        yield "inputs, tables", ({}, {}), (body.inputs, body.tables)
        metrics = {key: float.fromhex(value) for key, value in body.metrics.items()}
        if name == LOOP:
            table = loss_table(self.run)
            expected = kinds.Output(
                kind="losses", digest=digest_bytes(table), size=len(table), artifact=digest_bytes(table)
            )
            yield "output", expected, output  # the losses that the segments record
            yield "identity", self._identity, body.identity
            yield "metrics", self._metrics(), metrics
        else:
            yield "output.kind", "files", output.kind
            yield "output.artifact", output.digest, output.artifact  # the bytes are their own digest
            yield "identity", canonical_digest([self._identity, name]), body.identity
            yield "metrics", {}, metrics

    @property
    def _identity(self) -> str:
        decided = {"recipe": self.started.recipe, "code": self.started.code.get("tree"), "run": self.run.run}
        return canonical_digest(decided)

    def _metrics(self) -> dict[str, float]:
        """The last finite value of each series, and the last loss."""
        found = {
            series.key: value
            for fact in facts(self.record.own, kinds.MetricsRecorded)
            for series in fact.body.series
            for value in map(float.fromhex, series.values)
            if math.isfinite(value) and series.key != "loss"
        }
        losses = list(self.run.losses.values())
        return found | ({"loss_last": losses[-1]} if losses and math.isfinite(losses[-1]) else {})


def _segment(body: LoopSegment) -> Iterator[Pair]:
    count = body.end - body.start
    yield (
        "losses, batches",
        f"one for each of {count} train steps",
        (
            f"one for each of {count} train steps"
            if len(body.losses) == len(body.batches) == count and count > 0
            else f"{len(body.losses)} and {len(body.batches)}"
        ),
    )
    yield (
        "state, manifest",
        "a digest and the list of tensors, or neither",
        ("a digest and the list of tensors, or neither" if bool(body.state) == bool(body.manifest) else "one of them"),
    )


def _chain(segments: tuple[Fact[LoopSegment], ...]) -> Iterator[Contradiction]:
    """Train steps go on one after the other, and none is recorded twice."""
    last = segments[0].body.start if segments else 0
    for fact in segments:
        if fact.body.start != last:
            yield Contradiction(fact.index, "start", f"train step {last}", f"train step {fact.body.start}", LOOP)
        last = fact.body.end


def _differing(expected: Any, found: Any) -> tuple[str, str]:
    """Of two mappings the first entry that differs, otherwise the two values; short."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in sorted({*map(str, expected), *map(str, found)}):
            if expected.get(key) != found.get(key):
                return clipped(f"{key}={expected.get(key)}", 160), clipped(f"{key}={found.get(key)}", 160)
    return clipped(str(expected), 160), clipped(str(found), 160)
