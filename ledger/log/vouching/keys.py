"""Keys for attestations: made, vouched for by a log, revoked, and opened by a proof."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ledger.errors import Malformed, Refused, Unverified
from ledger.format.event import KEY_REVOKED, KEY_VOUCHED, Draft, Event, parse_event
from ledger.format.note import Signer, VerifierKey
from ledger.format.proof import LogProof, verify_proof
from ledger.log.keyring import STREAM, write_private
from ledger.log.keys import read_private, secret_of
from ledger.log.proving import make_proof
from ledger.log.reader import LogReader
from ledger.log.vouching.events import ALGORITHM, USE, check_revoked, check_vouched, possession_text, public_key
from ledger.log.writer import Log
from ledger.storage.port import Storage


@dataclass(frozen=True)
class VouchedKey:
    """A key that the log of this origin vouches for, by the event at this index."""

    origin: str
    index: int
    public: bytes
    """The SubjectPublicKeyInfo, in DER."""

    @property
    def key(self) -> ec.EllipticCurvePublicKey:
        return public_key(self.public)

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
        Refused: others can read it, it is not such a key, or the passphrase is wrong.
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


def _id(kind: str, public: bytes) -> str:
    """The one id of the event of this type about a key."""
    return f"{kind.split('/')[0]}:{hashlib.sha256(public).hexdigest()[:16]}"


def public_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    """The SubjectPublicKeyInfo of a key, in DER."""
    return key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


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
