"""The witnesses of a root's log: which must cosign (a C2SP tlog-policy beside the log), asking them, what they signed.

``witness-policy`` in the root says whom to ask and how many must agree; ``witnessed`` is the newest checkpoint that
met it, with their cosignatures, which stay when the log goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ledger import (
    LedgerError,
    Log,
    LogReader,
    NotFound,
    PolicyWitness,
    Storage,
    Unavailable,
    Unverified,
    VerifierKey,
    WitnessPolicy,
    ask_witness,
)

POLICY = "witness-policy"
WITNESSED = "witnessed"


@dataclass(frozen=True)
class Asked:
    """What came of asking all witnesses: who cosigned, who did not and why, and whether the policy is met by that."""

    size: int
    cosigned: tuple[str, ...]
    failed: tuple[tuple[str, LedgerError], ...]
    unmet: LedgerError | None


def load_policy(storage: Storage) -> WitnessPolicy | None:
    """The policy of this root, if it has one."""
    try:
        return WitnessPolicy.parse(storage.read(POLICY))
    except NotFound:
        return None


def add_witness(storage: Storage, log: VerifierKey, witness: PolicyWitness, needed: int | None) -> WitnessPolicy:
    """Put a witness into the policy of this root, which begins with it; ``needed`` of them must cosign."""
    policy = (load_policy(storage) or WitnessPolicy(logs=(log,))).with_witness(witness, needed)
    storage.replace(POLICY, str(policy).encode())
    return policy


def ask_all(storage: Storage, log: Log, keys: Sequence[VerifierKey]) -> Asked:
    """Ask every witness of the policy to cosign the newest checkpoint, and publish what they sign.

    A witness that refuses or is away does not keep the others from cosigning. When the policy is met, the checkpoint
    is also kept as ``witnessed``.
    """
    policy = load_policy(storage)
    if policy is None or not policy.witnesses:
        raise Unavailable("this root has no witnesses", where=storage.describe(), expected=POLICY, found="no file",
                          cure="add one with `marin ledger witness add ADDRESS --vkey KEY`")
    log.publish()
    reader = LogReader(storage, keys)
    note = reader.note()
    text = str(reader.checkpoint())
    lines, cosigned = [], []
    failed: list[tuple[str, LedgerError]] = []
    for witness in policy.witnesses:
        if not witness.url:
            continue
        try:
            # It says itself up to where it knows the log; the first guess is that it does not.
            lines += ask_witness(witness.url, note, reader.consistency_proof, [witness.key])
            cosigned.append(witness.name)
        except LedgerError as error:
            failed.append((witness.name, error))
    if lines:
        log.add_cosignatures(lines, text=text)
    signed = LogReader(storage, keys).note()
    try:
        policy.check(signed, keys)
    except Unverified as error:
        return Asked(reader.checkpoint().size, tuple(cosigned), tuple(failed), error)
    storage.replace(WITNESSED, signed)
    return Asked(reader.checkpoint().size, tuple(cosigned), tuple(failed), None)
