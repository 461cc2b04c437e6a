"""Statements of in-toto in a DSSE envelope, signed by a log's key; :mod:`marin.record.attestation` reads those about a folder."""

from __future__ import annotations

import json
from typing import Any

from in_toto_attestation.v1.statement import Statement
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import CryptoSigner, SSlibKey

from ledger import Signer, Tampered, VerifierKey
from marin.record.attestation import PAYLOAD_TYPE


def envelope_of(line: str, key: VerifierKey, *, where: str) -> Envelope:
    """One line of a bundle, signed by ``key``; :class:`Tampered` where it is not."""
    try:
        found = Envelope.from_dict(json.loads(line))
        found.verify([public_key(key)], 1)
    except (ValueError, KeyError, TypeError, VerificationError) as error:
        raise Tampered(
            "an attestation is not signed by the log's key",
            where=where,
            expected=str(key),
            found=" ".join(str(error).split())[:200],
        ) from None
    return found


def envelope(statement: Statement, signer: Signer) -> Envelope:
    """``statement``, checked by the in-toto library and signed."""
    statement.validate()
    result = Envelope(payload(statement), PAYLOAD_TYPE, {})
    result.sign(CryptoSigner(signer.key, public_key(signer.verifier)))
    return result


def public_key(verifier: VerifierKey) -> SSlibKey:
    """A log's verifier key as securesystemslib has it."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    key: SSlibKey = SSlibKey.from_crypto(Ed25519PublicKey.from_public_bytes(verifier.public), keyid=str(verifier))
    return key


def plain(statement: Statement) -> dict[str, Any]:
    """``statement`` as the JSON that is signed. Its first field is ``_type`` on the wire; everything else has its JSON name."""
    from google.protobuf.json_format import MessageToDict

    found: dict[str, Any] = MessageToDict(statement.pb)
    return found


def payload(statement: Statement) -> bytes:
    """What is signed of ``statement``."""
    return json.dumps(plain(statement), sort_keys=True, ensure_ascii=False).encode()
