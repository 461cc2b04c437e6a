"""Keys that cosign (C2SP tlog-cosignature): a witness's, and the second half of a hybrid log key."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PrivateKey

from ledger.errors import Refused
from ledger.format import cosignature
from ledger.format.note import NoteSignature, VerifierKey


def _now() -> int:
    return int(time.time())


@dataclass(frozen=True)
class Cosigner:
    """A key that signs the time and the checkpoint together: Ed25519, or ML-DSA-44 against quantum computers."""

    name: str
    key: Ed25519PrivateKey | MLDSA44PrivateKey
    clock: Callable[[], int] = _now

    @cached_property
    def verifier(self) -> VerifierKey:
        is_ed25519 = isinstance(self.key, Ed25519PrivateKey)
        algorithm = cosignature.COSIGNATURE_ED25519 if is_ed25519 else cosignature.COSIGNATURE_MLDSA44
        return VerifierKey(self.name, algorithm, self.key.public_key().public_bytes_raw())

    def sign(self, text: str) -> bytes:
        """The cosignature of a checkpoint's text, with the time at which it was made."""
        timestamp = self.clock()
        if isinstance(self.key, Ed25519PrivateKey):
            return cosignature.pack_cosignature(timestamp, self.key.sign(cosignature.ed25519_message(text, timestamp)))
        return cosignature.pack_cosignature(
            timestamp, self.key.sign(cosignature.mldsa44_message(text, timestamp, self.name))
        )

    def line(self, text: str) -> NoteSignature:
        """The same as a signature line of a note."""
        return NoteSignature(self.name, self.verifier.key_id, self.sign(text))

    @property
    def signs_subtrees(self) -> bool:
        """Whether the key is of the kind that can: the message of an Ed25519 cosignature is a checkpoint's text."""
        return not isinstance(self.key, Ed25519PrivateKey)

    def subtree_line(self, subtree: cosignature.Subtree) -> NoteSignature:
        """The cosignature of a subtree, without a time.

        Raises:
            Refused: the key cannot sign subtrees, or these are numbers that none has.
        """
        if isinstance(self.key, Ed25519PrivateKey):
            raise Refused("an Ed25519 cosigner signs no subtrees", where=self.name, cure="use an ML-DSA-44 key")
        try:
            message = cosignature.subtree_message(subtree, 0, self.name)
        except ValueError as error:
            raise Refused("not a subtree to sign", where=subtree.origin[:80], found=str(error)) from None
        return NoteSignature(self.name, self.verifier.key_id, cosignature.pack_cosignature(0, self.key.sign(message)))
