"""An open run says how far it has come, and since when it gives no sign."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ledger import Draft, format_time
from marin.cli.looking.summary import headline
from marin.cli.looking.watch import status_line
from marin.history.runs import load, stream_of
from marin.history.table.machine import machine_numbers
from marin.history.table.underway import Underway, underway
from marin.record import events
from marin.record.root import open_root
from marin.reporting.pages import draw

Marin = Any
RUN = "livea234"
IDENTITY = "sha256:" + "5" * 64
BEGAN = datetime(2026, 11, 1, 12, 0, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


def append(stream: str, seconds: float, *bodies: events.Body) -> None:
    from marin.kinds.known import type_of

    drafts = [Draft(type_of(type(body)), stream, events.write(body), time=format_time(at(seconds))) for body in bodies]
    open_root().append(drafts)


def lap(step: int, speed: float, pace: float) -> events.MetricsRecorded:
    series = [
        ("system/tokens_per_second", speed),
        ("system/seconds_per_step", pace),
        ("system/cpu_utilization_percentage", 50.0),
        ("system/gpu_0_utilization_percentage", 80.0),
        ("system/gpu_1_utilization_percentage", 60.0),
    ]
    return events.MetricsRecorded(
        run=RUN,
        step="train",
        series=[events.Series(key=key, steps=[step], values=[value.hex()]) for key, value in series],
    )


def segment(start: int, losses: list[float]) -> events.TrainSegment:
    return events.TrainSegment(
        run=RUN,
        start=start,
        end=start + len(losses),
        losses=[loss.hex() for loss in losses],
        batches=["b"] * len(losses),
        fingerprints=["f"] * len(losses),
        start_state=f"sha256:{start:064d}",
        end_state=f"sha256:{start + len(losses):064d}",
        trace="sha256:" + "7" * 64,
    )


@pytest.fixture
def training(root: Path) -> str:
    """A run in its training, under a lease."""
    begun = events.RunStarted(
        run=RUN,
        pipeline="default",
        plan="sha256:" + "a" * 64,
        recipe_digest="sha256:" + "b" * 64,
        recipe={"trainer": {"num_steps": 12}, "dataset": {"name": "grammar"}},
        code={},
        environment={},
    )
    step = events.StepStarted(
        run=RUN, step="train", identity=IDENTITY, config_digest=IDENTITY, config={}, inputs={}, code=IDENTITY, attempt=1
    )
    append(stream_of(RUN), 0, begun, step)
    taken = events.LeaseTaken(
        executor="ex1", host="h", pid=1, born="", until=format_time(at(121)), steps={IDENTITY: "train/a"}
    )
    append(events.LEASES, 1, taken)
    append(stream_of(RUN), 20, segment(0, [8.0, 7.5]), lap(1, 10.0, 9.0))
    append(stream_of(RUN), 30, segment(2, [7.0, 6.5]), lap(3, 400.0, 2.0))
    return RUN


def now(seconds: float) -> Underway:
    history = open_root().history()
    found = underway(history, load(history, RUN), at(seconds))
    assert found is not None
    return found


def test_a_training_says_how_far_it_is_and_how_long_it_takes(training: str) -> None:
    found = now(35)
    assert (found.step, found.done, found.total, found.train_loss) == ("train", 4, 12, 6.5)
    assert (found.speed, found.left, found.silent) == (400.0, 16.0, False), "the first lap has compilation in it"
    assert found.line == "train 4 of 12, 16 s left"
    assert found.sign_in_words(at(35)) == "train, last sign 2026-11-01 12:00:30 UTC, 5 s ago"
    assert machine_numbers(open_root().history(), RUN) == {"tokens_per_second": 400.0}


def test_a_training_by_rewards_is_summed_up_by_its_mean_reward(training: str) -> None:
    root = open_root()
    view, checkpoint = load(root.history(), RUN), root.reader().checkpoint()
    assert dict(headline(view, checkpoint, root.history()))["train loss"].startswith("8.0000 at the first")
    series = events.Series(key="rl/reward", steps=[2, 0], values=[(0.75).hex(), (0.25).hex()])
    append(stream_of(RUN), 31, events.MetricsRecorded(run=RUN, step="train", series=[series]))
    assert "mean reward" not in dict(headline(view, checkpoint, root.history())), "it learns the next token"
    learned = {**view.started.body.recipe, "objective": {"name": "grpo"}}
    started = replace(view.started, body=msgspec.structs.replace(view.started.body, recipe=learned))
    told = dict(headline(replace(view, started=started), checkpoint, root.history()))
    assert told["mean reward"] == "0.2500 at the first train step, 0.7500 at the last (4 steps)"


def test_a_lease_that_is_renewed_is_a_sign_and_one_that_is_not_says_since_when(training: str) -> None:
    append(events.LEASES, 110, events.LeaseRenewed(executor="ex1", until=format_time(at(230))))
    assert not now(200).silent and now(200).sign == at(110)
    assert now(260).silent and now(260).line == "no sign since 11-01 12:01"


def test_a_lease_that_was_given_up_or_taken_from_a_dead_executor(training: str) -> None:
    append(events.LEASES, 40, events.LeaseReleased(executor="ex1", steps=[IDENTITY]))
    assert not now(100).silent and now(170).silent
    taken = events.LeaseTaken(
        executor="ex2", host="i", pid=2, born="", until=format_time(at(400)), steps={IDENTITY: "train/a"}, over=["ex1"]
    )
    append(events.LEASES, 300, taken)
    assert not now(310).silent and now(310).sign == at(300)


def test_ls_show_and_watch_say_it(marin: Marin, training: str) -> None:
    head, row = marin("ls").out.splitlines()
    assert "train loss" in head and "6.5000" in row and row.endswith("no sign since 11-01 12:00"), "long ago by now"
    shown = marin("show", RUN).out
    assert "open, no sign since 2026-11-01 12:00:30 UTC" in shown and "train step  4 of 12" in shown
    assert "processor 50%" in shown and "2 GPUs 70%" in shown
    assert marin("show", RUN, "--json").json["underway"]["train_step"] == 4
    append(stream_of(RUN), 50, events.StepFailed(run=RUN, step="train", identity=IDENTITY, error="no memory"))
    watched = marin("watch", RUN)
    assert (watched.status, watched.out) == (1, "failed\n")
    assert marin("show", RUN, "--json").json["underway"] is None


@pytest.mark.parametrize(
    ("recipe", "said"), [({}, "loop 3"), ({"trainer": {"num_steps": 12}}, "loop 3 of 12, 30 s left")]
)
def test_a_loop_of_ones_own_says_how_far_it_is(marin: Marin, root: Path, recipe: dict[str, Any], said: str) -> None:
    begun = events.RunStarted(
        run=RUN, pipeline=events.LOOP, plan=IDENTITY, recipe_digest=IDENTITY, recipe=recipe, code={}, environment={}
    )
    begins = {"step": events.LOOP, "identity": IDENTITY, "config_digest": IDENTITY, "code": IDENTITY, "attempt": 1}
    append(stream_of(RUN), 0, begun, events.StepStarted(run=RUN, config={}, inputs={}, **begins))
    assert (now(1).line, now(1).left) == ("loop 0 of 12" if recipe else "loop", None)
    segment = events.LoopSegment(run=RUN, start=0, end=3, losses=[(1.0).hex()] * 2 + [(0.5).hex()], batches=[""] * 3)
    append(stream_of(RUN), 10, segment)
    assert (now(15).line, now(15).train_loss) == (said, 0.5)


def test_the_page_of_an_open_run_says_how_far_it_is(training: str) -> None:
    """By its newest event: a page is a function of the log."""
    page = draw(open_root(), training, "report.html").decode()
    cards = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page))
    told = {name: cards[name] for name in ("state", "last sign", "train step", "speed", "time left", "machine")}
    assert told == {
        "state": "open: train",
        "last sign": "2026-11-01 12:00:30 UTC",
        "train step": "4 of 12",
        "speed": "400 tokens a second",
        "time left": "16 s of training",
        "machine": "processor 50%, 2 GPUs 70%",
    }


def test_between_two_steps_watch_says_so(training: str) -> None:
    view = load(open_root().history(), RUN)
    assert status_line(view, replace(now(35), step="", left=None)) == "between two steps · train loss 6.5000"
    assert status_line(view, now(35)) == "train 4 of 12, 16 s left · train loss 6.5000 · 400 tokens/s"
    assert status_line(view, now(260)).startswith("no sign since 11-01 12:00")
