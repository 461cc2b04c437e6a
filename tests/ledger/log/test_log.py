"""The writer: places, receipts, idempotency, streams, batches, locks, the clock, and opening again."""

import dataclasses
import logging
import sqlite3
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from ledger import (
    AlreadyExists,
    Conflict,
    Draft,
    EventTypes,
    Locked,
    Log,
    LogReader,
    NotFound,
    PosixStorage,
    Refused,
    Signer,
    Tampered,
    Unverified,
    check,
)
from ledger.format.tlog import leaf_hash
from tests.ledger.memory import MemoryStorage


def drafts(count, stream="run/1", start=0):
    return [Draft("test.made/v1", stream, {"number": n}, id=f"{stream}-{n}") for n in range(start, start + count)]


def bodies(storage, signer):
    return [event.body["number"] for _, event in LogReader(storage, [signer.verifier]).events()]


def test_receipts_say_where_events_are(storage, signer):
    with Log.open(storage, signer) as log:
        first = log.append(drafts(2))
        second = log.append(drafts(1, "run/2"))
    assert [(r.index, r.seq, r.tree_size) for r in first + second] == [(0, 0, 2), (1, 1, 2), (2, 0, 3)]
    reader = LogReader(storage, [signer.verifier])
    assert reader.checkpoint().size == 3
    for receipt in first + second:
        assert leaf_hash(reader.entry(receipt.index)).hex() == receipt.leaf_hash


def test_an_acknowledged_event_is_seen_before_it_is_published(storage, signer):
    with Log.open(storage, signer, publish_seconds=3600) as log:
        log.append(drafts(3))
        reader = LogReader(storage, [signer.verifier])
        assert (reader.checkpoint().size, reader.published().size) == (3, 0)
        assert [event.body["number"] for _, event in reader.events()] == [0, 1, 2]
        assert check(storage, [signer.verifier]) == []
        log.publish()
        assert reader.refresh().size == 3
        assert reader.published().size == 3


def test_the_same_id_again_is_the_same_event(storage, signer):
    with Log.open(storage, signer) as log:
        before = log.append(drafts(5))
        again = log.append([*drafts(5), *drafts(1, start=5)])
        assert [(r.index, r.leaf_hash, r.seq) for r in again[:5]] == [(r.index, r.leaf_hash, r.seq) for r in before]
        assert again[5].index == 5
    with Log.open(storage, signer) as log:
        assert [r.index for r in log.append(drafts(6))] == [0, 1, 2, 3, 4, 5]
    assert bodies(storage, signer) == [0, 1, 2, 3, 4, 5]


def test_the_same_draft_twice_in_a_batch_is_one_event(storage, signer):
    (draft,) = drafts(1)
    with Log.open(storage, signer) as log:
        assert [r.index for r in log.append([draft, draft])] == [0, 0]
    assert bodies(storage, signer) == [0]


@pytest.mark.parametrize(
    "change", [{"body": {"number": 9}}, {"type": "test.other/v1"}, {"stream": "run/9"}, {"actor": "x"}]
)
def test_the_same_id_with_other_content_is_refused_and_so_is_its_batch(storage, signer, change):
    (draft,) = drafts(1)
    with Log.open(storage, signer) as log:
        log.append([draft])
        with pytest.raises(Conflict, match=draft.id):
            log.append([*drafts(1, "run/2"), dataclasses.replace(draft, **change)])
        with pytest.raises(Conflict):
            log.append([dataclasses.replace(draft, id="new"), dataclasses.replace(draft, id="new", **change)])
    assert bodies(storage, signer) == [0]


def test_streams_are_numbered_from_zero_without_gaps(storage, signer):
    with Log.open(storage, signer) as log:
        log.append(drafts(3, "a") + drafts(2, "b"))
    with Log.open(storage, signer) as log:
        receipts = log.append(drafts(2, "b", 2) + drafts(1, "a", 3) + drafts(1, "c"))
    assert [r.seq for r in receipts] == [2, 3, 3, 0]


def test_a_wrong_expected_seq_is_refused(storage, signer):
    with Log.open(storage, signer) as log:
        log.append([dataclasses.replace(draft, expect_seq=n) for n, draft in enumerate(drafts(2))])
        for wrong in (0, 1, 3):
            with pytest.raises(Conflict, match="run/1"):
                log.append([Draft("test.made/v1", "run/1", {"number": 2}, expect_seq=wrong)])
        log.append([Draft("test.made/v1", "run/1", {"number": 2}, expect_seq=2)])
    assert bodies(storage, signer) == [0, 1, 2]


@pytest.mark.parametrize(
    "bad",
    [
        Draft("test.made/v1", "run/1", {"number": float("nan")}),
        Draft("test.made/v1", "run/1", {"number": 2**53}),
        Draft("test.made/v1", "run/1", {"number": "x" * 70_000}),
        Draft("test.made", "run/1", {"number": 1}),
        Draft("test.made/v1", "run 1", {"number": 1}),
        Draft("test.made/v1", "run/1", [1]),
        Draft("test.made/v1", "run/1", {"number": 1}, time="yesterday"),
        Draft("test.checked/v1", "run/1", {"number": 1}),
    ],
    ids=["nan", "integer", "size", "type", "stream", "body", "time", "schema"],
)
def test_one_bad_draft_refuses_its_batch_and_leaves_the_log_usable(storage, signer, bad):
    def refuse(body):
        raise Refused("never")

    types = EventTypes()
    types.register("test.checked/v1", refuse)
    with Log.open(storage, signer, types=types) as log:
        with pytest.raises(Refused) as caught:
            log.append([*drafts(2), bad])
        assert caught.value.exit_code == 2
        log.append(drafts(2))
    assert bodies(storage, signer) == [0, 1]
    assert check(storage, [signer.verifier]) == []


def test_nothing_to_append_is_nothing(storage, signer):
    with Log.open(storage, signer) as log:
        assert log.append([]) == []
    assert LogReader(storage, [signer.verifier]).checkpoint().size == 0


def test_a_log_is_created_once(storage, signer):
    with pytest.raises(AlreadyExists):
        Log.create(storage, signer)


def test_where_there_is_no_log_none_opens(tmp_path, signer):
    for storage in (PosixStorage(tmp_path), MemoryStorage()):
        with pytest.raises(NotFound, match="create"):
            Log.open(storage, signer)


def test_another_key_does_not_open_it(storage, signer):
    stranger = Signer(signer.name, Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33))))
    with pytest.raises(Unverified):
        Log.open(storage, stranger)
    with Log.open(storage, signer) as log:
        log.append(drafts(1))


def test_a_second_writer_is_told_who_holds_the_lock(storage, signer):
    with Log.open(storage, signer) as log:
        with pytest.raises(Locked, match="held by"):
            Log.open(storage, signer)
        log.append(drafts(1))
    with Log.open(storage, signer) as log:
        log.append(drafts(1, start=1))


def test_a_writer_waits_for_the_lock(tmp_path, signer):
    import threading

    storage = PosixStorage(tmp_path)
    Log.create(storage, signer)
    first = Log.open(storage, signer)
    opened = threading.Event()

    def second():
        with Log.open(storage, signer, wait=60) as log:
            log.append(drafts(1, start=1))
        opened.set()

    thread = threading.Thread(target=second)
    thread.start()
    first.append(drafts(1))
    assert not opened.is_set()
    first.close()
    thread.join(600)
    assert opened.is_set()
    assert bodies(storage, signer) == [0, 1]


def test_a_closed_log_takes_nothing(storage, signer):
    log = Log.open(storage, signer)
    log.close()
    log.close()
    with pytest.raises(Refused, match="closed"):
        log.append(drafts(1))


def test_a_closed_log_is_only_standard_files(storage, signer):
    with Log.open(storage, signer) as log:
        log.append(drafts(5))
    names = {name for name in storage.list("log/") if name != "log/.lock"}
    assert names == {"log/checkpoint", "log/tile/0/000.p/5", "log/tile/entries/000.p/5"}


def test_partial_tiles_go_when_the_complete_one_is_there(storage, signer):
    for count in (1, 5, 249, 2):
        size = LogReader(storage, [signer.verifier]).checkpoint().size
        with Log.open(storage, signer) as log:
            log.append(drafts(count, start=size))
    assert set(storage.list("log/tile")) == {
        "log/tile/0/000",
        "log/tile/0/001.p/1",
        "log/tile/1/000.p/1",
        "log/tile/entries/000",
        "log/tile/entries/001.p/1",
    }
    assert check(storage, [signer.verifier]) == []


def test_the_journal_is_bounded(storage, signer):
    with Log.open(storage, signer, publish_seconds=3600, journal_bytes=20_000) as log:
        for n in range(30):
            log.append(drafts(1, start=n))
            assert log.checkpoint.size == n + 1
        assert storage.size("log/journal") <= 128 << 10
        assert LogReader(storage, [signer.verifier]).published().size >= 25
    assert bodies(storage, signer) == list(range(30))


@pytest.mark.parametrize("damage", ["missing", "behind", "ahead", "garbage", "foreign"])
def test_the_index_is_folded_again_when_it_does_not_fit(tmp_path, signer, damage, caplog):
    storage = PosixStorage(tmp_path / "root")
    Log.create(storage, signer)
    path = storage.local_path("projections/index.sqlite")
    with Log.open(storage, signer) as log:
        log.append(drafts(3))
    early = path.read_bytes()
    with Log.open(storage, signer) as log:
        log.append(drafts(3, start=3))
    if damage == "missing":
        path.unlink()
    elif damage == "behind":
        path.write_bytes(early)
    elif damage == "ahead":
        with sqlite3.connect(path) as db:
            db.execute("UPDATE cursor SET size = 100")
    elif damage == "garbage":
        path.write_bytes(b"this is no database" * 300)
    else:
        with sqlite3.connect(path) as db:
            db.execute("UPDATE cursor SET root = x'00'")
            db.execute("UPDATE ids SET idx = 0")
    with caplog.at_level(logging.WARNING), Log.open(storage, signer) as log:
        assert [r.index for r in log.append(drafts(7))] == list(range(7))
    assert bool(caplog.records) == (damage in ("ahead", "garbage", "foreign"))
    assert bodies(storage, signer) == list(range(7))


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 11, 21, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def test_time_never_runs_backwards_in_the_log(storage, signer):
    clock = Clock()
    with Log.open(storage, signer, clock=clock) as log:
        log.append(drafts(1))
        clock.now -= timedelta(seconds=2)  # a small step of the time service
        log.append(drafts(1, start=1))
        clock.now -= timedelta(days=1)
        with pytest.raises(Refused, match="clock went backwards"):
            log.append(drafts(1, start=2))
        clock.now += timedelta(days=2)
        log.append(drafts(1, start=2))
    times = [event.time for _, event in LogReader(storage, [signer.verifier]).events()]
    assert times == sorted(times)
    assert times[0] == times[1]


def test_an_event_from_the_future_is_refused(storage, signer):
    clock = Clock()
    with Log.open(storage, signer, clock=clock) as log:
        with pytest.raises(Refused, match="future"):
            log.append([Draft("test.made/v1", "s", {}, time="2027-01-01T00:00:00.000000Z")])
        log.append([Draft("test.made/v1", "s", {}, time="2020-01-01T00:00:00.000000Z")])
    ((_, event),) = LogReader(storage, [signer.verifier]).events()
    assert event.time == "2020-01-01T00:00:00.000000Z"


def test_an_older_checkpoint_put_back_is_noticed(signer):
    storage = MemoryStorage()
    Log.create(storage, signer)
    with Log.open(storage, signer) as log:
        log.append(drafts(3))
    old = storage.files["log/checkpoint"]
    reader = LogReader(storage, [signer.verifier])
    reader.refresh()
    with Log.open(storage, signer, publish_seconds=3600) as log:
        log.append(drafts(1, start=3))
        log.publish()
        log.append(drafts(1, start=4))
        storage.files["log/checkpoint"] = old
        with pytest.raises(Tampered):
            LogReader(storage, [signer.verifier]).checkpoint()
        assert check(storage, [signer.verifier]) != []
        log.publish()
    assert reader.refresh().size == 5
    storage.files["log/checkpoint"] = old
    with pytest.raises(Tampered, match="rolled back"):
        reader.refresh()


def test_two_histories_do_not_mix(signer):
    storage = MemoryStorage()
    Log.create(storage, signer)
    with Log.open(storage, signer) as log:
        log.append(drafts(2))
    fork = MemoryStorage(storage.files)
    for target, numbers in ((storage, 2), (fork, 7)):
        with Log.open(target, signer) as log:
            log.append(drafts(2, start=numbers))
    storage.files["log/checkpoint"] = fork.files["log/checkpoint"]
    with pytest.raises(Tampered):
        LogReader(storage, [signer.verifier]).checkpoint()
    with pytest.raises(Tampered):
        Log.open(storage, signer)


@given(
    st.lists(st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 12)), max_size=5), max_size=8),
    st.sets(st.integers(0, 8)),
)
def test_streams_against_a_model(batches, reopen):
    """Any batches with repeated ids, with the log opened anew at any points: what a dictionary would say."""
    signer = Signer("log.example/test", Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
    storage = MemoryStorage()
    Log.create(storage, signer)
    log = Log.open(storage, signer)
    places, lengths = {}, {}
    for number, batch in enumerate(batches):
        if number in reopen:
            log.close()
            log = Log.open(storage, signer)
        receipts = log.append([Draft("t/v1", stream, {"n": n}, id=f"{stream}{n}") for stream, n in batch])
        for (stream, n), receipt in zip(batch, receipts, strict=True):
            if (stream, n) not in places:
                places[stream, n] = (len(places), lengths.get(stream, 0))
                lengths[stream] = lengths.get(stream, 0) + 1
            assert (receipt.index, receipt.seq) == places[stream, n]
            assert receipt.tree_size >= receipt.index + 1
    log.close()
    assert check(storage, [signer.verifier]) == []
    found = {(e.stream, e.body["n"]): (i, e.seq) for i, e in LogReader(storage, [signer.verifier]).events()}
    assert found == places


class _Counted(MemoryStorage):
    """Stands for a bucket: no local folder, and every bundle that is read is counted."""

    bundles = 0

    def read(self, name):
        self.bundles += "/entries/" in name
        return super().read(name)


def test_the_index_of_a_log_that_is_no_folder_is_kept_between_openings(tmp_path, signer):
    storage, index = _Counted(), tmp_path / "kept" / "index.sqlite"
    Log.create(storage, signer)
    with Log.open(storage, signer, index=index) as log:
        log.append([Draft("t/v1", f"s/{n % 7}", {"n": n}, id=f"id-{n}") for n in range(3000)])
    storage.bundles = 0
    with Log.open(storage, signer, index=index) as log:
        assert storage.bundles == 0  # nothing is folded again
        assert [r.index for r in log.append([Draft("t/v1", "s/3", {"n": 3}, id="id-3")])] == [3]
        assert log.append([Draft("t/v1", "s/3", {}, id="new")])[0].seq == 429
        # Another process on this machine: it gets its index from the log, and this one's file is left in peace.
        with Log.open(MemoryStorage(storage.files), signer, index=index) as other:
            assert other.append([Draft("t/v1", "s/3", {"n": 10}, id="id-10")])[0].index == 10
    storage.bundles = 0
    Log.open(storage, signer).close()
    assert storage.bundles >= 3000 // 256


def test_an_index_of_another_log_is_not_believed(tmp_path, signer):
    index = tmp_path / "index.sqlite"
    for first in ("a", "b"):
        storage = MemoryStorage()
        Log.create(storage, signer)
        with Log.open(storage, signer, index=index) as log:
            log.append([Draft("t/v1", "s", {}, id=f"{first}-{n}") for n in range(300)])
            assert log.append([Draft("t/v1", "s", {}, id=f"{first}-7")])[0].index == 7
            assert log.append([Draft("t/v1", "s", {}, id="fresh")])[0].index == 300
