"""A key of another kind that speaks for a log, where others do not take the log's own kind: for attestations elsewhere.

Sigstore's public log (Rekor v2) takes a signature over a hash, and so neither pure Ed25519, which needs the whole text, nor an
envelope. An ECDSA key on the curve P-256 signs there, and this event says that it is the log's:

    log.key-vouched/v1   {"algorithm": "ecdsa-p256-sha256", "by": […], "possession": …, "public": …, "use": "attestations"}

``public`` is the base64 of the key's SubjectPublicKeyInfo, ``by`` the keys that signed the log then, ``possession`` the base64 of
the key's own signature over ``possession_text``: nobody vouches for a key of somebody else. Such a key signs no checkpoint and no
event, and no reader of the log believes more for it. Its event is a statement of the log's holder, as good as the signature under
the log; a proof of it (C2SP tlog-proof) stands alone. Only the writer makes it: a client of the append service cannot.

    log.key-revoked/v1   {"algorithm": "ecdsa-p256-sha256", "by": […], "public": …, "use": "attestations"}

From then on nothing under that key counts, whenever it was signed: nobody can see when an attestation was made. It is not
vouched for again. No proof shows that a log did not say this later: who has the log, or a later state of it, looks there
(``check_not_revoked``).
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ledger.errors import Malformed, Refused, Unverified
from ledger.format.event import KEY_REVOKED, KEY_VOUCHED, Draft, Event, parse_event
from ledger.format.note import Signer, VerifierKey, decode_base64
from ledger.format.proof import LogProof, verify_proof
from ledger.log.keyring import STREAM
from ledger.log.keys import read_private, secret_of, write_private
from ledger.log.reader import LogReader, make_proof
from ledger.log.writer import Log
from ledger.storage.port import Storage

ALGORITHM = "ecdsa-p256-sha256"
USE = "attestations"
_FIELDS = {"algorithm", "by", "possession", "public", "use"}
_REVOKED_FIELDS = _FIELDS - {"possession"}


@dataclass(frozen=True)
class VouchedKey:
    """A key that the log of this origin vouches for, by the event at this index."""

    origin: str
    index: int
    public: bytes
    """The SubjectPublicKeyInfo, in DER."""

    @property
    def key(self) -> ec.EllipticCurvePublicKey:
        return _public_key(self.public)

    @property
    def pem(self) -> bytes:
        """The same for tools that read PEM."""
        return self.key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def create_attestation_key(path: Path, origin: str, *, passphrase: str | None = None) -> ec.EllipticCurvePrivateKey:
    """Draw a key for attestations and write it to ``path`` with mode 0600.

    Raises:
        AlreadyExists: a file is there; it is left alone.
        StorageFailed: the file could not be written.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    secret = secret_of(passphrase)
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if secret:
        encryption = serialization.BestAvailableEncryption(secret)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    write_private(path, f"origin: {origin}\n".encode() + pem)
    return key


def load_attestation_key(path: Path, *, passphrase: str | None = None) -> ec.EllipticCurvePrivateKey:
    """The key for attestations at ``path``.

    Raises:
        Unavailable: there is no file, or it cannot be read.
        Refused: others can read it, it is no such key, or the passphrase is wrong.
    """
    data = read_private(path)
    try:
        key = serialization.load_pem_private_key(
            data[data.index(b"-----BEGIN") :], secret_of(passphrase) if b"ENCRYPTED" in data else None
        )
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise Refused(
            "the key for attestations could not be read",
            where=str(path),
            expected="a key on P-256, and its passphrase where it has one",
            found=str(error)[:120],
            cure="give the right passphrase, or restore the file from its copy",
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise Refused("not a key for attestations", where=str(path), expected="P-256", found=type(key).__name__)
    return key


def vouch_for(storage: Storage, signer: Signer, key: ec.EllipticCurvePrivateKey) -> LogProof:
    """Let the log say that ``key`` is its own, and the proof of that. Repeating it changes nothing.

    Raises:
        Refused: the log has revoked this key.
    """
    public = public_bytes(key)
    # The same signature each time (RFC 6979), so that the same event is the same bytes.
    algorithm = ec.ECDSA(hashes.SHA256(), deterministic_signing=True)
    body = {
        "algorithm": ALGORITHM,
        "by": [str(verifier) for verifier in signer.verifiers],
        "possession": base64.b64encode(key.sign(possession_text(signer.name, public), algorithm)).decode(),
        "public": base64.b64encode(public).decode(),
        "use": USE,
    }
    draft = Draft(KEY_VOUCHED, STREAM, body, id=_id(KEY_VOUCHED, public))
    with Log.open(storage, signer) as log:
        if (revoked := log.index_of(_id(KEY_REVOKED, public))) is not None:
            raise Refused(
                "the log revoked this key",
                where=f"event {revoked}",
                expected="a key that it never revoked",
                found=f"that of SHA-256 {hashlib.sha256(public).hexdigest()}",
                cure="make another key: a revoked one stays so",
            )
        index = log.append_key_event(draft).index
        log.publish()
    return make_proof(LogReader(storage, list(signer.verifiers)), index)


def revoke_vouched(storage: Storage, signer: Signer, index: int) -> int:
    """Let the log say that the key for which its event ``index`` vouches is its own no more; the index of that. Repeating it
    changes nothing.

    Raises:
        Refused: the log has no such event.
    """
    reader = LogReader(storage, list(signer.verifiers))
    event = reader.event(index)
    if event.type != KEY_VOUCHED:
        raise Refused(
            "no key is vouched for there",
            where=f"event {index}",
            expected=KEY_VOUCHED,
            found=event.type,
            cure=f"name an event of the type {KEY_VOUCHED}",
        )
    public = check_vouched(event.body, signer.name)
    body = {
        "algorithm": ALGORITHM,
        "by": [str(verifier) for verifier in signer.verifiers],
        "public": base64.b64encode(public).decode(),
        "use": USE,
    }
    draft = Draft(KEY_REVOKED, STREAM, body, id=_id(KEY_REVOKED, public))
    with Log.open(storage, signer) as log:
        revoked = log.append_key_event(draft).index
        log.publish()
    return revoked


def check_not_revoked(public: bytes, events: Iterable[tuple[int, Event]]) -> None:
    """Refuse a vouched key that its log revoked, by the log's ``events`` (those of type ``log.key-revoked/v1`` are enough).

    Raises:
        Unverified: it did. A malformed event of that type counts against every key.
    """
    for index, event in events:
        if event.type == KEY_REVOKED and check_revoked(event.body) in (public, b""):
            raise Unverified(
                "the log revoked the key",
                where=f"event {index}, of {event.time}",
                expected="a key that the log still vouches for",
                found="one that counts no more, whenever it signed",
                cure="do not trust attestations under it; ask for new ones",
            )


def check_revoked(body: Mapping[str, Any]) -> bytes:
    """The public key that an event of this body revokes; empty where it does not say which."""
    public = body.get("public")
    known = set(body) == _REVOKED_FIELDS and (body["algorithm"], body["use"]) == (ALGORITHM, USE)
    try:
        return decode_base64(public, "revoked key") if known and isinstance(public, str) else b""
    except Malformed:
        return b""


def _id(kind: str, public: bytes) -> str:
    """The one id of the event of this type about a key."""
    return f"{kind.split('/')[0]}:{hashlib.sha256(public).hexdigest()[:16]}"


def public_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    """The SubjectPublicKeyInfo of a key, in DER."""
    return key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def possession_text(origin: str, public: bytes) -> bytes:
    """What the vouched key signs, to show that anyone who vouches for it has it."""
    return f"{KEY_VOUCHED}\n{origin}\n{base64.b64encode(public).decode()}\n".encode()


def check_vouched(body: Mapping[str, Any], origin: str) -> bytes:
    """The public key that an event of this body in the log ``origin`` vouches for.

    Raises:
        Malformed: it is not one.
        Unverified: the key has not signed that it is this log's.
    """
    fields = {name: body.get(name) for name in ("algorithm", "use", "possession", "public")}
    if set(body) != _FIELDS or not all(isinstance(value, str) for value in fields.values()):
        raise Malformed(
            "not an event of a vouched key", expected=", ".join(sorted(_FIELDS)), found=", ".join(body)[:200]
        )
    if (fields["algorithm"], fields["use"]) != (ALGORITHM, USE):
        found = f"{fields['algorithm']} for {fields['use']}"
        raise Malformed(
            "a vouched key of a kind that is not known here", expected=f"{ALGORITHM} for {USE}", found=found[:200]
        )
    public = decode_base64(str(fields["public"]), "vouched key")
    try:
        signature = decode_base64(str(fields["possession"]), "vouched key")
        _public_key(public).verify(signature, possession_text(origin, public), ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        raise Unverified(
            "a vouched key has not signed that it is this log's",
            where=origin,
            expected="its signature over the name of the log and itself",
            found="another signature",
            cure="do not trust attestations under this key",
        ) from None
    return public


def open_vouched(proof: bytes, keys: Sequence[VerifierKey]) -> VouchedKey:
    """The key that a proof shows the log of one of ``keys`` to vouch for, offline.

    Raises:
        Malformed: not a proof of such an event.
        Unverified: it shows nothing under these keys.
    """
    proven = verify_proof(LogProof.parse(proof), keys)
    origin = proven.checkpoint.origin
    if origin not in proven.signers:
        raise Unverified(
            "a key signed under another origin than its name", expected=origin, found=", ".join(proven.signers)
        )
    event = parse_event(proven.entry)
    if event["type"] != KEY_VOUCHED:
        raise Malformed("not an event of a vouched key", expected=KEY_VOUCHED, found=str(event["type"]))
    return VouchedKey(origin, proven.index, check_vouched(event["body"], origin))


def _public_key(public: bytes) -> ec.EllipticCurvePublicKey:
    try:
        key = serialization.load_der_public_key(public)
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise Malformed("not a key on P-256", expected="its SubjectPublicKeyInfo", found=f"{len(public)} bytes")
    return key
