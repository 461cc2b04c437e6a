"""Cosignatures (C2SP tlog-cosignature): a cosigner saw this tree, consistent with all it had seen, at this
time.

Two kinds. 0x04: Ed25519 over the lines ``cosignature/v1``, ``time <seconds>`` and the whole text of the
checkpoint. 0x06: ML-DSA-44 (FIPS 204) over a binary structure that also commits to the cosigner's name, and
stays safe against quantum computers. The signature is an 8-byte big-endian time followed by that of the
algorithm.

The second kind also signs subtrees: leaves [start, end) of a log and their root. A time of zero then says nothing of which tree
is the largest.
"""

from __future__ import annotations

import base64
import binascii
import struct
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PublicKey

COSIGNATURE_ED25519 = 0x04
COSIGNATURE_MLDSA44 = 0x06
COSIGNATURES = (COSIGNATURE_ED25519, COSIGNATURE_MLDSA44)

_TIME = struct.Struct(">Q")
_LABEL = b"subtree/v1\n\x00"


def ed25519_message(text: str, timestamp: int) -> bytes:
    """What an Ed25519 cosigner signs for a checkpoint's text."""
    return f"cosignature/v1\ntime {timestamp}\n{text}".encode()


@dataclass(frozen=True)
class Subtree:
    """Leaves [start, end) of the log of this origin, and the root over them alone. What a sign-subtree asks to sign."""

    origin: str
    start: int
    end: int
    root: bytes


def mldsa44_message(text: str, timestamp: int, cosigner: str) -> bytes:
    """What an ML-DSA-44 cosigner signs for the whole tree of a checkpoint; ValueError if it is not one."""
    origin, size, root, *_ = text.split("\n")
    digest = base64.b64decode(root, validate=True)
    if len(digest) != 32 or not size.isascii() or not size.isdecimal() or len(size) > 19:
        raise ValueError("not a checkpoint")
    return subtree_message(Subtree(origin, 0, int(size), digest), timestamp, cosigner)


def subtree_message(subtree: Subtree, timestamp: int, cosigner: str) -> bytes:
    """What an ML-DSA-44 cosigner signs for a subtree; ValueError where its numbers or names have no such form."""
    if len(subtree.root) != 32 or not 0 <= subtree.start <= subtree.end < 1 << 63 or (subtree.start and timestamp):
        raise ValueError("not a subtree to sign: a time goes only with a whole tree")
    head = _LABEL + _prefixed(cosigner) + _TIME.pack(timestamp) + _prefixed(subtree.origin)
    return head + _TIME.pack(subtree.start) + _TIME.pack(subtree.end) + subtree.root


def verify_cosignature(algorithm: int, name: str, public: bytes, text: str | Subtree, signature: bytes) -> bool:
    """Whether ``signature`` is a cosignature by this key of the checkpoint ``text``, or of a subtree."""
    if len(signature) <= _TIME.size:
        return False
    (timestamp,) = _TIME.unpack_from(signature)
    if timestamp >= 1 << 63:
        return False
    raw = signature[_TIME.size :]
    try:
        if algorithm == COSIGNATURE_ED25519 and isinstance(text, str):
            Ed25519PublicKey.from_public_bytes(public).verify(raw, ed25519_message(text, timestamp))
        elif algorithm == COSIGNATURE_MLDSA44:
            message = (
                mldsa44_message(text, timestamp, name)
                if isinstance(text, str)
                else subtree_message(text, timestamp, name)
            )
            MLDSA44PublicKey.from_public_bytes(public).verify(raw, message)
        else:
            return False
    except (InvalidSignature, UnsupportedAlgorithm, ValueError, binascii.Error):
        return False
    return True


def pack_cosignature(timestamp: int, raw: bytes) -> bytes:
    """What a cosignature line carries: seconds since 1970 as eight bytes, then the signature."""
    return _TIME.pack(timestamp) + raw


def cosigned_at(signature: bytes) -> int:
    """Seconds since 1970 that a cosignature states; 0 where it says nothing of which tree is the largest."""
    return int(_TIME.unpack_from(signature)[0]) if len(signature) > _TIME.size else 0


def _prefixed(text: str) -> bytes:
    raw = text.encode()
    if not 1 <= len(raw) <= 255:
        raise ValueError("a name must have 1 to 255 bytes")
    return bytes([len(raw)]) + raw
