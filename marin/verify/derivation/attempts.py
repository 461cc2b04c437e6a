"""What a run recorded more than once, and what of it stands. Pure: events in, findings out.

A step may be attempted again: a later event then takes the place of an earlier one, and only the later one is hashed,
executed and compared. So whatever the earlier one says of the same thing must be the same (equal identities have equal
bits), or it is told as what it is: recorded, and judged by nobody. That goes for a step whose inputs had changed, whose
earlier record can agree with nothing that stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet

from ledger import Event
from marin.history.run import Run
from marin.history.runs import read_fact
from marin.kinds.known import among, own_kind
from marin.verify.derivation.record import Contradiction, RunRecord, Stretch, Unjudged, facts, step_of, withdrawn


def superseded(run: Run, stretch: Stretch) -> set[int]:
    """The events of a stretch that tell of a step as it was executed under another identity than the one whose output
    stands, and what its training withdrew."""
    begun: dict[str, str] = {}
    found = set()
    for index, event in stretch.events:
        step = step_of((index, event))
        kind = own_kind(event.type)
        if kind is not None and kind.identifies:
            begun[step] = event.body["identity"]
        elif kind is None or not (kind.step or kind.names_step):
            continue
        view = run.steps.get(step)
        if view is not None and begun.get(step, view.identity) != view.identity:
            found.add(index)
    return found | withdrawn(stretch)


def beside(event: Event) -> bool:
    """Whether an event that names a run, outside of its stream, says nothing of what the run is."""
    return _beside(event) is not None


def _beside(event: Event) -> str | None:
    kind = own_kind(event.type)
    return None if kind is None or kind.beside is None else kind.beside(event)


def unjudged_events(record: RunRecord) -> list[Unjudged]:
    """The events whose place others took, what a user logged of the run with another tool, labels, and places on
    tracks: no judge looks at them."""
    aside: dict[str, list[int]] = {}
    for index, event in record.outside:
        if (what := _beside(event)) is not None:
            aside.setdefault(what, []).append(index)
    found = [Unjudged(at[0], what if len(at) == 1 else f"{what}, {len(at)} times") for what, at in aside.items()]
    found += [Unjudged(index, f"{event.type} of a state that the training withdrew") for index, event in record.aside]
    standing = Standing(record.run)
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
            elif (kind := own_kind(event.type)) is not None and kind.aside is not None:
                fact = read_fact(kind.body, (index, event))
                found += [Unjudged(index, what)] if (what := kind.aside(fact, standing)) else []
    return found


class Standing:
    """What of a run stands, looked up once for all its events (:class:`marin.kinds.kind.Standing`)."""

    def __init__(self, run: Run) -> None:
        self.run = run
        ends = {fact.body.end: fact.body.end_state for fact in run.segments}
        self.states: Mapping[int, str] = ends | {fact.body.start: fact.body.start_state for fact in run.segments}
        self.segments: AbstractSet[tuple[int, int]] = {(fact.body.start, fact.body.end) for fact in run.segments}
        self.checkpoints: AbstractSet[int] = {fact.index for fact in run.checkpoints}


def disagreements(record: RunRecord) -> Iterator[Contradiction]:
    """What was recorded twice, and not equally."""
    standing = Standing(record.run)
    gone = {index for stretch in record.stretches for index in superseded(record.run, stretch)}
    for kind in among({event.type for stretch in record.stretches for _, event in stretch.events}):
        if kind.twice is not None:
            every = [fact for stretch in record.stretches for fact in facts(stretch, kind.body)]
            yield from kind.twice([fact for fact in every if kind.identifies or fact.index not in gone], standing)
