"""What events of vouched keys say, and whether it holds."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ledger.errors import Malformed, Unverified
from ledger.format.event import KEY_VOUCHED
from ledger.format.note import decode_base64

ALGORITHM = "ecdsa-p256-sha256"
USE = "attestations"
_FIELDS = {"algorithm", "by", "possession", "public", "use"}
_REVOKED_FIELDS = _FIELDS - {"possession"}


def check_revoked(body: Mapping[str, Any]) -> bytes:
    """The public key that an event of this body revokes; empty where it does not say which."""
    public = body.get("public")
    known = set(body) == _REVOKED_FIELDS and (body["algorithm"], body["use"]) == (ALGORITHM, USE)
    try:
        return decode_base64(public, "revoked key") if known and isinstance(public, str) else b""
    except Malformed:
        return b""


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
        public_key(public).verify(signature, possession_text(origin, public), ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        raise Unverified(
            "a vouched key has not signed that it is this log's",
            where=origin,
            expected="its signature over the name of the log and itself",
            found="another signature",
            cure="do not trust attestations under this key",
        ) from None
    return public


def public_key(public: bytes) -> ec.EllipticCurvePublicKey:
    """The key of these bytes (SubjectPublicKeyInfo, DER).

    Raises:
        Malformed: it is not a key on P-256.
    """
    try:
        key = serialization.load_der_public_key(public)
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise Malformed("not a key on P-256", expected="its SubjectPublicKeyInfo", found=f"{len(public)} bytes")
    return key
