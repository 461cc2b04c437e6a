"""Attestations under a key that the log vouches for, as Sigstore's own client in Python reads them from a Rekor v2, offline.

The log of this test has C2SP's form, and an entry as Rekor v2 appends it for our request. sigstore-python reads
bundles with a certificate alone, so the vouched key stands in one that the test signs itself; whether a certificate is to be
believed is not asked here. Asked are the envelope's signature, whether the log's entry is that of the envelope and the key,
whether it is in the log, and whether the log signed its checkpoint: all that ``Verifier.verify_dsse`` asks of the two.
"""

import base64
import datetime
import hashlib
import json

import foreign_log
import judges
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from programs import ask

from ledger import LogReader, PosixStorage, VerifierKey, load_attestation_key
from marin.history.runs import load, resolve
from marin.plugins.sharing.rekor import check, entry, write_requests
from marin.record.keys import vouch
from tests.foreign.test_exports import Exported

READER = """
import base64, json, sys
from sigstore import dsse
from sigstore.models import Bundle
from sigstore._internal.trust import Keyring
from sigstore.verify.verifier import _validate_hashedrekord_v002_dsse_entry_body
from sigstore_models.common import v1
given = json.load(sys.stdin)
log = v1.PublicKey(raw_bytes=given["log"], key_details=v1.PublicKeyDetails.PKIX_ED25519)
for number, raw in enumerate(given["bundles"]):
    try:
        bundle = Bundle.from_json(json.dumps(raw))
        dsse._verify(bundle.signing_certificate.public_key(), bundle._dsse_envelope)
        _validate_hashedrekord_v002_dsse_entry_body(bundle)
        bundle.log_entry._verify(Keyring([log]))
        print(number, "holds")
    except Exception as error:
        print(number, type(error).__name__, " ".join(str(error).split())[:80])
"""


@pytest.fixture(scope="module")
def requested(tmp_path_factory):
    """The folder of `marin export --rekor`, its log's key, and the vouched key's private half."""
    folder = tmp_path_factory.mktemp("rekor")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MARIN_KEY", str(folder / "key"))
        root = Exported(folder).root
        path, proof = vouch(root)
        run = load(root.history(), resolve(root.history(), "latest"))
        key = load_attestation_key(path)
        assert write_requests(run, root.verifier, key, proof, folder / "out") == 1
        return folder / "out", root.verifier, key


def certified(key):
    """The key in a certificate that signs itself."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test.example/log")])
    now = datetime.datetime(2026, 11, 29, tzinfo=datetime.UTC)
    built = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    built = built.serial_number(1).not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))
    return built.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def encoded(data):
    return base64.b64encode(data).decode()


def test_sigstore_python_reads_our_requests(requested, tmp_path, judge):
    folder, verifier, key = requested
    vouched, (payload,) = check(folder, [verifier])
    envelope = json.loads((folder / "0.intoto.json").read_bytes())
    signature = base64.b64decode(envelope["signatures"][0]["sig"])
    certificate = certified(key)
    ours = entry(payload, signature, vouched.public, certificate=certificate)
    foreign_log.write_log(tmp_path / "log", [b"another", ours, b"a third"])
    named = VerifierKey.parse(foreign_log.vkey())
    reader = LogReader(PosixStorage(tmp_path / "log", readonly=True), [named], log="")
    material = named.name.encode() + b"\n" + bytes([named.algorithm]) + named.public

    def bundle(envelope=envelope, body=ours, certificate=certificate, index=1, size=3, root=None, note=None):
        inclusion = {
            "logIndex": str(index),
            "rootHash": encoded(root or reader.checkpoint().root),
            "treeSize": str(size),
            "hashes": [encoded(value) for value in reader.inclusion_proof(1)],
            "checkpoint": {"envelope": note or reader.note().decode()},
        }
        logged = {
            "logIndex": str(index),
            "logId": {"keyId": encoded(hashlib.sha256(material).digest())},
            "kindVersion": {"kind": "hashedrekord", "version": "0.0.2"},
            "inclusionPromise": {"signedEntryTimestamp": encoded(b"none")},  # no time of ours is asked for
            "inclusionProof": inclusion,
            "canonicalizedBody": encoded(body),
        }
        found = {"certificate": {"rawBytes": encoded(certificate)}, "tlogEntries": [logged]}
        kind = "application/vnd.dev.sigstore.bundle.v0.3+json"
        signed = envelope | {"signatures": [{"sig": one["sig"]} for one in envelope["signatures"]]}
        return {"mediaType": kind, "verificationMaterial": found, "dsseEnvelope": signed}

    other = ec.generate_private_key(ec.SECP256R1())
    stranger = entry(payload, signature, vouched.public, certificate=certified(other))
    changed = envelope | {"payload": encoded(payload.replace(b"export", b"exporT", 1))}
    bit = envelope | {"signatures": [{"sig": encoded(signature[:-1] + bytes([signature[-1] ^ 1]))}]}
    bundles = [
        bundle(),
        bundle(envelope=changed),
        bundle(envelope=bit),
        bundle(envelope=envelope | {"payloadType": "text/plain"}),
        bundle(certificate=certified(other)),
        bundle(body=stranger),
        bundle(body=entry(payload, signature, vouched.public)),
        bundle(index=0),
        bundle(root=bytes(32)),
        bundle(note=reader.note().decode().replace("\n3\n", "\n4\n")),
    ]
    spki = ed25519_spki(named.public)
    python = judges.room("python") / "bin/python"
    status, said = ask(python, "-c", READER, stdin=json.dumps({"log": encoded(spki), "bundles": bundles}).encode())
    answers = [line for line in said.splitlines() if line[:1].isdigit()]
    assert (status, len(answers)) == (0, len(bundles)), said
    assert answers[0] == "0 holds", said
    assert all("VerificationError" in line for line in answers[1:]), said
    judged = judge("sigstore-python", judges.version("python", "sigstore"))
    judged.accepts(
        "an attestation under the vouched key, with the entry of a Rekor v2, which is in a log of C2SP's form"
    )
    judged.refuses(
        "the same with another payload, type or bit of the signature, another key, another entry, index or root, and a "
        "checkpoint that the log did not sign"
    )


def ed25519_spki(public):
    return bytes.fromhex("302a300506032b6570032100") + public


def test_rekors_own_code_takes_our_requests(requested, judge):
    """What decides in a Rekor v2 whether a request becomes an entry, and which: the package of its own source."""
    folder, verifier, key = requested
    vouched, (payload,) = check(folder, [verifier])
    asked = json.loads((folder / "0.rekor.json").read_bytes())
    signature = base64.b64decode(asked["hashedRekordRequestV002"]["signature"]["content"])
    certificate = certified(key)

    def changed(change):
        copy = json.loads(json.dumps(asked))
        change(copy["hashedRekordRequestV002"])
        return copy

    pure = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(32))
    digest = base64.b64decode(asked["hashedRekordRequestV002"]["digest"])
    other = encoded(certified(ec.generate_private_key(ec.SECP256R1())))
    asks = [
        asked,
        changed(lambda one: one["signature"].update(verifier=_certificate(encoded(certificate)))),
        changed(lambda one: one.update(digest=encoded(bytes(32)))),
        changed(lambda one: one["signature"].update(content=encoded(signature[:-1] + bytes([signature[-1] ^ 1])))),
        changed(lambda one: one["signature"].update(verifier=_certificate(other))),
        # The log's own kind of key.
        changed(lambda one: one.update(signature=_pure(pure, digest))),
    ]
    lines = "".join(json.dumps(one) + "\n" for one in asks).encode()
    status, said = ask(judges.go_program("rekor", "rekor"), stdin=lines)
    assert status == 0, said
    answers = said.splitlines()
    assert answers[0] == "entry " + entry(payload, signature, vouched.public).decode()
    assert answers[1] == "entry " + entry(payload, signature, vouched.public, certificate=certificate).decode()
    assert [answer.partition(":")[0] for answer in answers[2:]] == ["refused"] * 4, said
    judged = judge("Rekor v2", judges.version("rekor", "golang-github-sigstore-rekor-tiles-dev"))
    judged.accepts(
        "our request for an attestation, and the same with a certificate; its entries are ours, byte for byte"
    )
    judged.refuses("another hash, another bit in the signature, another key; a pure Ed25519 key, as the log's own is")


def _certificate(raw):
    return {"keyDetails": "PKIX_ECDSA_P256_SHA_256", "x509Certificate": {"rawBytes": raw}}


def _pure(key, digest):
    spki = ed25519_spki(key.public_key().public_bytes_raw())
    verifier = {"keyDetails": "PKIX_ED25519", "publicKey": {"rawBytes": encoded(spki)}}
    return {"content": encoded(key.sign(digest)), "verifier": verifier}
