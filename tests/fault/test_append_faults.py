"""The fault table of the append path: every write x {fails, fails but persists, torn, killed before, within, after}.

Whatever happens, the client does the one thing clients do: it hands the same drafts in again until they are
acknowledged, opening the log anew when its process was killed. Afterwards the log opens, every acknowledged event is
where its receipt said, no event is missing or there twice, and the audit finds nothing.
"""

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger import Draft, Log, LogReader, Signer, StorageFailed, check
from tests.fault.faulty import Fault, FaultyStorage, ProcessKilled

SIGNER = Signer("log.example/test", Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
KEYS = [SIGNER.verifier]
# Two tables: a log at its beginning, and one that is about to complete a tile and lose the partial ones.
BATCHES = [1, 2, 1, 3]
ATTEMPTS = 4
PATIENT = -1.0
"""In the place of seconds: the log is opened for each batch, and left with what was committed in its journal."""


def batches(start=0):
    for size in BATCHES:
        yield [Draft("t/v1", f"s/{n % 2}", {"n": n}, id=f"event-{n}") for n in range(start, start + size)]
        start += size


def work(storage, publish_seconds, start):
    """Append all batches as a stubborn client would; the receipts it got."""
    receipts = {}
    pending = list(batches(start))
    log = None
    for _ in range(len(pending) + ATTEMPTS):
        try:
            if log is None:
                log = Log.open(
                    storage, SIGNER, publish_seconds=max(publish_seconds, 0.0), patient=publish_seconds == PATIENT
                )
            while pending:
                acknowledged = log.append(pending[0])
                receipts.update((r.index, r) for r in acknowledged)
                pending.pop(0)
                if publish_seconds == PATIENT:
                    log.leave()
                    log = Log.open(storage, SIGNER, publish_seconds=0.0, patient=True)
            log.leave()
            return receipts
        except StorageFailed:
            if not pending:  # closing failed: the process ends, and the next open finishes the work
                log = None
        except ProcessKilled:
            if log is not None:
                log.__exit__(ProcessKilled, None, None)
            log = None
    raise AssertionError("the client never got through")


def begun(start):
    storage = FaultyStorage()
    Log.create(storage, SIGNER)
    for size in (start // 2, start):
        with Log.open(storage, SIGNER) as log:
            log.append([Draft("t/v1", f"s/{n % 2}", {"n": n}, id=f"event-{n}") for n in range(size)])
    return storage.files


BEGUN = {start: begun(start) for start in (0, 252)}


def fresh(start):
    return FaultyStorage(BEGUN[start])


def writes_of_a_clean_run(publish_seconds, start):
    storage = fresh(start)
    work(storage, publish_seconds, start)
    return storage.writes


WRITES = {
    (seconds, start): writes_of_a_clean_run(seconds, start) for seconds in (0.0, 3600.0, PATIENT) for start in BEGUN
}


def assert_whole(storage, receipts, start):
    storage.forget_faults()
    total = start + sum(BATCHES)
    assert sorted(receipts) == list(range(start, total))
    reader = LogReader(storage, KEYS)
    assert [event.body["n"] for _, event in reader.events()] == list(range(total))
    for index, receipt in receipts.items():
        assert reader.leaf_hash(index).hex() == receipt.leaf_hash
    with Log.open(storage, SIGNER) as log:
        assert [r.index for r in log.append(next(batches(start)))] == [start]
    assert check(storage, KEYS) == []


def test_the_table_covers_every_kind_of_write():
    assert all(writes > 2 * len(BATCHES) for (seconds, _), writes in WRITES.items() if seconds == 0)
    assert all(writes >= len(BATCHES) for writes in WRITES.values())
    assert WRITES[PATIENT, 0] == len(BATCHES), "a patient writer writes its journal and nothing else"


@pytest.mark.parametrize("fault", list(Fault), ids=lambda fault: fault.value)
@pytest.mark.parametrize("start", BEGUN)
@pytest.mark.parametrize("publish_seconds", [0.0, 3600.0, PATIENT], ids=["each", "at the end", "left in the journal"])
def test_one_fault_at_every_write(tenth, publish_seconds, start, fault):
    for write in tenth(range(WRITES[publish_seconds, start])):
        storage = fresh(start)
        storage.fail_at(write, fault)
        receipts = work(storage, publish_seconds, start)
        assert_whole(storage, receipts, start)


@pytest.mark.parametrize("first", list(Fault), ids=lambda fault: fault.value)
@pytest.mark.parametrize("second", [Fault.TORN, Fault.KILLED_AFTER], ids=lambda fault: fault.value)
def test_a_second_fault_during_recovery(tenth, first, second):
    for write in tenth(range(WRITES[0.0, 0])):
        for later in (1, 2, 3):
            storage = fresh(0)
            storage.fail_at(write, first)
            storage.fail_at(write + later, second)
            receipts = work(storage, 0.0, 0)
            assert_whole(storage, receipts, 0)


@pytest.mark.parametrize("fault", list(Fault), ids=lambda fault: fault.value)
@pytest.mark.parametrize("start", BEGUN)
def test_readers_see_a_whole_log_at_every_fault(tenth, start, fault):
    """Before anybody opens it again: a reader and the audit find a log that is whole, only perhaps shorter."""
    for write in tenth(range(WRITES[0.0, start])):
        storage = fresh(start)
        storage.fail_at(write, fault)
        acknowledged = start
        try:
            with Log.open(storage, SIGNER, publish_seconds=0.0) as log:
                for batch in batches(start):
                    acknowledged = log.append(batch)[-1].tree_size
        except (StorageFailed, ProcessKilled):
            pass
        reader = LogReader(storage, KEYS)
        assert reader.checkpoint().size >= acknowledged
        assert [event.body["n"] for _, event in reader.events()] == list(range(reader.checkpoint().size))
        assert check(storage, KEYS) == []


def test_a_log_that_cannot_publish_still_acknowledges_until_its_journal_is_full():
    storage = fresh(0)
    with Log.open(storage, SIGNER, publish_seconds=0.0, journal_bytes=8192) as log:
        refused = 0
        for n in range(20):
            # The journal's write passes; the write of tiles that follows it fails.
            storage.fail_at(1, Fault.FAILS)
            try:
                log.append([Draft("t/v1", "s", {"n": n}, id=f"event-{n}")])
            except StorageFailed:
                refused += 1
            storage.forget_faults()
            assert LogReader(storage, KEYS).checkpoint().size == n + 1
        assert refused > 0
    assert check(storage, KEYS) == []
