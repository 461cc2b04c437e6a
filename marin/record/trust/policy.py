"""The witnesses of a root's log: which must cosign (a C2SP tlog-policy beside the log).

``witness-policy`` in the root says whom to ask and how many must agree; ``witnessed`` is the newest checkpoint that
met it, with their cosignatures, which stay when the log goes on.
"""

from __future__ import annotations

from ledger import NotFound, PolicyWitness, Storage, VerifierKey, WitnessPolicy

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
