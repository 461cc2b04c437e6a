"""Cosignatures of subtrees (``sign-subtree`` of C2SP tlog-witness): what the cosigner has signed whole, it signs in part.

A client shows a checkpoint that this cosigner has signed, a subtree, and the proof that the one is a part of the other. So
the cosigner needs nothing of what it keeps: neither the log nor its own records. Only ML-DSA-44 cosignatures have a form for
subtrees, and only the key that signed the checkpoint signs its subtree.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Container, Sequence
from dataclasses import dataclass

from ledger.errors import Conflict, LedgerError, Malformed, NotFound, Refused, Unverified
from ledger.format.checkpoint import LogCheckpoint, open_checkpoint
from ledger.format.cosignature import COSIGNATURE_MLDSA44, Subtree, cosigned_at
from ledger.format.cosigner import Cosigner
from ledger.format.note import Note, NoteSignature, VerifierKey, decode_base64, parse_note
from ledger.format.tlog import HASH_SIZE, is_subtree, verify_subtree
from ledger.witness.client import ANSWER_SECONDS, WitnessAnswer, ask, error_answer, signature_lines

_RANGE = re.compile(r"subtree (0|[1-9][0-9]{0,18}) (0|[1-9][0-9]{0,18})\Z")
_MAX_PROOF = 63


@dataclass(frozen=True)
class SubtreeRequest:
    """The body of ``sign-subtree``: a range of leaves, its root, the proof, and the checkpoint with its cosignature."""

    start: int
    end: int
    root: bytes
    proof: tuple[bytes, ...]
    note: bytes

    def encode(self) -> bytes:
        hashes = [base64.b64encode(value).decode() for value in (self.root, *self.proof)]
        return "\n".join([f"subtree {self.start} {self.end}", *hashes, "", ""]).encode() + self.note

    @classmethod
    def parse(cls, data: bytes) -> SubtreeRequest:
        """The parts of a body, not yet believed; ``Malformed`` if it is not one."""
        head, separator, note = data.partition(b"\n\n")
        try:
            first, *lines = head.decode().split("\n")
        except UnicodeDecodeError:
            raise Malformed("not a request for a subtree", expected="UTF-8") from None
        found = _RANGE.match(first)
        if not separator or found is None or not 1 <= len(lines) <= 1 + _MAX_PROOF:
            raise Malformed(
                "not a request for a subtree",
                expected="'subtree <start> <end>', a hash, at most 63 hashes of a proof, an empty line, a checkpoint",
            )
        root, *proof = (decode_base64(line, "subtree proof") for line in lines)
        if any(len(value) != HASH_SIZE for value in (root, *proof)):
            raise Malformed("not a request for a subtree", expected="hashes of 32 bytes")
        return cls(int(found[1]), int(found[2]), root, tuple(proof), note)


def sign_subtree(body: bytes, cosigners: Sequence[Cosigner], origins: Container[str]) -> WitnessAnswer:
    """The answer to ``POST sign-subtree`` of a user with these keys, who knows the logs of these origins."""
    able = {(c.name, c.verifier.key_id): c for c in cosigners if c.signs_subtrees}
    if not able:
        return error_answer(404, NotFound("no key here signs subtrees", expected="an ML-DSA-44 cosigner"))
    try:
        request = SubtreeRequest.parse(body)
        claimed = LogCheckpoint.parse(parse_note(request.note).text)
    except LedgerError as error:
        return error_answer(400, error)
    if not is_subtree(request.start, request.end) or request.end > claimed.size:
        found = Malformed("not a subtree of the checkpoint", where=f"leaves {request.start} to {request.end}")
        return error_answer(400, found)
    if claimed.origin not in origins:
        return error_answer(404, NotFound("this log is not known here", where=claimed.origin))
    try:
        checkpoint, note = open_checkpoint(request.note, [c.verifier for c in able.values()])
    except LedgerError as error:
        return error_answer(403, error)
    try:
        verify_subtree(request.start, request.end, checkpoint.size, request.root, checkpoint.root, request.proof)
    except LedgerError as error:
        return error_answer(422, error)
    subtree = Subtree(checkpoint.origin, request.start, request.end, request.root)
    signed = {(line.name, line.key_id) for line in note.signatures}
    lines = [str(cosigner.subtree_line(subtree)) for key, cosigner in able.items() if key in signed]
    return WitnessAnswer(200, "".join(lines).encode())


def ask_subtree(
    address: str,
    note: bytes,
    subtree: Subtree,
    proof: Sequence[bytes],
    keys: Sequence[VerifierKey],
    *,
    seconds: float = ANSWER_SECONDS,
) -> list[NoteSignature]:
    """The cosignatures of ``subtree`` by the witness or mirror at ``address``, verified under its ``keys``.

    ``note`` is a checkpoint that it has cosigned, ``proof`` shows the subtree in it.

    Raises:
        Refused: ``address`` is not one of https or http, or ``note`` has no cosignature by an ML-DSA-44 key of ``keys``.
        Conflict: it does not sign; what it said is in the message.
        Unavailable: it cannot be reached, or takes too long.
        Unverified: what it answered is not signed by ``keys``.
    """
    opened = parse_note(note)
    ours = {(key.name, key.key_id) for key in keys if key.algorithm == COSIGNATURE_MLDSA44}
    # Others' signatures only make the request longer.
    kept = Note(opened.text, tuple(line for line in opened.signatures if (line.name, line.key_id) in ours))
    if not kept.signatures:
        raise Refused(
            "the checkpoint is not cosigned by the one that shall sign a part of it",
            where=address,
            expected=", ".join(f"{key.name}+{key.key_id:08x}" for key in keys) or "an ML-DSA-44 cosignature key",
            found=", ".join(line.name for line in opened.signatures),
            cure="have the checkpoint cosigned first",
        )
    body = SubtreeRequest(subtree.start, subtree.end, subtree.root, tuple(proof), str(kept).encode()).encode()
    status, answer = ask(f"{address.rstrip('/')}/sign-subtree", body, seconds=seconds)
    if status != 200:
        raise Conflict(
            "the subtree is not cosigned",
            where=address,
            found=f"status {status}: {answer.decode(errors='replace')[:400]}",
        )
    return check_subtree(subtree, signature_lines(answer), keys)


def check_subtree(subtree: Subtree, lines: Sequence[NoteSignature], keys: Sequence[VerifierKey]) -> list[NoteSignature]:
    """Those of ``lines`` by which one of ``keys`` cosigned the subtree.

    Raises:
        Unverified: none did, or one of them signed something else.
    """
    known = {(key.name, key.key_id): key for key in keys if key.algorithm == COSIGNATURE_MLDSA44}
    good = [line for line in lines if (line.name, line.key_id) in known]
    for line in good:
        if cosigned_at(line.signature) or not known[line.name, line.key_id].verify_subtree(subtree, line.signature):
            raise Unverified("a cosignature of a subtree does not hold", where=f"{line.name}+{line.key_id:08x}")
    if not good:
        raise Unverified("no cosignature of the subtree by these keys", found=", ".join(line.name for line in lines))
    return good
