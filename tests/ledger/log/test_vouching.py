"""Keys that a log vouches for: the event, its proof that stands alone, and what is not such a key."""

import base64
import os

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger import (
    KEY_REVOKED,
    KEY_VOUCHED,
    Draft,
    LedgerError,
    Log,
    LogReader,
    Malformed,
    Refused,
    Signer,
    Unavailable,
    Unverified,
    check,
    check_not_revoked,
    check_vouched,
    create_attestation_key,
    load_attestation_key,
    make_proof,
    open_vouched,
    revoke_vouched,
    rotate_key,
    vouch_for,
)
from tests.ledger.memory import MemoryStorage

KEY = ec.derive_private_key(7, ec.SECP256R1())
OTHER = ec.derive_private_key(8, ec.SECP256R1())


def spki(key):
    return key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def test_a_log_vouches_for_a_key_offline(storage, signer):
    proof = vouch_for(storage, signer, KEY)
    vouched = open_vouched(str(proof).encode(), [signer.verifier])
    assert (vouched.origin, vouched.public) == (signer.name, spki(KEY))
    assert vouched.pem.startswith(b"-----BEGIN PUBLIC KEY-----")
    with Log.open(storage, signer) as log:
        size = log.checkpoint.size
    vouch_for(storage, signer, KEY)
    assert LogReader(storage, [signer.verifier]).checkpoint().size == size, "the same event again is no other"
    assert check(storage, [signer.verifier]) == []
    # The possession, put together from the text of the specification and verified without our reader of it.
    body = LogReader(storage, [signer.verifier]).event(vouched.index).body
    text = f"log.key-vouched/v1\n{signer.name}\n{body['public']}\n".encode()
    KEY.public_key().verify(base64.b64decode(body["possession"]), text, ec.ECDSA(hashes.SHA256()))


def test_whoever_trusts_another_key_learns_nothing(storage, signer):
    proof = str(vouch_for(storage, signer, KEY)).encode()
    stranger = Signer(signer.name, Ed25519PrivateKey.generate())
    with pytest.raises(Unverified):
        open_vouched(proof, [stranger.verifier])
    with pytest.raises(LedgerError):
        open_vouched(proof.replace(b"index 0", b"index 1"), [signer.verifier])
    other = MemoryStorage()
    Log.create(other, signer)
    with Log.open(other, signer) as log:
        log.append([Draft("t/v1", "s", {})])
    with pytest.raises(Malformed, match="vouched"):
        open_vouched(str(make_proof(LogReader(other, [signer.verifier]), 0)).encode(), [signer.verifier])


def test_a_key_that_came_later_vouches_too(storage, signer):
    later = Signer(signer.name, Ed25519PrivateKey.from_private_bytes(bytes([6]) * 32))
    rotate_key(storage, signer, later)
    proof = str(vouch_for(storage, later, KEY)).encode()
    assert open_vouched(proof, [later.verifier]).public == spki(KEY)
    assert check(storage, [signer.verifier]) == []


def body_of(storage, signer):
    vouch_for(storage, signer, KEY)
    (event,) = (event for _, event in LogReader(storage, [signer.verifier]).events() if event.type == KEY_VOUCHED)
    return dict(event.body)


def test_events_that_are_none(storage, signer):
    body = body_of(storage, signer)
    assert check_vouched(body, signer.name) == spki(KEY)
    with pytest.raises(Unverified, match="not signed"):
        check_vouched(body, "log.example/other")  # a key is one log's
    with pytest.raises(Unverified, match="not signed"):
        check_vouched(body | {"public": base64.b64encode(spki(OTHER)).decode()}, signer.name)
    p384 = ec.derive_private_key(7, ec.SECP384R1())
    for changed in (
        {"public": base64.b64encode(spki(p384)).decode()},
        {"public": "AAAA"},
        {"public": "no base64"},
        {"public": 7},
        {"possession": "no base64"},
        {"algorithm": "ecdsa-p384-sha384"},
        {"use": "checkpoints"},
        {"more": 1},
    ):
        with pytest.raises(Malformed):
            check_vouched(body | changed, signer.name)
    with pytest.raises(Malformed):
        check_vouched({name: value for name, value in body.items() if name != "by"}, signer.name)


def test_the_audit_judges_them(storage, signer):
    body = body_of(storage, signer) | {"public": base64.b64encode(spki(OTHER)).decode()}
    with Log.open(storage, signer) as log:
        index = log.append_key_event(Draft(KEY_VOUCHED, "log/keys", body)).index
    (finding,) = check(storage, [signer.verifier])
    assert (finding.where, "not signed" in finding.what) == (f"entry {index}", True)


def test_a_revoked_key_is_vouched_for_no_more(storage, signer):
    proof = vouch_for(storage, signer, KEY)
    vouched = open_vouched(str(proof).encode(), [signer.verifier])
    reader = LogReader(storage, [signer.verifier])
    check_not_revoked(vouched.public, reader.events())
    index = revoke_vouched(storage, signer, vouched.index)
    assert revoke_vouched(storage, signer, vouched.index) == index, "the same event again is no other"
    reader.refresh()
    with pytest.raises(Unverified, match=f"event {index}"):
        check_not_revoked(vouched.public, reader.events())
    check_not_revoked(spki(OTHER), reader.events())
    with pytest.raises(Refused, match="revoked this key"):
        vouch_for(storage, signer, KEY)
    with pytest.raises(Refused, match="no key is vouched for there"):
        revoke_vouched(storage, signer, index)
    vouch_for(storage, signer, OTHER)
    assert check(storage, [signer.verifier]) == []


@pytest.mark.parametrize("change", [{"use": "everything"}, {"public": "no base64"}, {"public": None}, {"more": 1}])
def test_a_revocation_that_does_not_say_of_which_key_counts_against_all(storage, signer, change):
    vouched = open_vouched(str(vouch_for(storage, signer, KEY)).encode(), [signer.verifier])
    revoke_vouched(storage, signer, vouched.index)
    body = dict(LogReader(storage, [signer.verifier]).event(1).body) | change
    with Log.open(storage, signer) as log:
        log.append_key_event(Draft(KEY_REVOKED, "log/keys", body, id="odd"))
    reader = LogReader(storage, [signer.verifier])
    with pytest.raises(Unverified):
        check_not_revoked(spki(OTHER), reader.events())
    (finding,) = check(storage, [signer.verifier])
    assert "never vouched for" in str(finding)


@pytest.mark.parametrize("kind", [KEY_VOUCHED, KEY_REVOKED])
def test_no_client_appends_them(storage, signer, kind):
    with Log.open(storage, signer) as log, pytest.raises(Refused):
        log.append([Draft(kind, "log/keys", body_of_nothing())])


def body_of_nothing():
    return {"algorithm": "ecdsa-p256-sha256", "by": [], "possession": "", "public": "", "use": "attestations"}


def test_its_file_is_for_its_owner(tmp_path, signer):
    path = tmp_path / "key.attestations"
    made = create_attestation_key(path, signer.name, passphrase="word")
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert spki(load_attestation_key(path, passphrase="word")) == spki(made)
    for wrong in ("other", None):
        with pytest.raises(Refused):
            load_attestation_key(path, passphrase=wrong)
    with pytest.raises(Unavailable):
        load_attestation_key(tmp_path / "none")
    path.chmod(0o644)
    with pytest.raises(Refused, match="others can read"):
        load_attestation_key(path, passphrase="word")
    (tmp_path / "pem").touch(mode=0o600)
    (tmp_path / "pem").write_text("origin: x\n-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
    with pytest.raises(Refused):
        load_attestation_key(tmp_path / "pem")
