"""Proofs that stand alone (C2SP tlog-proof): one entry is in the log, shown by a file and a public key.

    c2sp.org/tlog-proof@v1
    extra <base64 of the entry>
    index 73894
    <base64 hash>
    …

    <the signed log checkpoint, verbatim>

Our proofs carry the entry itself in the ``extra`` line, which nothing authenticates until its leaf hash is seen
to lead to the signed root; a proof without it needs the entry from elsewhere.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ledger.errors import Malformed, Refused
from ledger.format.checkpoint import LogCheckpoint, open_checkpoint
from ledger.format.note import VerifierKey, decode_base64
from ledger.format.tlog import HASH_SIZE, leaf_hash, verify_inclusion

_HEADER = "c2sp.org/tlog-proof@v1"
_INDEX = re.compile(r"index (0|[1-9][0-9]{0,18})\Z")
_MAX_HASHES = 64
_MAX_BYTES = 2_000_000


@dataclass(frozen=True)
class LogProof:
    """The parts of a proof, not yet believed. ``str()`` is the file."""

    index: int
    hashes: tuple[bytes, ...]
    note: str
    extra: bytes | None = None

    def __str__(self) -> str:
        extra = [] if self.extra is None else [f"extra {base64.b64encode(self.extra).decode()}"]
        hashes = [base64.b64encode(value).decode() for value in self.hashes]
        return "\n".join([_HEADER, *extra, f"index {self.index}", *hashes, "", self.note])

    @classmethod
    def parse(cls, data: bytes) -> LogProof:
        """The parts of a proof file; ``Malformed`` if it is not one. Nothing is verified."""
        if len(data) > _MAX_BYTES:
            raise _malformed(f"at most {_MAX_BYTES} bytes", f"{len(data)}")
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise _malformed("UTF-8", f"byte {error.start} is not") from None
        head, separator, note = text.partition("\n\n")
        lines = head.split("\n")
        if not separator or lines.pop(0) != _HEADER:
            raise _malformed(f"a first line {_HEADER}, and an empty line before the checkpoint", repr(text[:40]))
        extra = None
        if lines and lines[0].startswith("extra "):
            extra = decode_base64(lines.pop(0).removeprefix("extra "), "proof")
        index = _INDEX.match(lines.pop(0)) if lines else None
        if index is None:
            raise _malformed("a line 'index <number>'", "none")
        if len(lines) > _MAX_HASHES:
            raise _malformed(f"at most {_MAX_HASHES} hashes", f"{len(lines)}")
        hashes = tuple(decode_base64(line, "proof") for line in lines)
        if any(len(value) != HASH_SIZE for value in hashes):
            raise _malformed("hashes of 32 bytes", "another length")
        return cls(int(index[1]), hashes, note, extra)


@dataclass(frozen=True)
class ProvenEntry:
    """What a proof has shown."""

    index: int
    entry: bytes
    checkpoint: LogCheckpoint
    signers: tuple[str, ...]
    """Names of the trusted keys that signed the checkpoint."""


def verify_proof(
    proof: LogProof, keys: Sequence[VerifierKey], *, entry: bytes | None = None, origin: str | None = None
) -> ProvenEntry:
    """What ``proof`` shows under these keys, offline.

    The steps are those of the specification: leaf hash, signature of the log (and of whatever witnesses are
    among the keys), inclusion. ``entry`` is needed where the proof does not carry it.

    Raises:
        Unverified: it shows nothing.
        Refused: it does not carry its entry, and none was given.
    """
    known = proof.extra if entry is None else entry
    if known is None:
        raise Refused("the proof does not carry its entry", cure="give the entry's bytes as well")
    checkpoint, note = open_checkpoint(proof.note.encode(), keys, origin=origin)
    verify_inclusion(proof.index, checkpoint.size, leaf_hash(known), proof.hashes, checkpoint.root)
    trusted = {(key.name, key.key_id) for key in keys}
    signers = {line.name: None for line in note.signatures if (line.name, line.key_id) in trusted}
    return ProvenEntry(proof.index, known, checkpoint, tuple(signers))


def _malformed(expected: str, found: str) -> Malformed:
    return Malformed("not a tlog-proof", expected=expected, found=found)
