"""Folding events into runs, over a history in memory: pure, so that every order of facts can be tried."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from ledger import Draft, Event, Stray
from marin.errors import MarinError, MissingEvidence, UsageError
from marin.history.executions import facts_of
from marin.history.run import Fact, representative
from marin.history.runs import load, load_all, resolve, run_ids, stream_of
from marin.recipe.schema import Recipe, digest, plain
from marin.record import events as kinds
from marin.record.events import Body, Output
from marin.record.verdicts import NAMES, overall

D = "sha256:" + "d" * 64


def hashed(text: str) -> str:
    return "sha256:" + text.ljust(64, "0")


class Memory:
    """A history that is appended to by hand."""

    def __init__(self) -> None:
        self.log: list[Event] = []

    def add(self, run: str, kind: str, body: Body, stream: str | None = None) -> int:
        stream = stream or stream_of(run)
        seq = sum(event.stream == stream for event in self.log)
        self.log.append(Draft(kind, stream, kinds.write(body)).event(seq, "2026-11-21T10:00:00.000000Z", "test"))
        return len(self.log) - 1

    def events(
        self, *, stream: str | None = None, type: str | None = None, **named: str | None
    ) -> Iterable[tuple[int, Event]]:
        for index, event in enumerate(self.log):
            if (
                stream in (None, event.stream)
                and type in (None, event.type)
                and all(value in (None, event.body.get(name)) for name, value in named.items())
            ):
                yield index, event

    def event(self, index: int) -> Event | None:
        return self.log[index] if index < len(self.log) else None

    def strays(self, naming: str) -> tuple[Stray, ...]:
        return ()

    def newest(self, stream: str) -> int:
        return max((index for index, event in self.events(stream=stream)), default=-1)

    def counts(self, verdict: Fact[kinds.ReplayCompleted]) -> bool:
        return verdict.body.log_checkpoint.get("origin") != "another"

    # One line per fact

    def start(self, run: str) -> int:
        recipe = Recipe()
        return self.add(
            run,
            kinds.RUN_STARTED,
            kinds.RunStarted(
                run=run,
                pipeline="default",
                plan=D,
                recipe_digest=digest(recipe),
                recipe=plain(recipe),
                code={},
                environment={},
            ),
        )

    def begin(self, run: str, step: str, attempt: int = 1) -> int:
        return self.add(
            run,
            kinds.STEP_STARTED,
            kinds.StepStarted(
                run=run, step=step, identity=D, config_digest=D, config={}, inputs={}, code=D, attempt=attempt
            ),
        )

    def complete(self, run: str, step: str, output: str = "a", **metrics: float) -> int:
        return self.add(
            run,
            kinds.STEP_COMPLETED,
            kinds.StepCompleted(
                run=run,
                step=step,
                identity=D,
                inputs={},
                output=out(output),
                seconds=1.5,
                metrics={name: value.hex() for name, value in metrics.items()},
            ),
        )

    def cache(self, run: str, step: str, index: int, output: str = "a") -> int:
        return self.add(
            run,
            kinds.STEP_CACHED,
            kinds.StepCached(run=run, step=step, identity=D, inputs={}, output=out(output), completed_at=index),
        )

    def segment(self, run: str, start: int, end: int, state: str) -> int:
        count = end - start
        return self.add(
            run,
            kinds.TRAIN_SEGMENT,
            kinds.TrainSegment(
                run=run,
                start=start,
                end=end,
                losses=[(1.0).hex()] * count,
                batches=["b"] * count,
                fingerprints=["f"] * count,
                start_state=D,
                end_state=hashed(state),
                trace=D,
            ),
        )

    def fail(self, run: str, step: str) -> int:
        return self.add(run, kinds.STEP_FAILED, kinds.StepFailed(run=run, step=step, identity=D, error="no luck"))


def out(text: str) -> Output:
    return Output(kind="x", digest=hashed(text), size=1, artifact=hashed(text))


@pytest.fixture
def history() -> Memory:
    return Memory()


def test_a_run_is_what_its_events_say(history: Memory) -> None:
    history.start("aaaa")
    history.begin("aaaa", "corpus")
    history.complete("aaaa", "corpus", documents=3.0)
    view = load(history, "aaaa")
    assert (view.status, view.attempts, view.metrics) == ("open", {"corpus": 1}, {"corpus.documents": 3.0})
    assert view.output("corpus") == out("a")
    assert view.recipe == Recipe()
    with pytest.raises(MissingEvidence, match="an output of train, found corpus"):
        view.output("train")


def test_failed_is_what_failed_last(history: Memory) -> None:
    history.start("aaaa")
    history.begin("aaaa", "corpus")
    history.fail("aaaa", "corpus")
    assert load(history, "aaaa").status == "failed"
    history.begin("aaaa", "corpus", attempt=2)
    assert load(history, "aaaa").status == "open"
    history.complete("aaaa", "corpus")
    history.add("aaaa", kinds.RUN_COMPLETED, kinds.RunCompleted(run="aaaa", outputs={"corpus": out("a")}, metrics={}))
    view = load(history, "aaaa")
    assert (view.status, view.attempts["corpus"], len(view.failures)) == ("completed", 2, 1)


def test_a_later_result_of_a_step_stands(history: Memory) -> None:
    history.start("aaaa")
    history.complete("aaaa", "corpus", "a")
    history.complete("aaaa", "corpus", "b")
    assert load(history, "aaaa").output("corpus") == out("b")


def test_a_taken_over_training_brings_the_segments_of_its_origin(history: Memory) -> None:
    history.start("aaaa")
    history.segment("aaaa", 0, 2, "1")
    history.segment("aaaa", 2, 4, "2")
    index = history.complete("aaaa", "train", loss=0.5)
    history.segment("aaaa", 4, 6, "3")  # after the result: of some later doing, not of this result
    history.start("bbbb")
    history.segment("cccc", 0, 2, "9")
    cached = history.cache("bbbb", "train", index)
    view = load(history, "bbbb")
    assert [fact.body.end_state for fact in view.segments] == [hashed("1"), hashed("2")]
    step = view.steps["train"]
    assert (step.cached, step.origin, step.index, step.completed_at, step.metrics) == (
        True,
        "aaaa",
        cached,
        index,
        {"loss": 0.5},
    )


def test_a_repeated_segment_counts_once_and_as_last_recorded(history: Memory) -> None:
    history.start("aaaa")
    history.segment("aaaa", 2, 4, "2")
    history.segment("aaaa", 0, 2, "1")
    history.segment("aaaa", 2, 4, "3")
    view = load(history, "aaaa")
    assert [(fact.body.start, fact.body.end_state) for fact in view.segments] == [(0, hashed("1")), (2, hashed("3"))]


@pytest.mark.parametrize("output", ["other"])
def test_taking_over_what_was_never_recorded_is_found(history: Memory, output: str) -> None:
    history.start("aaaa")
    index = history.complete("aaaa", "corpus", "a")
    history.start("bbbb")
    history.cache("bbbb", "corpus", index, output="b")
    with pytest.raises(MissingEvidence, match="does not hold it"):
        load(history, "bbbb")
    history.start("cccc")
    history.cache("cccc", "corpus", index + 1)
    with pytest.raises(MissingEvidence, match=f"at {index + 1}"):
        load(history, "cccc")


def test_verdicts_are_found_whatever_stream_they_are_in(history: Memory) -> None:
    history.start("aaaa")
    body = kinds.ReplayCompleted(
        run="aaaa",
        verdicts={"ledger": "PASS"},
        training={},
        first_divergence=None,
        log_checkpoint={},
        details={},
        environment={},
    )
    history.add("aaaa", kinds.REPLAY_COMPLETED, body, stream="replay/xyz")
    history.add(
        "bbbb", kinds.REPLAY_COMPLETED, kinds.ReplayCompleted(**{**as_dict(body), "run": "bbbb"}), stream="replay/xyz"
    )
    assert [fact.body.run for fact in load(history, "aaaa").verdicts] == ["aaaa"]
    theirs = {**as_dict(body), "log_checkpoint": {"origin": "another"}}
    history.add("aaaa", kinds.REPLAY_COMPLETED, kinds.ReplayCompleted(**theirs), stream="replay/xyz")
    view = load(history, "aaaa")
    assert (len(view.verdicts), len(view.claimed)) == (1, 1), "what does not count is claimed"


@pytest.mark.parametrize(
    ("mode", "word"), [("full", "PASS"), ("sampled", "PARTIAL"), ("range", "PARTIAL"), (None, "PARTIAL")]
)
def test_a_recorded_pass_of_a_part_is_partial(history: Memory, mode: str | None, word: str) -> None:
    history.start("aaaa")
    body = kinds.ReplayCompleted(
        run="aaaa",
        verdicts=dict.fromkeys(NAMES, "PASS"),
        training={"mode": mode},
        first_divergence=None,
        log_checkpoint={},
        details={},
        environment={},
    )
    history.add("aaaa", kinds.REPLAY_COMPLETED, body)
    (fact,) = load(history, "aaaa").verdicts
    assert (fact.body.verdicts["training"], overall(fact.body.verdicts)) == (word, word)


@pytest.mark.parametrize(("size", "word"), [(0, "PARTIAL"), (1, "PASS")])
def test_what_was_verified_before_the_run_went_on_is_partial(history: Memory, size: int, word: str) -> None:
    history.start("aaaa")
    checkpoint = {"size": size}
    body = kinds.ReplayCompleted("aaaa", dict.fromkeys(NAMES, "PASS"), {"mode": "full"}, None, checkpoint, {}, {})
    for _ in range(2):
        history.add("aaaa", kinds.REPLAY_COMPLETED, body)
    assert [overall(fact.body.verdicts) for fact in load(history, "aaaa").verdicts] == [word, word]


@pytest.mark.parametrize(
    ("said", "word", "shown_at"),
    [
        (({}, {"training": "NOT_RUN", "model": "NOT_RUN"}), "PASS", 0),
        (({}, {"training": "PARTIAL"}), "PASS", 0),
        (({}, {"training": "UNSUPPORTED", "artifacts": "UNAVAILABLE"}), "PASS", 0),
        (({}, {"training": "FAIL"}), "FAIL", 1),
        (({"training": "FAIL"}, {"training": "NOT_RUN"}), "FAIL", 0),
        (({"training": "FAIL"}, {"training": "PARTIAL"}), "FAIL", 0),
        (({"training": "FAIL"}, {}), "PASS", 1),
        (({"training": "NOT_RUN"}, {"ledger": "NOT_RUN", "model": "NOT_RUN"}), "PASS", 1),
        (({"training": "PARTIAL"}, {"training": "NOT_RUN"}), "PARTIAL", 1),
        (({"training": "UNAVAILABLE"}, {"training": "PARTIAL"}), "PARTIAL", 1),
    ],
)
def test_whoever_looks_at_less_later_takes_nothing_back(
    history: Memory, said: tuple[dict[str, str], ...], word: str, shown_at: int
) -> None:
    history.start("aaaa")
    for words in said:
        verdicts = dict.fromkeys(NAMES, "PASS") | words
        history.add(
            "aaaa", kinds.REPLAY_COMPLETED, kinds.ReplayCompleted("aaaa", verdicts, {"mode": "full"}, None, {}, {}, {})
        )
    view = load(history, "aaaa")
    assert overall(view.verdict) == word == view.verified.split()[0]
    assert view.verdicts.index(representative(view.verdicts)) == shown_at


def as_dict(body: Body) -> dict[str, Any]:
    return {name: getattr(body, name) for name in body.__struct_fields__}


def test_a_body_that_does_not_fit_names_its_event(history: Memory) -> None:
    history.start("aaaa")
    history.log.append(
        Draft(kinds.STEP_FAILED, stream_of("aaaa"), {"run": 7}).event(1, "2026-11-21T10:00:00.000000Z", "test")
    )
    with pytest.raises(MarinError, match="event 1"):
        load(history, "aaaa")


def test_unknown_events_are_passed_over(history: Memory) -> None:
    history.start("aaaa")
    history.log.append(Draft("weather.seen/v3", stream_of("aaaa"), {}).event(1, "2026-11-21T10:00:00.000000Z", "test"))
    assert load(history, "aaaa").last_index == 1


def test_names_of_runs(history: Memory) -> None:
    for run in ("abcd", "abxy", "zzzz"):
        history.start(run)
    assert run_ids(history) == ["abcd", "abxy", "zzzz"]
    assert [view.run for view in load_all(history)] == run_ids(history)
    assert [resolve(history, name) for name in ("latest", "z", "abc", "abxy")] == ["zzzz", "zzzz", "abcd", "abxy"]
    with pytest.raises(UsageError, match=r"ambiguous run: ab: .*abcd, abxy"):
        resolve(history, "ab")
    with pytest.raises(UsageError, match=r"unknown run: nope: .*none so called among 3; the newest is zzzz"):
        resolve(history, "nope")
    with pytest.raises(UsageError, match="unknown run"):
        resolve(history, "")
    with pytest.raises(MissingEvidence, match="run/nope"):
        load(history, "nope")


def test_no_runs_at_all(history: Memory) -> None:
    with pytest.raises(UsageError, match=r"there are no runs: .*dvc repro"):
        resolve(history, "latest")


def test_facts_of_a_step_end_where_its_inputs_change() -> None:
    def event(kind: str, **body: str) -> Event:
        return Event(id="i", type=kind, stream="run/r", seq=0, time="2026-11-21T00:00:00Z", actor="a", body=body)

    events = [
        event(kinds.STEP_STARTED, step="train", identity="old"),
        event(kinds.TRAIN_SEGMENT, of="old"),
        event(kinds.STEP_STARTED, step="train", identity="new"),
        event(kinds.TRAIN_SEGMENT, of="new"),
        event(kinds.STEP_STARTED, step="evaluate", identity="other"),
        event(kinds.STEP_STARTED, step="train", identity="new"),
        event(kinds.TRAIN_SEGMENT, of="resumed"),
    ]

    class Recorded:
        def events(self, *, stream: str, type: str) -> list[tuple[int, Event]]:
            return [(index, item) for index, item in enumerate(events) if (item.stream, item.type) == (stream, type)]

    found = facts_of(Recorded(), "run/r", "train", kinds.TRAIN_SEGMENT)  # type: ignore[arg-type]
    assert [item.body["of"] for _, item in found] == ["new", "resumed"]
