"""Which witnesses must cosign a log: by a root's own choice (a C2SP tlog-policy beside the log), or by this user's.

``witness-policy`` in the root says whom to ask and how many must agree; ``witnessed`` is the newest checkpoint that
met it, with their cosignatures, which stay when the log goes on.
"""

from __future__ import annotations

from ledger import LedgerError, NotFound, PolicyWitness, Storage, VerifierKey, WitnessPolicy
from marin.record.trust.trusted import Trust, read_trusted, unusable

POLICY = "witness-policy"
WITNESSED = "witnessed"


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


def own_policy(trust: Trust) -> WitnessPolicy | None:
    """The witnesses that count for this user, for every log."""
    if not trust.policy_file.exists():
        return None
    try:
        return WitnessPolicy.parse(read_trusted(trust.policy_file))
    except LedgerError as error:
        raise unusable(trust.policy_file, "a C2SP tlog-policy", str(error)[:200]) from error
