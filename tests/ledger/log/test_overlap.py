"""Placing the next batch while the one before is synced: what is acknowledged, in which order, and what a failure
undoes."""

import random
import threading
import time

import pytest

from ledger import Conflict, Draft, Log, LogReader, OutOfSequence, StorageFailed, check
from ledger.errors import LedgerError
from ledger.service.server import GroupCommit
from tests.ledger.memory import MemoryStorage


def drafts(*numbers: int, stream="s"):
    return [Draft("t/v1", stream, {"n": n}, id=f"{stream}-{n}") for n in numbers]


class Gate(MemoryStorage):
    """Memory whose journal can be held up in the middle of a write, and made to fail there."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.go = threading.Semaphore(0), threading.Semaphore(0)
        self.closed, self.fails, self.written = False, "", 0

    def write_at(self, name, offset, data):
        if self.closed:
            self.reached.release()
            assert self.go.acquire(timeout=600)
        fails, self.fails = self.fails, ""
        if fails == "before":
            raise StorageFailed("no space")
        super().write_at(name, offset, data)
        self.written += 1
        if fails == "after":
            raise StorageFailed("lost the answer")


@pytest.fixture
def gate(signer):
    storage = Gate()
    Log.create(storage, signer)
    return storage


def started(act):
    """The outcome of `act`, which runs in a thread, as a list that is filled when it ends."""
    found = []

    def run():
        try:
            found.append(act())
        except LedgerError as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, found


def numbers(storage, signer):
    return [(event.seq, event.body["n"]) for _, event in LogReader(storage, [signer.verifier]).events()]


def test_events_are_placed_while_others_are_being_synced(gate, signer):
    with Log.open(gate, signer) as log:
        gate.closed = True
        thread, found = started(lambda: log.append(drafts(0, 1)))
        assert gate.reached.acquire(timeout=600)
        written = gate.written
        behind = [
            log.enter([drafts(2)]),
            log.enter([drafts(1), drafts(3, 0)]),
            log.enter([drafts(4), drafts(*range(2))]),
        ]
        wrong = log.enter([[Draft("t/v1", "s", {"n": 9}, id="s-0")], [Draft("t/v1", "s", {}, expect_seq=2)]])
        assert log.checkpoint.size == 0
        assert LogReader(gate, [signer.verifier]).checkpoint().size == 0
        gate.closed = False
        gate.go.release()
        thread.join()
        assert [r.index for r in found[0]] == [0, 1]
        indices = [[r.index for r in outcome] for entered in behind for outcome in entered.outcomes()]
        assert indices == [[2], [1], [3, 0], [4], [0, 1]]
        assert [type(outcome) for outcome in wrong.outcomes()] == [Conflict, OutOfSequence]
        assert gate.written == written + 2  # all that was placed meanwhile went into one commit
        assert {r.tree_size for entered in behind for outcome in entered.outcomes() for r in outcome} == {5}
    assert numbers(gate, signer) == [(n, n) for n in range(5)]
    assert check(gate, [signer.verifier]) == []


@pytest.mark.parametrize("fails", ["before", "after"])
def test_what_was_placed_behind_a_commit_that_failed_is_handed_in_again(gate, signer, fails):
    with Log.open(gate, signer) as log:
        log.append(drafts(0))
        gate.closed = True
        thread, found = started(lambda: log.append(drafts(1)))
        assert gate.reached.acquire(timeout=600)
        behind = log.enter([drafts(2), drafts(1)])
        gate.closed, gate.fails = False, fails
        gate.go.release()
        thread.join()
        assert isinstance(found[0], StorageFailed)
        with pytest.raises(StorageFailed, match="placed behind was not committed") as caught:
            behind.outcomes()
        assert "hand the same events in again" in caught.value.cure
        # Persisted all the same, event 1 has its place already.
        assert [r.index for r in log.append(drafts(2, 1))] == ([2, 1] if fails == "after" else [1, 2])
    assert check(gate, [signer.verifier]) == []
    assert sorted(n for _, n in numbers(gate, signer)) == [0, 1, 2]


def test_publishing_and_closing_wait_for_the_sync(gate, signer):
    log = Log.open(gate, signer)
    gate.closed = True
    appending, found = started(lambda: log.append(drafts(0)))
    assert gate.reached.acquire(timeout=600)
    closing, closed = started(log.close)
    gate.closed = False
    gate.go.release()
    appending.join()
    closing.join()
    assert [r.index for r in found[0]] == [0]
    assert closed == [None]
    assert LogReader(gate, [signer.verifier]).published().size == 1
    assert check(gate, [signer.verifier]) == []


def test_publishing_has_its_turn_however_many_append(gate, signer, monkeypatch):
    waiters = set()

    class Watched(threading.Condition):
        def wait(self, timeout=None):
            waiters.add(threading.current_thread())
            return super().wait(timeout)

    monkeypatch.setattr(threading, "Condition", Watched)  # the log makes its own when it is opened
    with Log.open(gate, signer) as log:
        gate.closed = True
        first, _ = started(lambda: log.append(drafts(0)))
        assert gate.reached.acquire(timeout=600)
        second, _ = started(lambda: log.append(drafts(1)))
        publishing, published = started(log.publish)
        deadline = time.monotonic() + 600
        while publishing not in waiters:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        gate.go.release()
        publishing.join(timeout=600)  # though the second is held up in its sync
        assert published == [None]
        assert LogReader(gate, [signer.verifier]).published().size == 1
        gate.closed = False
        gate.go.release()
        first.join()
        second.join()
    assert numbers(gate, signer) == [(0, 0), (1, 1)]


def test_what_is_placed_stays_when_the_checkpoint_gets_other_signatures(gate, signer):
    with Log.open(gate, signer) as log:
        log.append(drafts(0))
        entered = log.enter([drafts(1)])
        log.resign()
        log.add_cosignatures([])
        log.publish()
        assert [r.index for outcome in entered.outcomes() for r in outcome] == [1]
    assert numbers(gate, signer) == [(0, 0), (1, 1)]
    assert check(gate, [signer.verifier]) == []


def test_what_was_placed_and_never_asked_for_is_not_written_after_closing(gate, signer):
    log = Log.open(gate, signer)
    entered = log.enter([drafts(0)])
    log.close()
    with pytest.raises(LedgerError, match="closed"):
        entered.outcomes()
    assert numbers(gate, signer) == []


@pytest.mark.parametrize("seed", range(6))
def test_many_threads_and_commits_that_fail(gate, signer, seed):
    """Each thread hands its batches in, with repetitions, until they are acknowledged."""
    chance = random.Random(seed)
    plain = gate.write_at

    def flaky(name, offset, data):
        fate = chance.random()
        if fate < 0.1:
            raise StorageFailed("before")
        plain(name, offset, data)
        if fate > 0.9:
            raise StorageFailed("after")

    gate.write_at = flaky
    receipts = {}
    with Log.open(gate, signer, publish_seconds=chance.choice([0.0, 3600.0])) as log:
        group = GroupCommit(log)

        def client(number):
            for start in range(0, 30, 3):
                batch = drafts(*range(start, start + 3), stream=f"s/{number}")
                while True:
                    try:
                        found = group.submit(batch).result() if number % 2 else log.append(batch)
                    except StorageFailed:
                        continue
                    receipts.update({(number, start + at): r.index for at, r in enumerate(found)})
                    break

        threads = [threading.Thread(target=client, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        group.close()
        gate.write_at = plain
    found = {
        (event.stream, event.body["n"]): (index, event.seq)
        for index, event in LogReader(gate, [signer.verifier]).events()
    }
    assert len(found) == 180 == LogReader(gate, [signer.verifier]).checkpoint().size
    assert {(f"s/{number}", n): (index, n) for (number, n), index in receipts.items()} == found
    assert check(gate, [signer.verifier]) == []
