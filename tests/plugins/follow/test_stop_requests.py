"""A training that a follower asks to stop, or to go back: what it records then, and whom it does not hear.

The training here makes up its states: the bits of a segment are its number, and those of an attempt that computes wrongly
another one. Real ones are in tests/e2e/verifying/test_follow.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from ledger import Draft, digest_bytes
from marin.errors import StoppedByFollower
from marin.execution.executor import run_stage
from marin.execution.plan import Plan
from marin.execution.step import StepDefinition, StepResult, Task
from marin.history.run import Indexed, Run, age_in_words, record_digest, unverified
from marin.history.runs import evaluation_stream, followed, load_all, replay_stream
from marin.kinds.families.measured import EVALUATION_MEASURED
from marin.plugins.follow.requests import StopRequests
from marin.plugins.mlflow.folding.fold import Fold
from marin.plugins.mlflow.folding.intents import Tags
from marin.recipe.schema import from_mapping
from marin.recipe.seeds import seeds_of
from marin.record import events
from marin.record.creation import create_root
from marin.record.root import Root, open_root
from marin.verify.derivation.attempts import unjudged_events
from marin.verify.derivation.record import read_record
from marin.verify.derivation.records import contradictions, unexplained
from tests.marin.history.events import EventList

LENGTH, STEPS = 4, 16
RECIPE = from_mapping({"seed": 3, "trainer": {"num_steps": STEPS, "steps_per_segment": LENGTH}}, where="test")


def bits(*told: object) -> str:
    return digest_bytes(repr(told).encode())


@dataclass
class Trainer:
    """Trains, as far as the ledger can see. ``wrong``: from this train step on its bits are others, at the first time;
    ``between``: called after each segment that was recorded."""

    wrong: int | None = None
    between: Callable[[Task, events.TrainSegment], None] = lambda task, segment: None
    begun: list[int] = field(default_factory=list)

    def plan(self) -> Plan:
        step = StepDefinition("train", (), lambda recipe: {}, ("marin/errors.py",), self.train)
        return Plan("test", (step,))

    def train(self, task: Task) -> StepResult:
        told = task.journal.history(events.TRAIN_SEGMENT)
        at, state = (told[-1].end, told[-1].end_state) if told else (0, bits(0))  # type: ignore[attr-defined]
        wrong = self.wrong if not self.begun else None
        self.begun.append(at)
        arithmetic = RECIPE.arithmetic
        program = {
            "xla_flags": list(arithmetic.xla_flags),
            "threads": arithmetic.threads,
            "profile": arithmetic.profile,
        }
        task.journal.record(
            events.TRAIN_STARTED,
            events.TrainStarted(
                run=task.run,
                first_step=at,
                num_steps=STEPS,
                state=state,
                manifest=bits("list", state),
                program=program,
                seeds=seeds_of(RECIPE),
                devices=1,
                processes=1,
                attempt=task.attempt,
                device={},
            ),
        )
        for start in range(at, STEPS, LENGTH):
            other = wrong is not None and start + LENGTH > wrong
            after = bits(start + LENGTH, "wrong") if other else bits(start + LENGTH)
            saved = {"state": after, "artifact": bits("tree", after), "manifest": bits("list", after), "size": 1}
            task.journal.record(
                events.CHECKPOINT_SAVED, events.CheckpointSaved(run=task.run, step=start + LENGTH, **saved)
            )
            segment = events.TrainSegment(
                run=task.run,
                start=start,
                end=start + LENGTH,
                losses=[float(other).hex()] * LENGTH,
                batches=[bits("batch", start + i) for i in range(LENGTH)],
                fingerprints=[bits("print", start + i, other) for i in range(LENGTH)],
                start_state=state,
                end_state=after,
                trace=bits("trace", start, other),
            )
            task.journal.record(events.TRAIN_SEGMENT, segment)
            state = after
            self.between(task, segment)
        (task.out / "state.json").write_text(state)
        losses = [float.fromhex(one) for body in task.journal.history(events.TRAIN_SEGMENT) for one in body.losses]  # type: ignore[attr-defined]
        trainer = RECIPE.trainer
        tokens = float(STEPS * trainer.batch_size * RECIPE.model.seq_len)
        return StepResult("state", metrics={"loss_first": losses[0], "loss_last": losses[-1], "tokens": tokens})


def ask(root: Root, segment: events.TrainSegment | None, run: str, **named: Any) -> int:
    body = events.StopRequested(
        run=run,
        found="train step 6: the state after the step differs",
        **{
            "step": segment.start if segment is not None else 0,
            "state": segment.start_state if segment is not None else None,
            "segment": record_digest(segment) if segment is not None else None,
            **named,
        },
    )
    (receipt,) = root.append([Draft(events.STOP_REQUESTED, replay_stream(run), events.write(body))])
    return receipt.index


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Root:
    monkeypatch.setenv("MARIN_KEY", str(tmp_path / "key"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return create_root(str(tmp_path / ".marin"), origin="test.example/log")


def stage(root: Root, trainer: Trainer) -> None:
    run_stage("train", plan=trainer.plan(), recipe=RECIPE, root=root, project=None)


def newest(root: Root) -> Run:
    return list(load_all(root.history()))[-1]


def after(step: int, act: Callable[[Task, events.TrainSegment], None]) -> Callable[[Task, events.TrainSegment], None]:
    """Once, when the segment that begins at this train step is recorded."""
    done: list[int] = []

    def between(task: Task, segment: events.TrainSegment) -> None:
        if segment.start == step and not done:
            done.append(step)
            act(task, segment)

    return between


def told(root: Root, kind: str) -> list[Any]:
    return [event.body for _, event in root.reader().events() if event.type == kind]


def test_a_training_that_is_asked_to_stop_records_no_further_segment(root: Root) -> None:
    trainer = Trainer(wrong=6, between=after(4, lambda task, segment: ask(root, segment, task.run) and None))
    with pytest.raises(StoppedByFollower, match="train step 6: the state after the step differs") as stopped:
        stage(root, trainer)
    assert stopped.value.exit_code == 130
    assert [body["start"] for body in told(root, events.TRAIN_SEGMENT)] == [0, 4]
    assert newest(root).status == "interrupted"


def test_the_same_command_goes_on_from_the_last_state_that_held(root: Root) -> None:
    trainer = Trainer(wrong=6, between=after(4, lambda task, segment: ask(root, segment, task.run) and None))
    with pytest.raises(StoppedByFollower):
        stage(root, trainer)
    stage(root, trainer)
    assert trainer.begun == [0, 4]
    run = newest(root)
    assert [fact.body.end_state for fact in run.segments] == [bits(4), bits(8), bits(12), bits(16)]
    assert run.status == "completed"
    assert [(body["step"], body["request"]) for body in told(root, events.TRAIN_WITHDRAWN)]


def test_one_that_is_asked_to_go_back_does_so_without_ending(root: Root) -> None:
    trainer = Trainer(wrong=6, between=after(8, lambda task, _: ask_back(root, task.run)))
    stage(root, trainer)
    assert trainer.begun == [0, 4]
    run = newest(root)
    assert [fact.body.end_state for fact in run.segments] == [bits(4), bits(8), bits(12), bits(16)]
    assert [fact.body.step for fact in run.checkpoints] == [4, 8, 12, 16]
    assert told(root, events.STEP_FAILED) == []


def ask_back(root: Root, run: str) -> None:
    refuted = next(fact.body for fact in newest(root).segments if fact.body.start == 4)
    ask(root, refuted, run, back=True)


def test_without_a_request_nothing_is_recorded_otherwise(root: Root) -> None:
    stage(root, Trainer())
    assert [body["start"] for body in told(root, events.TRAIN_SEGMENT)] == [0, 4, 8, 12]
    assert told(root, events.TRAIN_WITHDRAWN) == []


@pytest.mark.parametrize("named", ["another run", "a state that was never recorded"])
def test_what_is_asked_of_others_or_of_nothing_changes_nothing(root: Root, named: str) -> None:
    def act(task: Task, segment: events.TrainSegment) -> None:
        if named == "another run":
            ask(root, segment, "elsewhere")
        else:  # it stops, as it was asked to; but from there on nothing is believed
            ask(root, segment, task.run, state=bits("nowhere"))

    trainer = Trainer(between=after(8, act))
    if named == "another run":
        stage(root, trainer)
    else:
        with pytest.raises(StoppedByFollower):
            stage(root, trainer)
        stage(root, trainer)
    assert told(root, events.TRAIN_WITHDRAWN) == []
    assert [body["start"] for body in told(root, events.TRAIN_SEGMENT)] == [0, 4, 8, 12]


def test_what_was_found_of_the_data_before_the_training_keeps_it_from_beginning(root: Root) -> None:
    before = Trainer()
    with pytest.raises(StoppedByFollower):  # the run has to be there to be asked
        stage(root, replace(before, between=after(0, lambda task, _: ask(root, None, task.run) and None)))
    again = Trainer()
    run = newest(root).run
    ask(root, None, run)
    with pytest.raises(StoppedByFollower):
        stage(root, again)
    assert again.begun == []
    stage(root, again)  # anyone who gives the command once more has read why
    assert newest(root).status == "completed"


def test_a_request_about_a_segment_that_was_withdrawn_already_is_obeyed_by_nobody(root: Root) -> None:
    """As of a follower that reads a copy and is late."""
    late: list[events.TrainSegment] = []

    def between(task: Task, segment: events.TrainSegment) -> None:
        if segment.start != 8:
            return
        if not late:
            late.append(segment)
            ask_back(root, task.run)
        else:
            ask(root, late[0], task.run)

    trainer = Trainer(wrong=6, between=between)
    stage(root, trainer)
    assert trainer.begun == [0, 4]
    assert newest(root).status == "completed"


def test_a_request_about_a_segment_of_nobody_keeps_no_training_from_beginning(root: Root) -> None:
    with pytest.raises(StoppedByFollower):
        stage(root, Trainer(between=after(4, lambda task, segment: ask(root, segment, task.run) and None)))
    run = newest(root)
    ask(root, replaced(run.segments[0].body), run.run)
    stage(root, Trainer())
    assert newest(root).status == "completed"


def replaced(segment: events.TrainSegment) -> events.TrainSegment:
    """Another record of the same train steps, which the run does not have."""
    return structs.replace(segment, trace=bits("another"))


class Unreadable:
    """A root of which nobody may read anything."""

    def reader(self) -> Any:
        raise AssertionError("the log was read")


def test_to_look_costs_nothing_where_nobody_else_writes() -> None:
    requests = StopRequests(Unreadable(), "r", 7)  # type: ignore[arg-type]
    for index in range(7, 20):
        requests.look(index)
    with pytest.raises(AssertionError, match="the log was read"):
        requests.look(21)


def test_a_request_under_another_key_is_no_request(root: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARIN_KEY", str(tmp_path / "other"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "of the other"))
    other = create_root(str(tmp_path / "elsewhere"), origin="test.example/log")
    ask(other, None, "r")
    vkey = (root.local / "vkey").read_bytes()
    (other.local / "vkey").write_bytes(vkey)  # it says that it is the training's log, and is not
    monkeypatch.setenv("MARIN_KEY", str(tmp_path / "key"))
    StopRequests(open_root(str(other.local)), "r", 0).look(1)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    ask(root, None, "r")
    with pytest.raises(StoppedByFollower):
        StopRequests(root, "r", 0).look(1)


@pytest.fixture
def went_back(root: Root) -> tuple[Plan, list[Indexed]]:
    """The events of a training that went back once, and its plan."""
    trainer = Trainer(wrong=6, between=after(8, lambda task, _: ask_back(root, task.run)))
    stage(root, trainer)
    return trainer.plan(), list(root.reader().events())


def judged(plan: Plan, told: Sequence[Indexed]) -> list[str]:
    history = EventList(told)
    (run,) = load_all(history)
    return [str(item) for item in contradictions(read_record(history, run.run), plan)]


def test_what_was_withdrawn_contradicts_nothing_and_is_told(went_back: tuple[Plan, list[Indexed]]) -> None:
    plan, log = went_back
    assert judged(plan, log) == []
    record = read_record(EventList(log), newest_of(log).run)
    said = [str(item) for item in unjudged_events(record)]
    assert sum("train.segment/v1 of train steps that the training withdrew later" in line for line in said) == 2
    assert "checkpoint.saved/v1" in " ".join(said)


def test_what_was_measured_of_a_withdrawn_state_is_told_and_judged_by_nobody(
    went_back: tuple[Plan, list[Indexed]],
) -> None:
    plan, log = went_back
    run = newest_of(log).run
    for state, aside in ((bits(8, "wrong"), True), (bits(8), False)):
        body = {"run": run, "state": state, "step": 8}
        event = replace(log[-1][1], type=EVALUATION_MEASURED, stream=evaluation_stream(run), body=body)
        record = read_record(EventList([*log, (len(log), event)]), run)
        assert any("a state that the training withdrew" in str(item) for item in unjudged_events(record)) == aside
        assert any(EVALUATION_MEASURED in str(item) for item in unexplained(record, plan)) != aside


def newest_of(log: Sequence[Indexed]) -> Run:
    return list(load_all(EventList(log)))[-1]


@pytest.mark.parametrize(
    "forgery", ["left out", "of another step", "of no request", "before it was asked", "about nothing", "about another"]
)
def test_a_withdrawal_that_nobody_asked_for_is_a_contradiction(
    went_back: tuple[Plan, list[Indexed]], forgery: str
) -> None:
    plan, log = went_back
    asked = next(index for index, event in log if event.type == events.STOP_REQUESTED)
    changed = []
    for index, event in log:
        if event.type == events.TRAIN_WITHDRAWN:
            if forgery == "left out":
                continue
            body = dict(event.body)
            body |= {"of another step": {"step": 8}, "of no request": {"request": 0}}.get(forgery, {})
            event = replace(event, body=body)
        if index == asked and forgery.startswith("about"):
            event = replace(event, body={**event.body, "segment": bits("x") if forgery == "about another" else None})
        if forgery == "before it was asked" and index == asked:
            index = 10_000
        changed.append((index, event))
    if forgery == "before it was asked":
        changed = [
            (i, replace(e, body={**e.body, "request": 10_000}) if e.type == events.TRAIN_WITHDRAWN else e)
            for i, e in changed
        ]
    assert judged(plan, changed) != []


def test_the_age_of_what_nobody_executed_again(root: Root) -> None:
    stage(root, Trainer())
    run = newest(root)
    digests = [record_digest(fact.body) for fact in run.segments]
    assert [unverified(run, digests[:count]) for count in range(5)] == [16, 12, 8, 4, 0]
    assert unverified(run, digests[1:]) == 16  # nothing is known of what comes before
    assert age_in_words(4) == "no state older than 4 train steps is unverified"
    history = root.history()
    assert followed(history, run, history.written.is_mine) == ""
    for fact in run.segments[:3]:
        body = events.ReplaySegment(
            run=run.run, start=fact.body.start, end=fact.body.end, segment=record_digest(fact.body), conditions=bits(0)
        )
        root.append([Draft(events.REPLAY_SEGMENT, replay_stream(run.run), events.write(body))])
    history = root.history()
    assert followed(history, run, history.written.is_mine) == "no state older than 4 train steps is unverified"
    assert followed(history, run, lambda index: False) == ""  # what another author of this log says to have executed
    assert told_to_mlflow(root, own=True)[-1] == "no state older than 4 train steps is unverified"
    assert told_to_mlflow(root, own=False) == []  # what somebody else's log says of itself is no word of ours


def told_to_mlflow(root: Root, *, own: bool) -> list[str]:
    reader = root.reader()
    intents = Fold(root.verifier.name, own=reader if own else None).apply_all(reader.events())
    return [one.values["marin.followed"] for one in intents if isinstance(one, Tags) and "marin.followed" in one.values]
