"""Bringing a log to a mirror (C2SP tlog-mirror): its newest checkpoint, then the entries that the mirror lacks, until it signs.

``follow_log`` talks to any mirror, ours or another's, through ``Post``: over HTTP for someone else's (``mirror_at``), or to a
``LogMirror`` in this process, which so follows a log of others by reading it (``post_to``).
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping, Sequence

from ledger.errors import Conflict, LedgerError, Tampered, Unverified
from ledger.format.note import NoteSignature, VerifierKey
from ledger.format.tlog import subtree_proof
from ledger.log.reader import LogReader
from ledger.mirror.entries import MAX_PACKAGES, EntriesHead, MirrorInfo, Package, encode_entries, packages
from ledger.mirror.mirror import LogMirror
from ledger.witness.client import ANSWER_SECONDS, ask, signature_lines
from ledger.witness.upload import bytes_upload
from ledger.witness.witness import WitnessRequest

Post = Callable[[str, bytes, Mapping[str, str]], tuple[int, bytes]]
"""Status and body of the answer to a body that is posted to a path, with these headers."""

_MAX_BODY = 1 << 24
_MAX_STALLS = 3


def mirror_at(address: str, *, seconds: float = ANSWER_SECONDS) -> Post:
    """The mirror whose submission prefix this is."""

    def posted(path: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        return ask(address.rstrip("/") + path, body, headers, seconds=seconds)

    return posted


def post_to(mirror: LogMirror) -> Post:
    """A mirror in this process."""

    def posted(path: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        answer = mirror.posts[path](body) if path in mirror.posts else mirror.uploads[path](bytes_upload(body, headers))
        return answer.status, answer.body

    return posted


def follow_log(post: Post, reader: LogReader, keys: Sequence[VerifierKey]) -> list[NoteSignature]:
    """Have the mirror take the log up to the reader's checkpoint; its cosignatures of that, verified under ``keys``.

    Every entry that is sent was verified under the log's signed root. An upload that was interrupted goes on where the
    mirror says that it stopped.

    Raises:
        Tampered: the mirror has seen a longer log, or another history.
        Conflict: the mirror refuses, or does not come to an end; what it said is in the message.
        Unavailable: it cannot be reached, or takes too long.
        Unverified: what it answered is not signed by ``keys``.
    """
    checkpoint, note = reader.checkpoint(), reader.note()
    _send_checkpoint(post, reader, note)
    # Nothing is sent at first: a mirror that has all entries signs, another says what it lacks.
    info, furthest, stalls = MirrorInfo(checkpoint.size, checkpoint.size), -1, 0
    while stalls < _MAX_STALLS:
        head, sent = _upload(reader, info, checkpoint.size)
        body = gzip.compress(encode_entries(head, sent), 1)
        headers = {"Content-Type": "application/octet-stream", "Content-Encoding": "gzip"}
        status, answer = post("/add-entries", body, headers)
        if status == 200 and head.end == checkpoint.size:
            return _verified(str(checkpoint), answer, keys)
        if status == 200:
            found = MirrorInfo(checkpoint.size, head.end)
        elif status in (202, 409):
            found = MirrorInfo.parse(answer)
        else:
            raise _refused("the mirror does not take the entries", status, answer)
        if found.size > checkpoint.size:
            raise Conflict(
                "the mirror waits for a newer checkpoint of the log",
                expected=f"size {checkpoint.size}",
                found=f"{found.size}",
                cure="read the log again",
            )
        reached = min(found.next_entry, checkpoint.size)  # entries beyond the log's end are not progress
        stalls = 0 if reached > furthest else stalls + 1
        info, furthest = found, max(reached, furthest)
    raise Conflict(
        "the mirror does not go on", expected=f"entries up to {checkpoint.size}", found=f"next is {info.next_entry}"
    )


def _upload(reader: LogReader, info: MirrorInfo, size: int) -> tuple[EntriesHead, list[Package]]:
    """The next request: as many packages as one should have, up to the checkpoint that the mirror waits for."""
    start, end = min(info.next_entry, info.size), info.size
    sent: list[Package] = []
    length = 0
    for first, stop in packages(start, end):
        entries = tuple(entry for _, entry in reader.entries(first, stop))
        proof = subtree_proof(first - first % 256, stop, end, reader.hash)
        sent.append(Package(first, stop, entries, tuple(proof)))
        length += sum(map(len, entries))
        if len(sent) == MAX_PACKAGES or length > _MAX_BODY:
            break
    return EntriesHead(reader.checkpoint().origin, start, end, info.ticket), sent


def _send_checkpoint(post: Post, reader: LogReader, note: bytes) -> None:
    size, old = reader.checkpoint().size, 0
    status, answer = 0, b""
    for _ in range(3):
        proof = tuple(reader.consistency_proof(old)) if old else ()
        status, answer = post("/add-checkpoint", WitnessRequest(old, proof, note).encode(), {})
        if status == 200:
            return
        known = answer.decode("ascii", "replace").strip()
        if status != 409 or not known.isdecimal() or len(known) > 19:
            break
        old = int(known)
        if old > size:
            raise Tampered(
                "the mirror has seen a longer log",
                expected=f"at most {size} entries",
                found=known,
                cure="this log was rolled back: restore its newest copy",
            )
    raise _refused("the mirror does not take the checkpoint", status, answer)


def _verified(text: str, answer: bytes, keys: Sequence[VerifierKey]) -> list[NoteSignature]:
    known = {(key.name, key.key_id): key for key in keys}
    lines = signature_lines(answer)
    good = [line for line in lines if (line.name, line.key_id) in known]
    if not good or not all(known[line.name, line.key_id].verify(text, line.signature) for line in good):
        raise Unverified("the mirror sent no cosignature of its keys", found=", ".join(line.name for line in lines))
    return good


def _refused(what: str, status: int, answer: bytes) -> LedgerError:
    return Conflict(what, found=f"status {status}: {answer.decode(errors='replace')[:400]}")
