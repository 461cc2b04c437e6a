"""Keys that are rotated and retired: who is believed before, between and after, and links that somebody changed."""

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger import (
    Draft,
    LedgerError,
    Log,
    LogCheckpoint,
    LogReader,
    Malformed,
    Refused,
    Signer,
    Unverified,
    check,
    create_key,
    follow_keys,
    load_signer,
    make_proof,
    retire_key,
    rotate_key,
    verify_proof,
)
from ledger.format.checkpoint import open_checkpoint
from tests.ledger.memory import MemoryStorage


def key(number, name="log.example/test"):
    return Signer(name, Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32))


FIRST, SECOND, THIRD = key(1), key(2), key(3)


@pytest.fixture
def log():
    storage = MemoryStorage()
    Log.create(storage, FIRST)
    grow(storage, FIRST, 3)
    return storage


def grow(storage, signer, count):
    with Log.open(storage, signer) as log:
        return log.append([Draft("t/v1", "s", {}) for _ in range(count)])


def readable(storage, signer):
    try:
        LogReader(storage, [signer.verifier]).checkpoint()
    except Unverified:
        return False
    return True


def test_a_log_goes_on_under_another_key_and_old_readers_follow(log):
    rotate_key(log, FIRST, SECOND)
    assert readable(log, FIRST)
    assert readable(log, SECOND)
    grow(log, SECOND, 2)
    rotate_key(log, SECOND, THIRD)
    grow(log, THIRD, 1)
    for trusted in (FIRST, SECOND, THIRD):
        reader = LogReader(log, [trusted.verifier])
        assert reader.checkpoint().size == 8
        assert check(log, [trusted.verifier]) == []
    assert not readable(log, key(9))
    assert [e.type for _, e in LogReader(log, [FIRST.verifier]).events()].count("log.key-rotated/v1") == 2


def test_rotating_again_with_the_same_key_changes_nothing(log):
    rotate_key(log, FIRST, SECOND)
    before = dict(log.files)
    rotate_key(log, FIRST, SECOND)
    assert {n: d for n, d in log.files.items() if n.startswith(("log/tile", "keys"))} == {
        n: d for n, d in before.items() if n.startswith(("log/tile", "keys"))
    }


def test_a_retired_key_counts_up_to_its_size(log):
    proof = make_proof(LogReader(log, [FIRST.verifier]), 1)
    rotate_key(log, FIRST, SECOND)
    retire_key(log, SECOND, [FIRST.verifier])
    keys = follow_keys(log, [FIRST.verifier])
    assert [(k.key_id, k.until) for k in keys] == [(FIRST.verifier.key_id, 4), (SECOND.verifier.key_id, None)]
    assert verify_proof(proof, keys).index == 1
    # Anyone who has the old key signs a longer history with it: nobody who follows the keys believes it.
    forged = LogCheckpoint(FIRST.name, 9, bytes(32)).sign([FIRST]).encode()
    with pytest.raises(Unverified, match="only retired keys signed"):
        open_checkpoint(forged, keys)
    log.files["log/checkpoint"] = forged
    with pytest.raises(Unverified, match="retired"):
        LogReader(log, [FIRST.verifier]).checkpoint()
    assert any("retired" in finding.what for finding in check(log, [FIRST.verifier]))


def test_a_retired_key_appends_no_more(log):
    rotate_key(log, FIRST, SECOND)
    retire_key(log, SECOND, [FIRST.verifier])
    with pytest.raises(Refused, match="retired"):
        Log.open(log, FIRST)
    assert readable(log, FIRST)
    assert check(log, [FIRST.verifier]) == check(log, [SECOND.verifier]) == []


def test_what_cannot_be_changed(log):
    with pytest.raises(Refused, match="another log"):
        rotate_key(log, FIRST, key(2, "other.example/log"))
    with pytest.raises(Refused, match="signs this log now"):
        retire_key(log, FIRST, [FIRST.verifier])
    for kind in ("log.key-rotated/v1", "log.key-retired/v1"):
        with Log.open(log, FIRST) as opened, pytest.raises(Refused, match="by hand"):
            opened.append([Draft(kind, "log/keys", {"vkeys": [str(THIRD.verifier)]})])


def test_links_that_somebody_changed_are_found(log):
    rotate_key(log, FIRST, SECOND)
    grow(log, SECOND, 1)
    link = log.files["keys/0"]
    for at in range(0, len(link), 7):
        log.files["keys/0"] = link[:at] + bytes([link[at] ^ 1]) + link[at + 1 :]
        try:
            believed = {k.key_id for k in follow_keys(log, [FIRST.verifier])}
        except LedgerError:
            believed = set()
        assert believed <= {FIRST.verifier.key_id, SECOND.verifier.key_id}
        assert check(log, [SECOND.verifier]) != [], at
    del log.files["keys/0"]
    assert [f.what for f in check(log, [SECOND.verifier])] == ["an event about keys has no link"]
    assert not readable(log, FIRST)


def test_a_link_for_a_key_that_the_log_never_named(log):
    rotate_key(log, FIRST, SECOND)
    forger = key(7)
    other = MemoryStorage()
    Log.create(other, forger)
    grow(other, forger, 3)
    rotate_key(other, forger, key(8))
    log.files["keys/1"] = other.files["keys/0"]
    assert {k.key_id for k in follow_keys(log, [FIRST.verifier])} == {FIRST.verifier.key_id, SECOND.verifier.key_id}
    assert any("not of an event of this log" in f.what for f in check(log, [FIRST.verifier]))
    log.files["keys/1"] = b"no proof"
    with pytest.raises(Malformed):
        follow_keys(log, [FIRST.verifier])


def test_hybrid_keys_rotate_whole(tmp_path):
    storage = MemoryStorage()
    old = create_key(tmp_path / "old", "log.example/test", hybrid=True)
    Log.create(storage, old)
    grow(storage, old, 1)
    new = create_key(tmp_path / "new", "log.example/test", hybrid=True)
    rotate_key(storage, old, new)
    retire_key(storage, load_signer(tmp_path / "new"), old.verifiers)
    for trusted in (*old.verifiers, *new.verifiers):
        assert check(storage, [trusted]) == [], trusted.algorithm


def without_links(storage):
    bare = MemoryStorage()
    bare.files.update({name: data for name, data in storage.files.items() if not name.startswith("keys/")})
    return bare


def changes(reader):
    return [item for item in reader.events() if item[1].type.startswith("log.key-")]


def test_the_log_itself_refuses_a_retired_key_where_the_links_were_left_out(log):
    rotate_key(log, FIRST, SECOND)
    retire_key(log, SECOND, [FIRST.verifier])
    grow(log, SECOND, 1)
    bare = without_links(log)
    note = LogReader(log, [SECOND.verifier]).checkpoint()
    bare.files["log/checkpoint"] = note.sign([FIRST]).encode()  # anyone who has the old key signs the same tree
    bare.files.pop("log/journal", None)
    reader = LogReader(bare, [FIRST.verifier])
    reader.checkpoint()  # the key is not known to be retired: that stands further inside
    with pytest.raises(Unverified, match="only retired keys signed"):
        reader.signers(changes(reader))
    assert any("link" in finding.what or "retired" in finding.what for finding in check(bare, [FIRST.verifier]))


def test_both_halves_of_a_hybrid_key_sign_once_both_are_published(tmp_path):
    storage = MemoryStorage()
    Log.create(storage, FIRST)
    grow(storage, FIRST, 2)
    hybrid = create_key(tmp_path / "hybrid", "log.example/test", hybrid=True)
    rotate_key(storage, FIRST, hybrid)
    grow(storage, hybrid, 2)
    reader = LogReader(storage, [FIRST.verifier])
    assert {key.algorithm for key in reader.signers(changes(reader))} == {1, 6}
    assert check(storage, [FIRST.verifier]) == []
    for stripped in ([Signer(hybrid.name, hybrid.key)], [*hybrid.companions]):
        storage.files["log/checkpoint"] = reader.checkpoint().sign(stripped).encode()
        storage.files.pop("log/journal", None)
        for trusted in ([FIRST.verifier], hybrid.verifiers):
            half = LogReader(storage, trusted)
            with pytest.raises(Unverified, match="hybrid"):
                half.signers(changes(half))
            assert any("hybrid" in finding.what for finding in check(storage, trusted))


def test_a_hybrid_key_that_was_given_whole_signs_whole(tmp_path):
    hybrid = create_key(tmp_path / "hybrid", "log.example/test", hybrid=True)
    storage = MemoryStorage()
    Log.create(storage, hybrid)
    grow(storage, hybrid, 2)
    reader = LogReader(storage, hybrid.verifiers)
    assert len(reader.signers()) == 2
    for half in (Signer(hybrid.name, hybrid.key), *hybrid.companions):
        storage.files["log/checkpoint"] = reader.checkpoint().sign([half]).encode()
        storage.files.pop("log/journal", None)
        with pytest.raises(Unverified, match="hybrid"):
            LogReader(storage, hybrid.verifiers).signers()


def test_a_key_signs_the_log_that_it_is_named_for(log):
    checkpoint = LogReader(log, [FIRST.verifier]).checkpoint()
    other = LogCheckpoint("other.example/log", checkpoint.size, checkpoint.root)
    log.files["log/checkpoint"] = other.sign([FIRST]).encode()
    log.files.pop("log/journal", None)
    with pytest.raises(Unverified, match="another origin than its name"):
        LogReader(log, [FIRST.verifier]).checkpoint()
    assert any("another origin" in finding.what for finding in check(log, [FIRST.verifier]))
