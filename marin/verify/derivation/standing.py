"""What a run recorded more than once, and what of it stands. Pure: events in, findings out.

A step may be attempted again: a later event then takes the place of an earlier one, and only the later one is hashed,
executed and compared. So whatever the earlier one says of the same thing must be the same (equal identities have equal
bits), or it is told as what it is: recorded, and judged by nobody. That goes for a step whose inputs had changed, whose
earlier record can agree with nothing that stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ledger import Event
from marin.history.run import Indexed, Run
from marin.record import events as kinds
from marin.record.events import GRAD_NORM
from marin.verify.derivation.record import OF_STEP, Contradiction, RunRecord, Stretch, Unjudged, step_of, withdrawn


def superseded(run: Run, stretch: Stretch) -> set[int]:
    """The events of a stretch that tell of a step as it was executed under another identity than the one whose output
    stands, and what its training withdrew."""
    begun: dict[str, str] = {}
    found = set()
    for index, event in stretch.events:
        step = step_of((index, event))
        if event.type in (kinds.STEP_STARTED, kinds.STEP_COMPLETED, kinds.STEP_CACHED):
            begun[step] = event.body["identity"]
        elif not (event.type in OF_STEP or event.type == kinds.METRICS_RECORDED):
            continue
        view = run.steps.get(step)
        if view is not None and begun.get(step, view.identity) != view.identity:
            found.add(index)
    return found | withdrawn(stretch)


_BESIDE: Mapping[str, Callable[[Event], str]] = {
    kinds.TRACKING_LOGGED: lambda event: (
        f"{event.body.get('operation')} logged to this run by {event.actor} with another tool"
    ),
    kinds.RUN_LABELLED: lambda event: f"labels given to this run by {event.actor}",
    kinds.SPEEDRUN_ENTERED: lambda event: (
        f"an entry of this run on the track {event.body.get('track')} by {event.actor}"
    ),
}


def beside(event: Event) -> bool:
    """Whether an event that names a run, outside of its stream, says nothing of what the run is."""
    return event.type in _BESIDE


def unjudged(record: RunRecord) -> list[Unjudged]:
    """The events whose place others took, what a user logged of the run with another tool, labels, and places on
    tracks: no judge looks at them."""
    aside: dict[str, list[int]] = {}
    for index, event in record.outside:
        if beside(event):
            aside.setdefault(_BESIDE[event.type](event), []).append(index)
    found = [Unjudged(at[0], what if len(at) == 1 else f"{what}, {len(at)} times") for what, at in aside.items()]
    found += [Unjudged(index, f"{event.type} of a state that the training withdrew") for index, event in record.aside]
    standing = _Standing(record.run)
    for stretch in record.stretches:
        gone, taken_back = superseded(record.run, stretch), withdrawn(stretch)
        for index, event in stretch.events:
            if index in taken_back:
                found.append(Unjudged(index, f"{event.type} of train steps that the training withdrew later"))
            elif index in gone:
                what = (
                    f"{event.type} of step {step_of((index, event))} with other inputs, which another took the place of"
                )
                found.append(Unjudged(index, what))
            elif what := standing.aside(index, event.type, event.body):
                found.append(Unjudged(index, what))
    return found


class _Standing:
    """What of a run stands, looked up once for all its events."""

    def __init__(self, run: Run) -> None:
        self.run, self.states = run, _states(run)
        self.segments = {(fact.body.start, fact.body.end) for fact in run.segments}
        self.checkpoints = {fact.index for fact in run.checkpoints}

    def aside(self, index: int, kind: str, body: Any) -> str:
        """What an event says of a state or a cut that no segment has, or of bytes that were stored again later."""
        if kind == kinds.CHECKPOINT_SAVED:
            step = body["step"]
            if step not in self.states:
                return f"a state before train step {step}, with which no segment begins or ends"
            if index not in self.checkpoints:
                return f"a training checkpoint of step {step}, {body['artifact']}, which another took the place of"
        if kind == kinds.STEP_COMPLETED and (view := self.run.steps.get(body["step"])) is not None:
            stored = body["output"]["artifact"]
            if index != view.index and stored != view.output.artifact:
                return f"the output of step {body['step']} as {stored}, which another took the place of"
        if kind == kinds.TRAIN_SEGMENT and (body["start"], body["end"]) not in self.segments:
            return f"a segment of train steps {body['start']} to {body['end'] - 1}, which is none of those that stand"
        if kind == kinds.TRAIN_STARTED and body["first_step"] not in self.states:
            step = body["first_step"]
            return f"training from a state before train step {step}, with which no segment begins or ends"
        return ""


def _states(run: Run) -> dict[int, str]:
    """Train step -> the state before it, as the segments have it."""
    ends = {fact.body.end: fact.body.end_state for fact in run.segments}
    return ends | {fact.body.start: fact.body.start_state for fact in run.segments}


def disagreements(record: RunRecord) -> Iterator[Contradiction]:
    """What was recorded twice, and not equally."""
    yield from _of_training(record)
    yield from _of_norms(record)
    yield from _of_steps(record)


def _standing(record: RunRecord, *types: str) -> Iterator[Indexed]:
    for stretch in record.stretches:
        gone = superseded(record.run, stretch)
        yield from (item for item in stretch.events if item[1].type in types and item[0] not in gone)


def _of_training(record: RunRecord) -> Iterator[Contradiction]:
    """Every record of a train step says what the one that stands says of it."""
    run = record.run
    known: dict[int, tuple[str, str, str]] = {}
    traces = {(fact.body.start, fact.body.end): fact.body.trace for fact in run.segments}
    for fact in run.segments:
        known |= fact.body.by_step
    states = _states(run)
    for index, event in _standing(record, kinds.TRAIN_SEGMENT):
        body = kinds.read(kinds.TrainSegment, event.body, where=f"event {index}")
        if not body.is_whole:
            yield Contradiction(
                index, "losses, batches, fingerprints", f"{body.end - body.start} of each", body.counts, "train"
            )
        for step, row in body.by_step.items():
            if known.get(step, row) != row or (step not in known and "train" in run.steps):
                expected = "another record of it" if step in known else "no such train step"
                yield Contradiction(
                    index, f"train step {step}", expected, "losses, tokens or state that differ", "train"
                )
                break
        for name, step, state in (
            ("start_state", body.start, body.start_state),
            ("end_state", body.end, body.end_state),
        ):
            if states.get(step, state) != state:
                yield Contradiction(index, name, states[step], state, "train")
        if traces.get((body.start, body.end), body.trace) != body.trace:
            yield Contradiction(index, "trace", traces[body.start, body.end], body.trace, "train")


def _of_norms(record: RunRecord) -> Iterator[Contradiction]:
    """A train step has one gradient norm, which is a float32."""
    known: dict[int, str] = {}
    for index, event in _standing(record, kinds.METRICS_RECORDED):
        body = kinds.read(kinds.MetricsRecorded, event.body, where=f"event {index}")
        for series in body.series:
            if series.key != GRAD_NORM:
                continue
            for step, value in zip(series.steps, series.values, strict=False):
                with np.errstate(over="ignore"):
                    exact = float(np.float32(float.fromhex(value))).hex()
                if exact != value:
                    yield Contradiction(index, f"series {GRAD_NORM}", f"a float32 at train step {step}", value, "train")
                elif known.setdefault(step, value) != value:
                    yield Contradiction(
                        index, f"series {GRAD_NORM}", f"{known[step]} at train step {step}", value, "train"
                    )


def _of_steps(record: RunRecord) -> Iterator[Contradiction]:
    """Equal identities have equal content: every end of a step says what the others of its identity say. Files that are
    not canonical (states, token caches) may be stored as others."""
    known: dict[tuple[str, str], kinds.StepCompleted] = {}
    for stretch in record.stretches:
        for index, event in stretch.events:
            if event.type != kinds.STEP_COMPLETED:
                continue
            body = kinds.read(kinds.StepCompleted, event.body, where=f"event {index}")
            first = known.setdefault((body.step, body.identity), body)
            for name, expected, found in (
                ("output.digest", first.output.digest, body.output.digest),
                ("output.size", first.output.size, body.output.size),
                ("metrics", first.metrics, body.metrics),
                ("tables", first.tables, body.tables),
            ):
                if expected != found:
                    yield Contradiction(index, name, str(expected)[:120], str(found)[:120], body.step)
