"""Attestations as Sigstore's public log takes them (Rekor v2): a hashedrekord over each envelope's PAE, under an ECDSA key.

Rekor v2 has one type of entry: a hash, a signature over it, and the key (``hashedrekord`` 0.0.2). Its key must be of a kind
that signs a hash, so not the log's own, which is Ed25519. The log vouches for an ECDSA key by an event
(``ledger.log.vouching``), and the folder that is written has what shows all of that offline:

    key.pem            the ECDSA key
    key.tlog-proof     the event by which the log vouches for it, with its proof (C2SP tlog-proof)
    N.intoto.json      a statement (``marin.plugins.sharing.in_toto``) in a DSSE envelope under that key
    N.rekor.json       the request for that envelope: ``POST /api/v2/log/entries`` of a Rekor v2

Nothing is sent. ``check`` is what somebody does with such a folder and the log's verifier key, and nothing else. What the log
said of the key later no folder can show: ``judge`` asks the log where it is at hand.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

import ledger
from marin.history.run import Run
from marin.history.runs import History
from marin.plugins.sharing.in_toto import payloads
from marin.record.attestation import PAYLOAD_TYPE, pae
from marin.verify.alone.judgement import check_known
from marin.verify.alone.proven import proven

KEY = "key.pem"
PROOF = "key.tlog-proof"
_DETAILS = "PKIX_ECDSA_P256_SHA_256"
_MOST = 64 << 20


def write_requests(
    run: Run, origin: ledger.VerifierKey, key: ec.EllipticCurvePrivateKey, proof: ledger.LogProof, folder: Path
) -> int:
    """Write the folder for all statements about ``run``; how many there are. ``proof`` shows that ``origin`` vouches for ``key``.

    Raises:
        Tampered: it vouches for another key.
        Refused: the folder is not empty.
    """
    vouched = ledger.open_vouched(str(proof).encode(), [origin])
    if ledger.public_bytes(key) != vouched.public:
        raise ledger.Tampered(
            "the log vouches for another key", where=PROOF, expected="the key for attestations", found="another"
        )
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise ledger.Refused(
            "the folder has files already", where=str(folder), expected="a new one", cure="name another"
        )
    (folder / KEY).write_bytes(vouched.pem)
    (folder / PROOF).write_bytes(str(proof).encode())
    statements = payloads(run, origin)
    for number, payload in enumerate(statements):
        signature = key.sign(pae(PAYLOAD_TYPE, payload), ec.ECDSA(hashes.SHA256()))
        (folder / f"{number}.intoto.json").write_bytes(
            ledger.canonical_bytes(envelope(payload, signature, vouched.public)) + b"\n"
        )
        (folder / f"{number}.rekor.json").write_bytes(
            ledger.canonical_bytes(request(payload, signature, vouched.public)) + b"\n"
        )
    return len(statements)


def envelope(payload: bytes, signature: bytes, public: bytes) -> dict[str, Any]:
    """The statement as DSSE has it, which names the key by the SHA-256 of its SubjectPublicKeyInfo."""
    signed = {"keyid": hashlib.sha256(public).hexdigest(), "sig": base64.b64encode(signature).decode()}
    return {"payload": base64.b64encode(payload).decode(), "payloadType": PAYLOAD_TYPE, "signatures": [signed]}


def request(payload: bytes, signature: bytes, public: bytes) -> dict[str, Any]:
    """What is posted for an envelope: the hash of its PAE, the signature, and the key."""
    return {
        "hashedRekordRequestV002": {
            "digest": base64.b64encode(hashlib.sha256(pae(PAYLOAD_TYPE, payload)).digest()).decode(),
            "signature": _signature(signature, public),
        }
    }


def entry(payload: bytes, signature: bytes, public: bytes, *, certificate: bytes | None = None) -> bytes:
    """The entry that a Rekor v2 appends for the request, in its canonical JSON: what its tree has the hash of.

    With a ``certificate`` (DER) that of a request which names the key so: some clients read no other."""
    digest = hashlib.sha256(pae(PAYLOAD_TYPE, payload)).digest()
    hashed = {"algorithm": "SHA2_256", "digest": base64.b64encode(digest).decode()}
    spec = {"hashedRekordV002": {"data": hashed, "signature": _signature(signature, public, certificate)}}
    return ledger.canonical_bytes({"apiVersion": "0.0.2", "kind": "hashedrekord", "spec": spec})


def check(folder: Path, keys: Sequence[ledger.VerifierKey]) -> tuple[ledger.VouchedKey, list[bytes]]:
    """The key of such a folder, and the payloads of its envelopes, once all of it is seen to hold under the log's ``keys``.

    Raises:
        Malformed, Unverified: the log does not vouch for the key.
        Tampered: an envelope or a request is not what the key signed, or they do not belong together.
    """
    try:
        vouched = ledger.open_vouched((folder / PROOF).read_bytes(), keys)
    except OSError as error:
        raise _not_signed(PROOF, str(error.strerror)) from None
    found = []
    for number in range(len(list(folder.glob("*.intoto.json")))):
        where = f"{number}.intoto.json"
        try:
            content = (folder / where).read_bytes()
            payload, signature = _opened(content)
            vouched.key.verify(signature, pae(PAYLOAD_TYPE, payload), ec.ECDSA(hashes.SHA256()))
            asked = (folder / f"{number}.rekor.json").read_bytes()
        except (InvalidSignature, ValueError, KeyError, TypeError, RecursionError, OSError) as error:
            raise _not_signed(where, type(error).__name__) from None
        # What follows from payload, signature and key is written in one way, and nothing stands beside it.
        if content != ledger.canonical_bytes(envelope(payload, signature, vouched.public)) + b"\n":
            raise _not_signed(where, "another envelope around what was signed")
        if asked != ledger.canonical_bytes(request(payload, signature, vouched.public)) + b"\n":
            raise _not_signed(f"{number}.rekor.json", "the request of something else")
        found.append(payload)
    return vouched, found


def judge(folder: Path, keys: Sequence[ledger.VerifierKey]) -> tuple[ledger.VouchedKey, list[bytes], tuple[str, ...]]:
    """As :func:`check`, and in lines how the event that vouches for the key agrees with what is known of its log here: what was
    seen of it, and the log itself where it is at hand, which may have revoked the key.

    Raises:
        Unverified: it has.
        Tampered: the log had another history when it was seen, or has one at hand. Others as :func:`check`.
    """
    vouched, found = check(folder, keys)
    shown = proven([(str(vouched.index), (folder / PROOF).read_bytes())], keys, where=PROOF)
    known = check_known(
        shown, keys, lambda history: (), policy=None, since=lambda history: _check_not_revoked(vouched, history)
    )
    return vouched, found, (*known.lines[:2], *([known.unseen] * bool(known.unseen)))


def _check_not_revoked(vouched: ledger.VouchedKey, history: History) -> None:
    ledger.check_not_revoked(vouched.public, history.events(type=ledger.KEY_REVOKED))


def _opened(content: bytes) -> tuple[bytes, bytes]:
    """Payload and signature of an envelope; ``ValueError`` and its like if it is not one."""
    found = json.loads(content if len(content) <= _MOST else b"")
    (signed,) = found["signatures"]
    return base64.b64decode(found["payload"], validate=True), base64.b64decode(signed["sig"], validate=True)


def _not_signed(where: str, found: str) -> ledger.Tampered:
    return ledger.Tampered(
        "an attestation is not what the vouched key signed",
        where=where,
        expected="one envelope, and the request for it",
        found=found,
    )


def _signature(signature: bytes, public: bytes, certificate: bytes | None = None) -> dict[str, Any]:
    kind, raw = ("publicKey", public) if certificate is None else ("x509Certificate", certificate)
    verifier = {"keyDetails": _DETAILS, kind: {"rawBytes": base64.b64encode(raw).decode()}}
    return {"content": base64.b64encode(signature).decode(), "verifier": verifier}
