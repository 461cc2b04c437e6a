"""A log only appended: the root of its older size and the root of its newer one, joined by a proof (RFC 9162, section 2.1.4)."""

from __future__ import annotations

from collections.abc import Sequence

from ledger.errors import Unverified
from ledger.format.tlog import EMPTY_ROOT, check_hashes, check_root, node_hash


def verify_consistency(old: int, new: int, old_root: bytes, new_root: bytes, proof: Sequence[bytes]) -> None:
    """Raise unless ``proof`` shows that the tree (``new``, ``new_root``) only appended to (``old``, ``old_root``).

    Raises:
        Unverified: the proof does not lead to both roots.
    """
    check_hashes((old_root, new_root, *proof))
    if not 0 <= old <= new:
        raise Unverified("consistency proof", expected=f"an older size up to {new}", found=f"{old}")
    if old in (0, new):
        if proof:
            raise Unverified("consistency proof", expected="an empty proof", found=f"{len(proof)} hashes")
        check_root("consistency proof", old, old_root, new_root if old == new else EMPTY_ROOT)
        return
    path = [old_root, *proof] if old.bit_count() == 1 else list(proof)
    if not path:
        raise Unverified("consistency proof", found="an empty proof")
    node, last = old - 1, new - 1
    while node & 1:
        node, last = node >> 1, last >> 1
    older = newer = path[0]
    for step in path[1:]:
        if last == 0:
            raise Unverified("consistency proof", found="more hashes than the tree is high")
        if node & 1 or node == last:
            older, newer = node_hash(step, older), node_hash(step, newer)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            newer = node_hash(newer, step)
        node, last = node >> 1, last >> 1
    if last:
        raise Unverified("consistency proof", found="fewer hashes than the tree is high")
    check_root("consistency proof", old, old_root, older)
    check_root("consistency proof", new, new_root, newer)
