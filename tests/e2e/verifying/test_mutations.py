"""No leaf of a recorded event can be changed so that a verifier still believes all of it.

Hypothesis changes one leaf of one event of an honest run (also re-signed with everything that follows from it, as a
clever operator would), and asks the judges. What executing would say is known without executing: the honest record is
what this machine gives. A change that no judge notices has to be of something that is only claimed: a field that
its kind declares, or a sentence that the report prints as claimed.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger import Event, LedgerError
from marin.history.run import Run
from marin.history.runs import run_ids, stream_of
from marin.kinds.claim import Claim
from marin.kinds.known import own_kind
from marin.pipeline.stages import PIPELINE
from marin.recipe.schema import Execution
from marin.record.events import EVAL_COMPLETED, STEP_COMPLETED, STEP_STARTED, Continues
from marin.verify.case import Case
from marin.verify.derivation.claims import derive
from marin.verify.derivation.record import RunRecord, read_record
from marin.verify.derivation.records import contradictions, unexplained
from marin.verify.judges.artifacts import judge_artifacts
from marin.verify.judges.data import compare_step, other_sources
from marin.verify.judges.training import broken_record
from marin.verify.segments import compare
from tests.adversary.forgeries.workshop import Base, Entry, Shop
from tests.marin.history.events import EventList

if TYPE_CHECKING:
    from tests.e2e.conftest import Project

Place = tuple[int, tuple[str | int, ...]]
"""An event, and the path to a leaf in its body."""


class Judges:
    """The five verdicts on records that differ from an honest one, without executing anything."""

    def __init__(self, shop: Shop) -> None:
        self.shop, self.events = shop, shop.events
        self.honest = self.record(self.events)
        self.claims = self.claimed(self.honest)

    def record(self, events: list[Entry]) -> RunRecord:
        return read_record(
            EventList(
                [
                    (i, Event(e.id or f"new-{i}", e.type, e.stream, i, e.time or "", e.actor or "", e.body))
                    for i, e in enumerate(events)
                ]
            ),
            self.shop.run,
        )

    def claimed(self, record: RunRecord) -> set[str]:
        return {claim.text for claim in derive(record, PIPELINE) if claim.basis == "claimed"}

    def noticed(self, events: list[Entry], folder: Path) -> str:
        """What a judge says of it; "" if nobody notices."""
        try:
            record = self.record(events)
            if found := [*contradictions(record, PIPELINE), *unexplained(record, PIPELINE)]:
                return f"ledger: {found[0]}"
            case = self.case(record, folder)
            broken = broken_record(case, [fact.body for fact in record.run.segments])
            if broken is not None:
                return f"training: {broken.describe()}"
            if found_here := self.executed(record):
                return f"execution: {found_here}"
            store = self.shop.store
            verdict = judge_artifacts(case)
            return "" if verdict.outcome == "PASS" else f"artifacts: {verdict.lines[0]} {store.storage}"
        except LedgerError as error:
            return f"ledger: {error}"

    def case(self, record: RunRecord, folder: Path) -> Case:
        root = self.shop.root
        return Case(root, root.store(), root.history(), [], record, record.run, Execution(devices=1), 1, 1, folder)

    def executed(self, record: RunRecord) -> str:
        """What the judges who execute would say."""
        honest, run = self.honest.run, record.run
        if set(run.steps) != set(honest.steps):
            return "steps"
        for name, view in run.steps.items():
            true = honest.steps[name]
            if name == "train":
                continue
            for line in compare_step(view, true):
                return line
        sources = self.sources(honest)
        for line in other_sources(record, sources):
            return line
        for mine, theirs in zip(run.segments, honest.segments, strict=True):
            found = compare.ReplayedSegment(
                *(
                    getattr(theirs.body, name)
                    for name in ("losses", "batches", "fingerprints", "start_state", "end_state")
                ),
                self.shop.store.read(theirs.body.trace),
            )
            if (difference := compare.segment(mine.body, found, None, ())) is not None:
                return difference.describe()
        return "" if run.recipe == honest.recipe else "recipe"

    def sources(self, honest: Run) -> dict[str, str]:
        (begun,) = [e for e in self.events if e.type == "step.started/v1" and e.body["step"] == "corpus"][:1]
        found: dict[str, str] = begun.body["config"]["sources"]
        return dict(found)


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, list) and value:
        for place, item in enumerate(value):
            yield from leaves(item, (*path, place))
    else:
        yield path


def other(value: Any, digests: list[str], pick: Callable[[int], int]) -> Any:
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + (1, -1, 1000)[pick(3)]
    if isinstance(value, float):
        return value * 2 + 1
    if value is None:
        return "x"
    if isinstance(value, str) and value.startswith("sha256:"):
        return [digest for digest in digests if digest != value][pick(len(digests) - 1)]
    if isinstance(value, str) and "0x" in value:
        number = float.fromhex(value)
        return (number * (1 + 2**-20) + (not number), -number, number / 2 + 1)[pick(3)].hex()
    return {"x": 1} if isinstance(value, dict) else ["x"] if isinstance(value, list) else f"{value}1"


def changed(events: list[Entry], place: Place, digests: list[str], pick: Callable[[int], int]) -> list[Entry]:
    found = [copy.copy(entry) for entry in events]
    index, path = place
    found[index].body = copy.deepcopy(found[index].body)
    target: Any = found[index].body
    for part in path[:-1]:
        target = target[part]
    target[path[-1]] = other(target[path[-1]], digests, pick)
    return found


def followed(shop: Shop, events: list[Entry]) -> list[Entry]:
    """Everything else made to agree, as far as the change leaves it in a form."""
    mine = copy.copy(shop)
    mine.events = [copy.copy(entry) for entry in events]
    for entry in mine.events:
        entry.body = copy.deepcopy(entry.body)
    try:
        mine.follow()
    except (LedgerError, KeyError, TypeError, ValueError, AttributeError):
        return events
    return mine.events


def declared(entry: Entry, path: tuple[str | int, ...]) -> bool:
    kind = own_kind(entry.type)
    return kind is not None and kind.run is not None and path[0] in kind.run.claimed


@pytest.fixture(scope="session")
def judges(trained: Project, tmp_path_factory: pytest.TempPathFactory) -> Judges:
    (key,) = (trained.home / "config" / "marin").rglob("*.key")
    folder = tmp_path_factory.mktemp("mutations")
    (run,) = run_ids(Base(folder, trained.root, key, "").root.history())
    return Judges(Shop(Base(folder, trained.root, key, run), run, folder))


def places(judges: Judges) -> list[Place]:
    return [
        (index, path)
        for index, entry in enumerate(judges.events)
        if entry.stream == stream_of(judges.shop.run)
        for path in leaves(entry.body)
    ]


def digests_of(judges: Judges) -> list[str]:
    text = json.dumps([entry.body for entry in judges.events])
    return sorted({part for part in text.split('"') if part.startswith("sha256:")})


def test_the_honest_record_is_believed(judges: Judges, tmp_path: Path) -> None:
    assert judges.noticed(judges.events, tmp_path) == ""


def test_what_a_run_reported_before_it_was_left_is_derived_for_the_phase_that_continues_it(judges: Judges) -> None:
    ended = next(i for i, e in enumerate(judges.events) if (e.type, e.body.get("step")) == (STEP_COMPLETED, "train"))
    told = next(entry for entry in judges.events if entry.type == EVAL_COMPLETED)
    left = judges.record([*judges.events[:ended], told])
    (*trained, evaluated) = [item.what for item in unexplained(left, PIPELINE)]
    assert trained and all("of step train, which has no end" in what for what in trained)
    assert evaluated == f"an event of type {EVAL_COMPLETED} of step evaluate, which has no end"
    begun = next(e for e in judges.events if (e.type, e.body.get("step")) == (STEP_STARTED, "evaluate"))
    segment = left.run.segments[-1].body
    until = Continues(run="later", step=segment.end, state=segment.end_state, checkpoint=segment.end_state)
    assert [item.what for item in unexplained(left, PIPELINE, until=until)] == [evaluated]
    more = judges.record([*judges.events[:ended], begun, told])
    rests, _ = [item.what for item in unexplained(more, PIPELINE, until=until)]
    assert rests == f"an event of type {STEP_STARTED}, which rests on the end of step train, which has none"

    def left_open(claims: Iterable[Claim]) -> bool:
        return any("of step train, which has no end" in claim.text for claim in claims)

    assert left_open(derive(left, PIPELINE)) and not left_open(derive(left, PIPELINE, until=until))


@settings(max_examples=60, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_leaf_can_be_changed_unnoticed(
    judges: Judges, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    known = places(judges)
    index, path = data.draw(st.sampled_from(known))
    events = changed(
        judges.events, (index, path), digests_of(judges), lambda count: data.draw(st.integers(0, count - 1))
    )
    if data.draw(st.booleans()):
        events = followed(judges.shop, events)
    if all(mine.body == theirs.body for mine, theirs in zip(events, judges.events, strict=True)):
        return  # what follows made it true again
    if judges.noticed(events, tmp_path_factory.mktemp("case")) or declared(judges.events[index], path):
        return
    assert judges.claimed(judges.record(events)) != judges.claims, (judges.events[index].type, path)
