"""Whom a reader believes: the keys it was given, and those that they handed over to (see ``keyring``).

A link ``keys/<n>`` is a tlog-proof of an event of type ``log.key-rotated/v1`` or ``log.key-retired/v1``. Links are followed
in order. One that no known key signed is passed by: it belongs to a time before the key that is trusted here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ledger.errors import Malformed, NotFound, Unverified
from ledger.format.checkpoint import LogCheckpoint
from ledger.format.cosignature import COSIGNATURE_MLDSA44
from ledger.format.event import KEY_RETIRED, KEY_ROTATED, Event, parse_event
from ledger.format.note import ED25519, VerifierKey, open_note
from ledger.format.proof import LogProof, verify_proof
from ledger.storage.port import Storage

_MOST = 1000
_HALVES = (ED25519, COSIGNATURE_MLDSA44)


def link_path(number: int) -> str:
    """Where the link of the n-th event of a key lies."""
    return f"keys/{number}"


def read_links(storage: Storage) -> Iterator[tuple[str, LogProof]]:
    """The links that are there, by path, in order, not yet believed.

    Raises:
        Malformed: a file of links is not one.
    """
    for number in range(_MOST):
        path = link_path(number)
        try:
            data = storage.read(path)
        except NotFound:
            return
        try:
            yield path, LogProof.parse(data)
        except Malformed as error:
            raise Malformed(
                error.what, where=path, expected=error.expected, found=error.found, cure="restore the file from a copy"
            ) from error


def follow_keys(storage: Storage, trusted: Sequence[VerifierKey]) -> list[VerifierKey]:
    """The keys to believe in: ``trusted``, and what they handed over to, each with the size up to which it counts.

    Raises:
        Malformed: a link of keys is not one. One that no trusted key signed is passed over.
    """
    keys = {(key.name, key.key_id): key for key in trusted}
    for path, proof in read_links(storage):
        if proof.extra is None:
            raise Malformed("a link of keys carries no entry", where=path)
        try:
            proven = verify_proof(proof, list(keys.values()))
        except Unverified:
            continue
        event = parse_event(proven.entry)
        named = named_keys(event)
        for key in named:
            known = (key.name, key.key_id)
            if event["type"] == KEY_ROTATED and key.name == proven.checkpoint.origin:
                keys.setdefault(known, key)
            elif event["type"] == KEY_RETIRED and known in keys:
                keys[known] = replace(keys[known], until=proven.index)
    return list(keys.values())


def check_signers(
    checkpoint: LogCheckpoint, note: bytes, keys: Sequence[VerifierKey], changes: Sequence[tuple[int, Event]]
) -> tuple[VerifierKey, ...]:
    """The keys that signed ``checkpoint`` and count for it by the log's own events of keys (``changes``, with indices).

    The links beside the log are files that a publisher can leave out; these events are entries that nobody can. A key
    that the log retired counts no more, and where both halves of a hybrid key are known, from ``keys`` or from the last
    rotation, both must have signed.

    Raises:
        Unverified: no key that counts signed, or one of a hybrid key's signatures is missing.
    """
    mine = [key for key in keys if key.name == checkpoint.origin]
    ends = {(key.name, key.key_id): key.until for key in mine if key.until is not None}
    published: list[VerifierKey] = []
    for index, event in sorted(changes, key=lambda item: item[0]):
        named = [key for key in named_keys({"body": event.body, "id": event.id}) if key.name == checkpoint.origin]
        if event.type == KEY_RETIRED:
            ends |= {(key.name, key.key_id): index for key in named}
        elif index + 1 < checkpoint.size:  # the event of a rotation itself is signed by the key before
            published = named
    known = list(
        {
            (key.name, key.key_id): replace(key, until=ends.get((key.name, key.key_id))) for key in (*mine, *published)
        }.values()
    )
    believed = {(key.name, key.key_id) for key in mine}
    _, signed = open_note(note, known)
    good = [key for key in signed if key.until is None or checkpoint.size <= key.until]
    if not any((key.name, key.key_id) in believed for key in good):
        raise Unverified(
            "only retired keys signed",
            where=f"{checkpoint.origin}, size {checkpoint.size}",
            expected="a key that the log has not retired",
            found=", ".join(f"{key.name}+{key.key_id:08x}" for key in signed),
            cure="do not trust this checkpoint: anyone who has the retired key may have signed it",
        )
    if published:
        needed = [[key] for key in published] if _hybrid(published) else []
    else:  # no rotation: the log has one key from its beginning, whose halves are what its reader was given
        needed = [[key for key in mine if key.algorithm == half] for half in _HALVES] if _hybrid(mine) else []
    for half in needed:
        counting = [key for key in half if (key.name, key.key_id) not in ends]
        if counting and not any(key in good for key in counting):
            raise Unverified(
                "one of the two signatures of a hybrid key is missing",
                where=f"{checkpoint.origin}, size {checkpoint.size}",
                expected=f"a signature of {' or '.join(f'{key.name}+{key.key_id:08x}' for key in counting)} as well",
                found=", ".join(f"{key.name}+{key.key_id:08x}" for key in good),
                cure="get the checkpoint as it was published: both halves of the key were, so both must have signed",
            )
    return tuple(good)


def _hybrid(keys: Sequence[VerifierKey]) -> bool:
    return any(key.algorithm == COSIGNATURE_MLDSA44 for key in keys)


def named_keys(event: Mapping[str, Any], member: str = "vkeys") -> list[VerifierKey]:
    """The keys that an event of keys is about, or ``by`` which it was signed; ``Malformed`` where it names none."""
    vkeys = event["body"].get(member)
    if not isinstance(vkeys, list) or not vkeys or not all(isinstance(text, str) for text in vkeys):
        raise Malformed("not an event of keys", where=str(event["id"]), expected=f"{member}, a list of verifier keys")
    return [VerifierKey.parse(text) for text in vkeys]
