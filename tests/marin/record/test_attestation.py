"""What is attested, beside in-toto's own library and securesystemslib's."""

from __future__ import annotations

import json

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from in_toto_attestation.v1.resource_descriptor import ResourceDescriptor
from in_toto_attestation.v1.statement import Statement
from securesystemslib.dsse import Envelope
from securesystemslib.signer import CryptoSigner

from ledger import Signer
from marin.export.envelope import payload, public_key
from marin.record.attestation import PAYLOAD_TYPE, attestation, attested

FILES = {"b/é.html": "sha256:" + "0" * 64, "a.html": "sha256:" + "1" * 64}
SAID = {"log": "ours", "drawn": {"a.html": ["5", None]}, "more": [True, {"é": "\n"}]}


def test_the_same_bytes_as_by_the_libraries() -> None:
    signer = Signer("ours", Ed25519PrivateKey.generate())
    files = [ResourceDescriptor(name=name, digest={"sha256": FILES[name][7:]}).pb for name in sorted(FILES)]
    theirs = Envelope(payload(Statement(files, "urn:test", SAID)), PAYLOAD_TYPE, {})
    theirs.sign(CryptoSigner(signer.key, public_key(signer.verifier)))
    mine = attestation(FILES, "urn:test", SAID, signer)
    assert mine == json.dumps(theirs.to_dict(), sort_keys=True).encode() + b"\n"
    read = attested(mine, [signer.verifier], "urn:test")
    assert (read.files, read.said, read.key) == (FILES, SAID, str(signer.verifier))
