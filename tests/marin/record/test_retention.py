"""Which training checkpoints a policy keeps: against a plain count over train steps, and in the events of a whole ledger."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger import Draft, Store, collect_garbage
from marin.history.referrers import retained_digests
from marin.record.creation import create_root
from marin.record.events import CHECKPOINT_SAVED, TRAIN_STARTED, CheckpointSaved, Retention, TrainStarted, write
from marin.record.retention import let_go
from marin.record.root import Root, open_root

DAY = 86_400.0


def digest(number: int) -> str:
    return f"sha256:{number:064x}"


def started(retention: Retention | None, first: int = 0, run: str = "run00001") -> TrainStarted:
    return TrainStarted(
        run=run,
        first_step=first,
        num_steps=99,
        state=digest(1),
        manifest=digest(2),
        program={},
        seeds={},
        devices=1,
        attempt=1,
        retention=retention,
    )


def saved(step: int, artifact: str | None = None, run: str = "run00001") -> CheckpointSaved:
    artifact = artifact or digest(1000 + step)
    return CheckpointSaved(run=run, step=step, state=digest(step), artifact=artifact, manifest=digest(3), size=1)


@given(
    st.integers(0, 50),
    st.sets(st.integers(1, 40), min_size=1),
    st.sets(st.integers(1, 12), max_size=2),
    st.integers(1, 5),
)
def test_what_is_kept_is_what_was_asked_for(first: int, lengths: set[int], every: set[int], last: int) -> None:
    steps = [first + length for length in sorted(lengths)]
    begun = [started(None, first), started(Retention(every=sorted(every), last=last), steps[0])]
    gone = let_go(begun, [saved(step) for step in steps])
    wanted = {step for step in steps if any((step - first) % each == 0 for each in every)} | set(steps[-last:])
    assert gone == {saved(step).artifact for step in steps if step not in wanted}


def test_the_newest_attempt_decides_and_without_a_policy_all_stay() -> None:
    states = [saved(step) for step in (3, 6, 9)]
    strict = started(Retention(every=[], last=1))
    assert let_go([], states) == let_go([started(None)], states) == let_go([strict, started(None)], states) == set()
    assert let_go([started(None), strict], states) == {saved(3).artifact, saved(6).artifact}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Root:
    monkeypatch.setenv("MARIN_KEY", str(tmp_path / "key"))
    monkeypatch.setenv("MARIN_ROOT", str(tmp_path / ".marin"))
    monkeypatch.chdir(tmp_path)
    create_root()
    return open_root()


def test_collection_sets_aside_what_is_let_go_and_nothing_that_another_event_names(root: Root) -> None:
    store = root.store()
    states = {step: store.put_bytes(b"state %d" % step).digest for step in (1, 2, 3, 4, 5)}
    strict = started(Retention(every=[2], last=1))
    told: list[tuple[str, str, TrainStarted | CheckpointSaved]] = [("run/run00001", TRAIN_STARTED, strict)]
    told += [("run/run00001", CHECKPOINT_SAVED, saved(step, states[step])) for step in states]
    told += [  # another run keeps all of its states, one of which is a state of the first
        ("run/run00002", TRAIN_STARTED, started(None, run="run00002")),
        ("run/run00002", CHECKPOINT_SAVED, saved(3, states[3], "run00002")),
    ]
    root.append([Draft(kind, stream, write(body)) for stream, kind, body in told])
    names = retained_digests(event for _, event in root.reader().events())
    assert [step for step in states if states[step] in names] == [2, 3, 4, 5]
    done = collect_garbage(store, names, min_age=DAY, now=time.time() + 2 * DAY)
    assert [swept.act for swept in done.swept] == ["set aside"]
    fresh = Store(root.storage)
    assert [step for step in states if fresh.has(states[step])] == [1, 2, 3, 4, 5], "asked for, it comes back"


def test_a_record_without_a_policy_is_written_and_read_as_before() -> None:
    plain = write(started(None))
    assert plain["retention"] is None
    plain.pop("retention")
    assert msgspec.convert(plain, TrainStarted).retention is None
    for wrong in ({"every": [0], "last": 1}, {"every": [], "last": 0}, {"every": 3, "last": 1}, {}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(plain | {"retention": wrong}, TrainStarted)
