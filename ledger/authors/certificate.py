"""A certificate for an author's key (X.509, self-signed), for connections on which both sides show a key.

It says nothing that the key does not say: the subject is the key's name, it is good for all time and issues nothing. Its
holder knows that its maker has the key, and a connection is accepted from exactly these bytes.
"""

from __future__ import annotations

import hashlib
from datetime import datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from ledger.errors import Refused
from ledger.format.note import ED25519, Signer, VerifierKey

_FROM, _UNTIL = datetime(2000, 1, 1), datetime(9999, 12, 31, 23, 59, 59)
_MOST = 2_000
_SIGNED_BY_ED25519 = bytes.fromhex("300506032b6570034100")
"""The algorithm, and the head of a bit string of 64 whole bytes."""


def make_certificate(signer: Signer) -> bytes:
    """The certificate of a key, in DER: the same bytes each time."""
    public = signer.key.public_key()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, signer.name)])
    serial = int.from_bytes(hashlib.sha256(str(signer.verifier).encode()).digest()[:16]) | 1
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(public)
        .serial_number(serial)
        .not_valid_before(_FROM)
        .not_valid_after(_UNTIL)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .sign(signer.key, None)
    )
    return made.public_bytes(Encoding.DER)


def read_certificate(data: bytes) -> VerifierKey:
    """The key of a certificate that it has signed itself.

    Raises:
        Refused: it is not such a certificate, of at most 2,000 bytes.
    """
    try:
        return _read(data)
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound) as error:
        raise Refused(
            "not a certificate of an author's key",
            expected="what `ledger key new` printed",
            found=str(error)[:120] or type(error).__name__,
            cure="copy the whole line again",
        ) from None
    except Exception as error:  # cryptography's own errors of parsing have no common class
        if type(error).__module__.partition(".")[0] not in ("cryptography", "ledger"):
            raise
        raise Refused("not a certificate of an author's key", found=str(error)[:120]) from None


def _read(data: bytes) -> VerifierKey:
    if len(data) > _MOST:
        raise ValueError(f"{len(data)} bytes")
    found = x509.load_der_x509_certificate(data)
    public, names = found.public_key(), found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if not isinstance(public, Ed25519PublicKey) or len(names) != 1 or not isinstance(names[0].value, str):
        raise ValueError("another kind of key, or no name")
    found.verify_directly_issued_by(found)
    if not data.endswith(found.tbs_certificate_bytes + _SIGNED_BY_ED25519 + found.signature):
        raise ValueError("another encoding")
    issues = found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    if issues or len(list(found.extensions)) != 2 or len(list(found.subject)) != 1:
        raise ValueError("a certificate that may issue others, or says more")
    return VerifierKey(names[0].value, ED25519, public.public_bytes_raw())
