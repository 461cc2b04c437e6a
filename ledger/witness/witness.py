"""Witnessing (C2SP tlog-witness, tlog-cosignature): others vouch that the log only ever appended.

A witness keeps, for each log it knows, the newest checkpoint that it has cosigned. It cosigns another only
with a proof that this one continues it; so a log that shows two histories cannot have both cosigned by the
same witness. The check of the old size, the proof, and the new record are one step under a lock, and the
record is durable before the answer goes out.

``Witness`` is the decision without the network (``ledger.witness.server`` is the HTTP around it), ``ask_witness`` the log's
side, and ``check_witnessed`` the policy of the verifier: n of these m witnesses.
"""

from __future__ import annotations

import base64
import logging
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ledger.errors import Conflict, LedgerError, Malformed, NotFound, Tampered, Unverified
from ledger.format.checkpoint import LogCheckpoint, open_checkpoint
from ledger.format.cosignature import cosigned_at
from ledger.format.cosigner import Cosigner
from ledger.format.note import Note, NoteSignature, VerifierKey, decode_base64, parse_note
from ledger.format.tlog import EMPTY_ROOT, HASH_SIZE
from ledger.storage.port import Storage
from ledger.witness.client import ANSWER_SECONDS, WitnessAnswer, ask, error_answer, signature_lines
from ledger.witness.consistency import verify_consistency
from ledger.witness.monitoring import origin_hash
from ledger.witness.subtree import sign_subtree
from ledger.witness.upload import Upload

_LOG = logging.getLogger(__name__)
_CHECKPOINT = re.compile(r"/([0-9a-f]{64})/checkpoint")
_OLD = re.compile(r"old (0|[1-9][0-9]{0,18})\Z")
_MAX_PROOF = 63
_LOCK_SECONDS = 10.0


@dataclass(frozen=True)
class WitnessRequest:
    """The body of ``add-checkpoint``: old size, consistency proof, signed checkpoint."""

    old_size: int
    proof: tuple[bytes, ...]
    note: bytes

    def encode(self) -> bytes:
        hashes = [base64.b64encode(value).decode() for value in self.proof]
        return "\n".join([f"old {self.old_size}", *hashes, "", ""]).encode() + self.note

    @classmethod
    def parse(cls, data: bytes) -> WitnessRequest:
        head, separator, note = data.partition(b"\n\n")
        try:
            first, *lines = head.decode().split("\n")
        except UnicodeDecodeError:
            raise Malformed("not a request to a witness", expected="UTF-8") from None
        old = _OLD.match(first)
        if not separator or old is None or len(lines) > _MAX_PROOF:
            raise Malformed("not a request to a witness", expected="'old <size>', at most 63 hashes, a checkpoint")
        proof = tuple(decode_base64(line, "consistency proof") for line in lines)
        if any(len(value) != HASH_SIZE for value in proof):
            raise Malformed("not a request to a witness", expected="hashes of 32 bytes")
        return cls(int(old[1]), proof, note)


class Witness:
    """Decides over checkpoints of the logs it is told to watch, and remembers what it cosigned."""

    def __init__(
        self, storage: Storage, cosigners: Sequence[Cosigner], logs: Mapping[str, Sequence[VerifierKey]]
    ) -> None:
        """Without ``cosigners`` it signs nothing and keeps what it has seen, as a mirror does with what is still to come."""
        self._storage = storage
        self._cosigners = tuple(cosigners)
        self._logs = dict(logs)
        self._mutex = threading.Lock()

    def add_checkpoint(self, body: bytes) -> WitnessAnswer:
        """The answer to ``POST add-checkpoint``."""
        try:
            request = WitnessRequest.parse(body)
            claimed = LogCheckpoint.parse(parse_note(request.note).text)
        except LedgerError as error:
            return error_answer(400, error)
        if claimed.origin not in self._logs:
            return error_answer(404, NotFound("this witness does not know the log", where=claimed.origin))
        try:
            checkpoint, note = open_checkpoint(request.note, self._logs[claimed.origin])
        except LedgerError as error:
            return error_answer(403, error)
        if request.old_size > checkpoint.size:
            return error_answer(400, Malformed("the old size is beyond the checkpoint", found=f"{request.old_size}"))
        name = f"witness/{origin_hash(checkpoint.origin)}"
        with self._mutex, self._storage.lock("witness/.lock", "cosigning", wait=_LOCK_SECONDS):
            known = self._known(name, checkpoint.origin)
            if request.old_size != known.size:
                return WitnessAnswer(409, f"{known.size}\n".encode(), "text/x.tlog.size")
            try:
                _check_continues(known, checkpoint, request.proof)
            except LedgerError as error:
                _LOG.warning("refused to cosign: %s", error)
                return error_answer(422, error)
            lines = [cosigner.line(note.text) for cosigner in self._cosigners]
            trusted = {(key.name, key.key_id) for key in self._logs[checkpoint.origin]}
            verified = [line for line in note.signatures if (line.name, line.key_id) in trusted]
            self._storage.replace(name, str(Note(note.text, (*verified, *lines))).encode())
        return WitnessAnswer(200, "".join(map(str, lines)).encode())

    def sign_subtree(self, body: bytes) -> WitnessAnswer:
        """The answer to ``POST sign-subtree``."""
        return sign_subtree(body, self._cosigners, self._logs)

    def checkpoint(self, hashed: str) -> WitnessAnswer:
        """The answer to ``GET <origin hash>/checkpoint``: the newest that was cosigned."""
        try:
            return WitnessAnswer(200, self._storage.read(f"witness/{hashed}"))
        except LedgerError as error:
            return error_answer(404, error)

    @property
    def posts(self) -> Mapping[str, Callable[[bytes], WitnessAnswer]]:
        """What is asked with a body that is read whole, by path."""
        return {"/add-checkpoint": self.add_checkpoint, "/sign-subtree": self.sign_subtree}

    @property
    def uploads(self) -> Mapping[str, Callable[[Upload], WitnessAnswer]]:
        """What is sent piece by piece, by path."""
        return {}

    def page(self, path: str) -> WitnessAnswer | None:
        """The answer to ``GET path``; None where there is no such page."""
        match = _CHECKPOINT.fullmatch(path)
        return None if match is None else self.checkpoint(match[1])

    def _known(self, name: str, origin: str) -> LogCheckpoint:
        try:
            data = self._storage.read(name)
        except NotFound:
            return LogCheckpoint(origin, 0, EMPTY_ROOT)
        # Its own record must carry its own signature: one that a user edited is not continued.
        signers = [cosigner.verifier for cosigner in self._cosigners] or self._logs[origin]
        return open_checkpoint(data, signers, origin=origin)[0]


def ask_witness(
    address: str,
    note: bytes,
    prove: Callable[[int], Sequence[bytes]],
    keys: Sequence[VerifierKey],
    *,
    old_size: int = 0,
    seconds: float = ANSWER_SECONDS,
) -> list[NoteSignature]:
    """The cosignatures of the witness at ``address`` for this signed checkpoint, verified under its ``keys``.

    ``prove`` makes the consistency proof from the size that the witness knows. A witness that refuses raises
    ``Conflict`` with what it said, one that cannot be reached ``Unavailable``; so does one whose whole answer, to each of at
    most three requests, takes longer than ``seconds``.

    Raises:
        Refused: ``address`` is not one of https or http.
        Tampered: the witness has seen a longer log.
        Unverified: what it answered is not signed by ``keys``.
    """
    text = parse_note(note).text
    size = LogCheckpoint.parse(text).size
    status, body = 0, b""
    for _ in range(3):
        proof = tuple(prove(old_size)) if old_size else ()
        request = WitnessRequest(old_size, proof, note).encode()
        status, body = ask(f"{address.rstrip('/')}/add-checkpoint", request, seconds=seconds)
        if status == 200:
            return _verified(text, body, keys)
        known = body.decode("ascii", "replace").strip()
        if status != 409 or not known.isdecimal() or len(known) > 19:
            break
        if int(known) > size:
            raise Tampered(
                "the witness has seen a longer log",
                where=address,
                expected=f"at most {size} entries",
                found=known,
                cure="this log was rolled back: restore its newest copy",
            )
        old_size = int(known)
    raise Conflict(
        "the witness does not cosign", where=address, found=f"status {status}: {body.decode(errors='replace')[:400]}"
    )


def check_witnessed(note: bytes, witnesses: Sequence[VerifierKey], needed: int) -> list[str]:
    """The names of the witnesses that cosigned; ``Unverified`` if they are fewer than ``needed``. The log's key is another
    matter."""
    parsed = parse_note(note)
    known = {(key.name, key.key_id): key for key in witnesses}
    good: dict[str, None] = {}
    for line in parsed.signatures:
        key = known.get((line.name, line.key_id))
        if key is not None:
            if not key.verify(parsed.text, line.signature):
                raise Unverified("a cosignature does not hold", where=f"{line.name}+{line.key_id:08x}")
            good[key.name] = None
    if len(good) < needed:
        raise Unverified(
            "too few witnesses",
            expected=f"{needed} of {len({key.name for key in witnesses})}",
            found=", ".join(good) or "none",
        )
    return list(good)


def _check_continues(known: LogCheckpoint, new: LogCheckpoint, proof: Sequence[bytes]) -> None:
    if new.size == 0 and new.root != EMPTY_ROOT:
        raise Unverified("an empty log has another root", expected=EMPTY_ROOT.hex(), found=new.root.hex())
    if known.size == new.size and known.root != new.root and known.size:
        raise Tampered(
            "two roots of the same size",
            where=f"{new.origin}, size {new.size}",
            expected=known.root.hex(),
            found=new.root.hex(),
            cure="the log shows two histories: keep both checkpoints as evidence",
        )
    if known.size == 0:
        if proof:
            raise Unverified("consistency proof", expected="an empty proof", found=f"{len(proof)} hashes")
        return
    try:
        verify_consistency(known.size, new.size, known.root, new.root, proof)
    except Unverified as error:
        raise Tampered(
            "the new root does not continue the one that was cosigned",
            where=f"{new.origin}, sizes {known.size} and {new.size}",
            expected=f"a proof from {known.root.hex()}",
            found=f"root {new.root.hex()} ({error})",
            cure="the log was rewritten, or the proof is wrong",
        ) from error


def _verified(text: str, body: bytes, keys: Sequence[VerifierKey]) -> list[NoteSignature]:
    known = {(key.name, key.key_id): key for key in keys}
    lines = signature_lines(body) if body else ()
    good = [
        line
        for line in lines
        if (key := known.get((line.name, line.key_id))) is not None
        and key.verify(text, line.signature)
        and cosigned_at(line.signature)  # without a time it does not say that this tree is the newest
    ]
    if not good:
        found = ", ".join(line.name for line in lines) or "none"
        raise Unverified("the witness sent no cosignature of its keys", found=found)
    return good
