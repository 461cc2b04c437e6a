"""A log on S3 (moto's server) and on GCS (a stub with generations and preconditions), as several machines use it."""

import pytest
from http_faults import Fault

from ledger import Draft, Fenced, LedgerError, Log, LogReader, check, open_storage


def drafts(*numbers: int):
    return [Draft("t/v1", "s", {"n": n}, id=f"id-{n}") for n in numbers]


@pytest.fixture
def address(bucket, signer):
    where = f"{bucket.url}/root"
    Log.create(open_storage(where), signer)
    return where


def numbers(address, signer):
    reader = LogReader(open_storage(address, readonly=True), [signer.verifier])
    return [event.body["n"] for _, event in reader.events()]


def test_a_log_lives_in_a_bucket(address, signer):
    for start in (0, 300):
        with Log.open(open_storage(address), signer) as log:
            assert log.append(drafts(*range(start, start + 300)))[-1].index == start + 299
            assert numbers(address, signer) == list(range(start + 300))  # acknowledged, not yet published
    assert check(open_storage(address), [signer.verifier]) == []


@pytest.mark.parametrize("publish_seconds", [0.0, 3600.0])
def test_of_two_sequencers_the_earlier_is_fenced_and_told_so(address, signer, publish_seconds):
    first = Log.open(open_storage(address), signer, publish_seconds=publish_seconds)
    first.append(drafts(0))
    second = Log.open(open_storage(address), signer, publish_seconds=publish_seconds)
    second.append(drafts(1))
    with pytest.raises(Fenced, match="another writer has taken over") as caught:
        first.append(drafts(2))
    assert caught.value.expected
    assert caught.value.found
    assert caught.value.cure
    assert [r.index for r in first.append(drafts(2))] == [2]  # handed in again, it takes over in its turn
    with pytest.raises(Fenced):
        second.append(drafts(3))
    second.append(drafts(3))
    for log in (first, second):
        log.close()
    assert numbers(address, signer) == [0, 1, 2, 3]
    assert check(open_storage(address), [signer.verifier]) == []


@pytest.mark.parametrize("fault", [Fault.STATUS, Fault.STATUS_AFTER])
def test_a_commit_whose_answer_was_lost_makes_each_event_once(address, bucket, signer, fault):
    with Log.open(open_storage(address), signer) as log:
        log.append(drafts(0))
        # However often the client of the bucket repeats it by itself, the outcome is one of two, and handing in again
        # is safe.
        bucket.service.faults.add(fault, method="PUT|POST", path="journal", times=1)
        for _ in range(3):
            try:
                receipts = log.append(drafts(1))
                break
            except LedgerError:
                continue
        assert receipts[0].index == 1
    assert numbers(address, signer) == [0, 1]
    assert check(open_storage(address), [signer.verifier]) == []
