"""Published cases: what signatures and canonical forms must be, and must not be."""

import gzip
import hashlib
import json
from base64 import b64decode
from typing import Self

import judges
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from programs import ask

from ledger import LedgerError, Signer, VerifierKey
from ledger.format import cosignature
from ledger.format.checkpoint import open_checkpoint
from ledger.format.cosignature import COSIGNATURE_MLDSA44, pack_cosignature
from ledger.format.note import ED25519
from ledger.format.tlog import leaf_hash, verify_inclusion


class Message(str):
    """A text whose encoding is given: vectors sign arbitrary bytes, notes are texts."""

    def __new__(cls, data) -> Self:
        made = super().__new__(cls, data.hex())  # signatures that were looked at are remembered by the text
        made.data = data
        return made

    def encode(self):
        return self.data


def wycheproof(name):
    room = judges.room("vectors") / "usr/share/gocode/src/github.com/c2sp/wycheproof/testvectors_v1"
    for group in json.loads((room / f"{name}_test.json").read_text())["testGroups"]:
        for case in group["tests"]:
            yield group, case


def said(judged, kind, verdicts):
    judged.accepts(f"{verdicts.count(True)} valid signatures of {kind}")
    judged.refuses(f"{verdicts.count(False)} invalid ones of {kind}")


def test_wycheproof_ed25519(judge):
    judged = judge("Wycheproof", judges.version("vectors"))
    verdicts = []
    for group, case in wycheproof("ed25519"):
        key = VerifierKey("vectors.example", ED25519, bytes.fromhex(group["publicKey"]["pk"]))
        found = key.verify(Message(bytes.fromhex(case["msg"])), bytes.fromhex(case["sig"]))
        assert found == (case["result"] == "valid"), case["tcId"]
        verdicts.append(found)
    said(judged, "Ed25519", verdicts)


def test_wycheproof_ml_dsa_44(judge, monkeypatch):
    """Our messages have no context string, so cases with one are not ours."""
    judged = judge("Wycheproof", judges.version("vectors"))
    verdicts = []
    for group, case in wycheproof("mldsa_44_verify"):
        public, message = bytes.fromhex(group["publicKey"]), bytes.fromhex(case["msg"])
        if case.get("ctx") or len(public) != 1312:  # a key of another length is not a key: VerifierKey refuses it
            continue
        monkeypatch.setattr(cosignature, "mldsa44_message", lambda *_, message=message: message)
        key = VerifierKey("vectors.example", COSIGNATURE_MLDSA44, public)
        found = key.verify("", pack_cosignature(0, bytes.fromhex(case["sig"])))
        assert found == (case["result"] == "valid"), case["tcId"]
        verdicts.append(found)
    said(judged, "ML-DSA-44", verdicts)


def test_cctv_ed25519(judge):
    """Points of low order, in encodings that are canonical and not. What ref10 does is what we do: RFC 8032 without the
    cofactor, where R is compared as bytes."""
    judged = judge("CCTV", judges.version("cctv")[:12])
    verdicts = []
    for case in json.loads((judges.room("cctv") / "CCTV/ed25519/ed25519vectors.json").read_text()):
        key = VerifierKey("vectors.example", ED25519, bytes.fromhex(case["key"]))
        found = key.verify(Message(case["msg"].encode()), bytes.fromhex(case["sig"]))
        assert found == (not {"non_canonical_R", "low_order_residue"} & set(case["flags"] or ())), case
        verdicts.append(found)
    said(judged, "Ed25519 at the edges of the curve", verdicts)


def test_cctv_ml_dsa_44(judge, monkeypatch):
    """Keys and signatures from a chain of random seeds; one published hash is of all of them. Go signs, which may do
    so without drawing anything; that these are the published ones, the hash says; we verify them."""
    judged = judge("CCTV", judges.version("cctv")[:12])
    page = (judges.room("cctv") / "CCTV/ML-DSA/accumulated/README.md").read_text()
    published = page.split("### ML-DSA-44")[1].split("100 iterations: `")[1][:64]
    status, lines = ask(judges.go_program("mldsasign"), stdin=hashlib.shake_128().digest(32 * 100))
    assert status == 0, lines
    accumulated = hashlib.shake_128()
    monkeypatch.setattr(cosignature, "mldsa44_message", lambda *_: b"")
    verdicts = []
    for public, signature in (map(bytes.fromhex, line.split()) for line in lines.splitlines()):
        accumulated.update(public)
        accumulated.update(signature)
        key = VerifierKey("vectors.example", COSIGNATURE_MLDSA44, public)
        for bits, right in ((0, True), (1 << len(verdicts) % 8, False)):
            altered = signature[:99] + bytes([signature[99] ^ bits]) + signature[100:]
            verdicts.append(key.verify("", pack_cosignature(0, altered)))
            assert verdicts[-1] is right
    assert accumulated.digest(32).hex() == published
    said(judged, "ML-DSA-44", verdicts)


def test_sigstore_conformance_checkpoints(judge):
    """Checkpoints of Rekor v2, which are C2SP's: cosigned, with signatures in any order, without origin, size or root."""
    judged = judge("sigstore-conformance", judges.version("sigstore-conformance")[:12])
    cases = sorted(
        (judges.room("sigstore-conformance") / "sigstore-conformance/test/assets/bundle-verify").glob(
            "rekor2-checkpoint-*"
        )
    )
    verdicts = []
    for case in cases:
        (entry,) = json.loads((case / "bundle.sigstore.json").read_text())["verificationMaterial"]["tlogEntries"]
        log = next(
            log
            for log in json.loads((case / "trusted_root.json").read_text())["tlogs"]
            if log["logId"] == entry["logId"]
        )
        public = b64decode(log["publicKey"]["rawBytes"])[-32:]  # the last field of a SubjectPublicKeyInfo of Ed25519
        origin = log["baseUrl"].removeprefix("https://")
        key, proof = VerifierKey(origin, ED25519, public), entry["inclusionProof"]
        assert key.key_id.to_bytes(4) == b64decode(log["logId"]["keyId"])[:4]
        body, hashes = b64decode(entry["canonicalizedBody"]), [b64decode(one) for one in proof["hashes"]]
        try:
            checkpoint, _ = open_checkpoint(proof["checkpoint"]["envelope"].encode(), [key], origin=origin)
        except LedgerError:
            verdicts.append(False)
        else:
            verify_inclusion(int(proof["logIndex"]), checkpoint.size, leaf_hash(body), hashes, checkpoint.root)
            verdicts.append(True)
        assert verdicts[-1] is not case.name.endswith("_fail"), case.name
    judged.accepts(f"{verdicts.count(True)} checkpoints of Rekor v2, and the entry that each proves")
    judged.refuses(f"{verdicts.count(False)} checkpoints without origin, size, root or signature of the log")


def test_supercop_ed25519(judge):
    """The signatures that Go's own tests hold themselves to: ours are the same bytes, and no other signature passes."""
    judged = judge("SUPERCOP's Ed25519 table", f"go {judges.version('go')}")
    table = judges.room("go") / "go/src/crypto/ed25519/testdata/sign.input.gz"
    lines = gzip.decompress(table.read_bytes()).decode().splitlines()
    for line in lines:
        secret, public, message, signed, _ = (bytes.fromhex(part) for part in line.split(":"))
        signer = Signer("vectors.example", Ed25519PrivateKey.from_private_bytes(secret[:32]))
        assert signer.verifier.public == public
        signature = signed[:64]
        assert signer.sign(Message(message)) == signature
        assert signer.verifier.verify(Message(message), signature)
        assert not signer.verifier.verify(Message(message + b"\0"), signature)
        assert not signer.verifier.verify(Message(message), signature[:63] + bytes([signature[63] ^ 1]))
    judged.accepts(f"{len(lines)} signatures, byte for byte")
    judged.refuses(f"{2 * len(lines)} with a byte more in the message or another bit in the signature")
