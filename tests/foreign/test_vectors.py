"""Published cases: what signatures and canonical forms must be, and must not be."""

import gzip
import json
from typing import Self

import judges
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger import Signer, VerifierKey
from ledger.format import cosignature
from ledger.format.cosignature import COSIGNATURE_MLDSA44, pack_cosignature
from ledger.format.note import ED25519


class Message(str):
    """A text whose encoding is given: vectors sign arbitrary bytes, notes are texts."""

    def __new__(cls, data) -> Self:
        made = super().__new__(cls)
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
        if case.get("ctx") or len(public) != 1312:  # a key of another length is none: VerifierKey refuses it
            continue
        monkeypatch.setattr(cosignature, "mldsa44_message", lambda *_, message=message: message)
        key = VerifierKey("vectors.example", COSIGNATURE_MLDSA44, public)
        found = key.verify("", pack_cosignature(0, bytes.fromhex(case["sig"])))
        assert found == (case["result"] == "valid"), case["tcId"]
        verdicts.append(found)
    said(judged, "ML-DSA-44", verdicts)


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
