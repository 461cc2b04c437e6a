"""A log in a bucket: two sequencers, of which one is fenced, and nothing acknowledged is lost.

The bucket is obstore's own in memory, with the conditional puts that S3 and GCS have.
"""

import obstore
import obstore.store
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ledger import Draft, Fenced, Log, LogReader, Refused, StorageFailed, check, open_storage
from ledger.storage.objects import ObjectStorage


def drafts(*numbers: int):
    return [Draft("t/v1", "s", {"n": n}, id=f"id-{n}") for n in numbers]


@pytest.fixture
def bucket(signer):
    store = obstore.store.MemoryStore()
    Log.create(ObjectStorage(store, "memory://bucket"), signer)
    return store


def machine(bucket):
    """The bucket as one machine sees it: locks of one are unknown to the other."""
    return ObjectStorage(bucket, "memory://bucket")


def numbers(bucket, signer):
    return [event.body["n"] for _, event in LogReader(machine(bucket), [signer.verifier]).events()]


def test_a_log_in_a_bucket(bucket, signer):
    for start in (0, 300):
        with Log.open(machine(bucket), signer) as log:
            receipts = log.append(drafts(*range(start, start + 300)))
        assert receipts[-1].index == start + 299
    assert numbers(bucket, signer) == list(range(600))
    assert check(machine(bucket), [signer.verifier]) == []


@pytest.mark.parametrize("publish_seconds", [0.0, 3600.0])
def test_of_two_sequencers_one_is_fenced_and_says_so(bucket, signer, publish_seconds):
    first = Log.open(machine(bucket), signer, publish_seconds=publish_seconds)
    first.append(drafts(0))
    second = Log.open(machine(bucket), signer, publish_seconds=publish_seconds)
    assert second.append(drafts(1))[0].index == 1
    with pytest.raises(Fenced, match="another writer has taken over"):
        first.append(drafts(2))
    assert numbers(bucket, signer) == [0, 1]
    assert first.append(drafts(2))[0].index == 2  # it took over again, after loading what the other wrote
    with pytest.raises(Fenced):
        second.append(drafts(3))
    second.append(drafts(3))
    with pytest.raises(Fenced):
        first.append(drafts(4))
    first.close()
    second.close()
    assert numbers(bucket, signer)[:4] == [0, 1, 2, 3]
    assert check(machine(bucket), [signer.verifier]) == []


def test_a_sequencer_that_slept_through_the_life_of_another_is_fenced(bucket, signer):
    sleeper = Log.open(machine(bucket), signer)
    with Log.open(machine(bucket), signer) as log:  # appends, publishes, and removes its journal
        log.append(drafts(0, 1))
    with pytest.raises(Fenced):
        sleeper.append(drafts(2))
    assert sleeper.append(drafts(2))[0].index == 2
    sleeper.close()
    assert numbers(bucket, signer) == [0, 1, 2]


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["append", "publish", "close"])), max_size=25))
@example([(0, "append"), (1, "append"), (0, "append"), (0, "publish"), (1, "append"), (1, "publish"), (1, "append")])
def test_any_interleaving_of_three_sequencers(steps):
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from ledger import Signer

    signer = Signer("log.example/test", Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
    store = obstore.store.MemoryStore()
    Log.create(machine(store), signer)
    logs, acknowledged = {}, {}
    for number, (who, what) in enumerate(steps):
        try:
            if who not in logs:
                logs[who] = Log.open(machine(store), signer, publish_seconds=3600)
            if what == "append":
                (receipt,) = logs[who].append(drafts(number))
                acknowledged[number] = receipt
            elif what == "publish":
                logs[who].publish()
            else:
                logs.pop(who).close()
        except Fenced as error:
            assert "another writer" in str(error)
    reader = LogReader(machine(store), [signer.verifier])
    found = [event.body["n"] for _, event in reader.events()]
    assert len(found) == len(set(found))
    for number, receipt in acknowledged.items():
        assert found[receipt.index] == number
        assert reader.leaf_hash(receipt.index).hex() == receipt.leaf_hash
    assert check(machine(store), [signer.verifier]) == []


def test_an_address_that_cannot_be_used_is_our_own_error(tmp_path):
    with pytest.raises(StorageFailed):
        open_storage("s3://")
    readonly = ObjectStorage(obstore.store.MemoryStore(), "memory://bucket", readonly=True)
    with pytest.raises(Refused):
        readonly.create("a", b"")
