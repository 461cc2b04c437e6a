"""A log that is published elsewhere: the same bytes, only ever continued, never half."""

import pytest

from ledger import Conflict, Draft, LedgerError, Log, LogReader, Tampered, check, mirror_log
from tests.ledger.memory import MemoryStorage


@pytest.fixture
def source(signer):
    storage = MemoryStorage()
    Log.create(storage, signer)
    return storage


def grow(storage, signer, count):
    with Log.open(storage, signer) as log:
        log.append([Draft("t/v1", "s", {"n": n}) for n in range(count)])


def standard(storage):
    return {n: d for n, d in storage.files.items() if n.startswith("log/") and n != "log/.lock" and ".p/" not in n}


def test_a_mirror_follows_and_has_the_same_bytes(source, signer):
    target = MemoryStorage()
    for count in (0, 3, 250, 4, 700):
        grow(source, signer, count)
        done = mirror_log(source, target, [signer.verifier])
        assert done.new_size == LogReader(target, [signer.verifier]).checkpoint().size
        assert check(target, [signer.verifier]) == []
        assert standard(target) == standard(source)
    assert mirror_log(source, target, [signer.verifier]).files == 1


def test_another_history_is_not_overwritten(source, signer):
    grow(source, signer, 5)
    target = MemoryStorage(dict(source.files))
    grow(source, signer, 1)
    grow(target, signer, 2)
    before = dict(target.files)
    with pytest.raises(Tampered):
        mirror_log(source, target, [signer.verifier])
    assert target.files == before


def test_a_changed_source_is_not_spread(source, signer):
    grow(source, signer, 300)
    name = "log/tile/entries/000"
    source.files[name] = source.files[name].replace(b'"n":7', b'"n":8')
    target = MemoryStorage()
    with pytest.raises(LedgerError):
        mirror_log(source, target, [signer.verifier])
    assert "log/checkpoint" not in target.files


def test_a_file_that_differs_is_told(source, signer):
    grow(source, signer, 300)
    target = MemoryStorage({"log/tile/0/000": b"other"})
    with pytest.raises(Conflict):
        mirror_log(source, target, [signer.verifier])
