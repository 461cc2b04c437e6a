"""Cosignatures (C2SP tlog-cosignature): a cosigner saw this tree, consistent with all it had seen, at this
time.

Two kinds. 0x04: Ed25519 over the lines ``cosignature/v1``, ``time <seconds>`` and the whole text of the
checkpoint. 0x06: ML-DSA-44 (FIPS 204) over a binary structure that also commits to the cosigner's name, and
stays safe against quantum computers. The signature is an 8-byte big-endian time followed by that of the
algorithm.
"""

from __future__ import annotations

import base64
import binascii
import struct

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PublicKey

COSIGNATURE_ED25519 = 0x04
COSIGNATURE_MLDSA44 = 0x06

_TIME = struct.Struct(">Q")
_LABEL = b"subtree/v1\n\x00"


def ed25519_message(text: str, timestamp: int) -> bytes:
    """What an Ed25519 cosigner signs for a checkpoint's text."""
    return f"cosignature/v1\ntime {timestamp}\n{text}".encode()


def mldsa44_message(text: str, timestamp: int, cosigner: str) -> bytes:
    """What an ML-DSA-44 cosigner signs for the whole tree of a checkpoint; ValueError if it is none."""
    origin, size, root, *_ = text.split("\n")
    head = _LABEL + _prefixed(cosigner) + _TIME.pack(timestamp) + _prefixed(origin)
    digest = base64.b64decode(root, validate=True)
    if len(digest) != 32 or not size.isascii() or not size.isdecimal() or len(size) > 19:
        raise ValueError("not a checkpoint")
    return head + _TIME.pack(0) + _TIME.pack(int(size)) + digest


def verify_cosignature(algorithm: int, name: str, public: bytes, text: str, signature: bytes) -> bool:
    """Whether ``signature`` is a cosignature by this key of the checkpoint ``text``."""
    if len(signature) <= _TIME.size:
        return False
    (timestamp,) = _TIME.unpack_from(signature)
    if timestamp >= 1 << 63:
        return False
    raw = signature[_TIME.size :]
    try:
        if algorithm == COSIGNATURE_ED25519:
            Ed25519PublicKey.from_public_bytes(public).verify(raw, ed25519_message(text, timestamp))
        elif algorithm == COSIGNATURE_MLDSA44:
            MLDSA44PublicKey.from_public_bytes(public).verify(raw, mldsa44_message(text, timestamp, name))
        else:
            return False
    except (InvalidSignature, UnsupportedAlgorithm, ValueError, binascii.Error):
        return False
    return True


def pack_cosignature(timestamp: int, raw: bytes) -> bytes:
    """What a cosignature line carries: seconds since 1970 as eight bytes, then the signature."""
    return _TIME.pack(timestamp) + raw


def _prefixed(text: str) -> bytes:
    raw = text.encode()
    if not 1 <= len(raw) <= 255:
        raise ValueError("a name must have 1 to 255 bytes")
    return bytes([len(raw)]) + raw
