"""The Merkle tree against a naive oracle written from RFC 6962, section 2.1, and against published vectors."""

import base64
import hashlib
import json
import os
import random
from pathlib import Path

import pytest

from ledger import LedgerError, Malformed, Refused, Unverified
from ledger.format.tlog import (
    EMPTY_ROOT,
    TILE_WIDTH,
    Frontier,
    Tile,
    TileEdge,
    all_tiles,
    consistency_proof,
    fold,
    inclusion_proof,
    is_subtree,
    leaf_hash,
    partial_tiles,
    root_of,
    subtree_proof,
    subtree_root,
    tile_at,
    tile_of,
    tree_root,
    verify_inclusion,
    verify_subtree,
)
from ledger.witness.consistency import verify_consistency

LIMIT = 130
VECTORS = Path(os.environ.get("MARIN_SHARED", Path(__file__).resolve().parents[4] / "shared")) / "vectors"

# The oracle: the definitions of the RFC, word by word, over the entries themselves.


def largest_power_below(n):
    k = 1
    while k * 2 < n:
        k *= 2
    return k


def mth(entries):
    if not entries:
        return hashlib.sha256(b"").digest()
    if len(entries) == 1:
        return hashlib.sha256(b"\x00" + entries[0]).digest()
    k = largest_power_below(len(entries))
    return hashlib.sha256(b"\x01" + mth(entries[:k]) + mth(entries[k:])).digest()


def oracle_path(m, entries):
    if len(entries) == 1:
        return []
    k = largest_power_below(len(entries))
    if m < k:
        return [*oracle_path(m, entries[:k]), mth(entries[k:])]
    return [*oracle_path(m - k, entries[k:]), mth(entries[:k])]


def oracle_proof(m, entries, whole=True):
    if m == len(entries):
        return [] if whole else [mth(entries)]
    k = largest_power_below(len(entries))
    if m <= k:
        return [*oracle_proof(m, entries[:k], whole), mth(entries[k:])]
    return [*oracle_proof(m - k, entries[k:], False), mth(entries[:k])]


def oracle_subtree_proof(start, end, entries, whole=True):
    """SUBTREE_SUBPROOF of draft-ietf-plants-merkle-tree-certs-03, section 4.4."""
    n = len(entries)
    if (start, end) == (0, n):
        return [] if whole else [mth(entries)]
    k = largest_power_below(n)
    if end <= k:
        return [*oracle_subtree_proof(start, end, entries[:k], whole), mth(entries[k:])]
    if k <= start:
        return [*oracle_subtree_proof(start - k, end - k, entries[k:], whole), mth(entries[:k])]
    return [*oracle_subtree_proof(0, end - k, entries[k:], False), mth(entries[:k])]


ENTRIES = [bytes([i % 7]) * (i % 5) + str(i).encode() for i in range(LIMIT)]
LEAVES = [leaf_hash(entry) for entry in ENTRIES]
ROOTS = [mth(ENTRIES[:n]) for n in range(LIMIT + 1)]


def reader(size):
    def read(level, index):
        assert (index + 1) << level <= size, "asked for a hash outside of the tree"
        return fold(LEAVES[index << level : (index + 1) << level])

    return read


def bit_flips(proof):
    for at, value in enumerate(proof):
        for bit in range(256):
            flipped = bytearray(value)
            flipped[bit // 8] ^= 1 << bit % 8
            yield [*proof[:at], bytes(flipped), *proof[at + 1 :]]


def test_roots_of_all_sizes():
    frontier = Frontier()
    for size in range(LIMIT + 1):
        assert root_of(LEAVES[:size]) == ROOTS[size]
        assert tree_root(size, reader(size)) == ROOTS[size]
        assert frontier.root() == ROOTS[size]
        assert frontier.copy().root() == ROOTS[size]
        if size < LIMIT:
            frontier.append(LEAVES[size])


def test_the_tree_tells_repetition_from_padding():
    a, b, c = LEAVES[:3]
    assert root_of([a, b, c]) != root_of([a, b, c, c])
    assert root_of([]) == EMPTY_ROOT


@pytest.mark.long
def test_inclusion_proofs_of_all_sizes():
    for size in range(1, LIMIT + 1):
        for index in range(size):
            proof = inclusion_proof(index, size, reader(size))
            assert proof == oracle_path(index, ENTRIES[:size])
            verify_inclusion(index, size, LEAVES[index], proof, ROOTS[size])
            for wrong in ([*proof, LEAVES[0]], proof[:-1] if proof else [ROOTS[size]], proof[1:] or [EMPTY_ROOT]):
                with pytest.raises(Unverified):
                    verify_inclusion(index, size, LEAVES[index], wrong, ROOTS[size])
            with pytest.raises(Unverified):
                verify_inclusion(index, size, leaf_hash(b"other"), proof, ROOTS[size])


@pytest.mark.long
def test_consistency_proofs_of_all_sizes():
    for new in range(LIMIT + 1):
        for old in range(new + 1):
            proof = consistency_proof(old, new, reader(new))
            assert proof == (oracle_proof(old, ENTRIES[:new]) if old else [])
            verify_consistency(old, new, ROOTS[old], ROOTS[new], proof)
            for wrong in ([*proof, LEAVES[0]], proof[:-1] if proof else [ROOTS[new]]):
                with pytest.raises(Unverified):
                    verify_consistency(old, new, ROOTS[old], ROOTS[new], wrong)
            if old:
                with pytest.raises(Unverified):
                    verify_consistency(old, new, leaf_hash(b"other"), ROOTS[new], proof)
                with pytest.raises(Unverified):
                    verify_consistency(old, new, ROOTS[old], leaf_hash(b"other"), proof)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 33, 64, 65, 127, 130])
def test_every_flipped_bit_breaks_an_inclusion_proof(size):
    for index in {0, size // 3, size // 2, size - 1}:
        proof = inclusion_proof(index, size, reader(size))
        for wrong in bit_flips(proof):
            with pytest.raises(Unverified):
                verify_inclusion(index, size, LEAVES[index], wrong, ROOTS[size])
        for wrong_index in set(range(size)) - {index}:
            with pytest.raises(Unverified):
                verify_inclusion(wrong_index, size, LEAVES[index], proof, ROOTS[size])


@pytest.mark.parametrize(("old", "new"), [(1, 2), (1, 3), (3, 7), (4, 8), (6, 8), (64, 130), (65, 130), (128, 129)])
def test_every_flipped_bit_breaks_a_consistency_proof(old, new):
    for wrong in bit_flips(consistency_proof(old, new, reader(new))):
        with pytest.raises(Unverified):
            verify_consistency(old, new, ROOTS[old], ROOTS[new], wrong)


def all_proofs():
    """Every inclusion and consistency proof of all sizes, and how it is verified."""
    for size in range(1, LIMIT + 1):
        for index in range(size):
            proof = inclusion_proof(index, size, reader(size))
            yield proof, lambda p, i=index, n=size: verify_inclusion(i, n, LEAVES[i], p, ROOTS[n])
        for old in range(1, size):
            proof = consistency_proof(old, size, reader(size))
            yield proof, lambda p, o=old, n=size: verify_consistency(o, n, ROOTS[o], ROOTS[n], p)


def holds(verify, proof):
    try:
        verify(proof)
    except Unverified:
        return False
    return True


@pytest.mark.long
def test_one_flipped_bit_in_every_hash_of_every_proof():
    chosen = random.Random(4)
    for proof, verify in all_proofs():
        assert holds(verify, proof)
        for at, value in enumerate(proof):
            flipped = bytearray(value)
            flipped[chosen.randrange(32)] ^= 1 << chosen.randrange(8)
            assert not holds(verify, [*proof[:at], bytes(flipped), *proof[at + 1 :]])


@pytest.mark.faults
def test_every_flipped_bit_in_every_hash_of_every_proof():
    for proof, verify in all_proofs():
        for wrong in bit_flips(proof):
            assert not holds(verify, wrong)


def test_what_cannot_be_proven_is_refused():
    for index, size in ((0, 0), (-1, 5), (5, 5), (6, 5)):
        with pytest.raises(Refused):
            inclusion_proof(index, size, reader(size))
        with pytest.raises(Unverified):
            verify_inclusion(index, size, LEAVES[0], [], ROOTS[size])
    with pytest.raises(Refused):
        consistency_proof(6, 5, reader(5))
    with pytest.raises(Unverified):
        verify_consistency(6, 5, ROOTS[6], ROOTS[5], [])
    with pytest.raises(Malformed):
        verify_inclusion(0, 1, LEAVES[0][:31], [], LEAVES[0][:31])


def vectors(kind):
    files = sorted((VECTORS / "merkle" / kind).rglob("*.json"))
    return files or [pytest.param(None, marks=pytest.mark.skip(f"no published vectors at {VECTORS}; set MARIN_SHARED"))]


def decoded(value):
    return base64.b64decode(value or "")


@pytest.mark.parametrize("path", vectors("inclusion"), ids=lambda p: "/".join(p.parts[-2:]) if p else "none")
def test_published_inclusion_vectors(path):
    case = json.loads(path.read_text())
    values = (case["leafIdx"], case["treeSize"], decoded(case["leafHash"]), [decoded(p) for p in case["proof"] or []])
    if case["wantErr"]:
        with pytest.raises(LedgerError):
            verify_inclusion(*values, decoded(case["root"]))
    else:
        verify_inclusion(*values, decoded(case["root"]))


@pytest.mark.parametrize("path", vectors("consistency"), ids=lambda p: "/".join(p.parts[-2:]) if p else "none")
def test_published_consistency_vectors(path):
    case = json.loads(path.read_text())
    roots = decoded(case["root1"]), decoded(case["root2"])
    proof = [decoded(p) for p in case["proof"] or []]
    if case["wantErr"]:
        with pytest.raises(LedgerError):
            verify_consistency(case["size1"], case["size2"], *roots, proof)
    else:
        verify_consistency(case["size1"], case["size2"], *roots, proof)


def test_tiles_of_the_specification():
    # The worked examples of C2SP tlog-tiles: sizes 70,000 and 256.
    tiles = list(all_tiles(70_000))
    assert sum(not tile.partial for tile in tiles if tile.level == 0) == 273
    assert [tile for tile in tiles if tile.partial] == [Tile(0, 273, 112), Tile(1, 1, 17), Tile(2, 0, 1)]
    assert sum(not tile.partial for tile in tiles if tile.level == 1) == 1
    assert list(all_tiles(256)) == [Tile(0, 0), Tile(1, 0, 1)]
    assert partial_tiles(0) == []
    assert tile_at(0, 273, 70_000) == Tile(0, 273, 112)
    assert tile_at(0, 274, 70_000).width == 0


def test_tiles_hold_the_hashes_of_the_tree():
    size = 600
    leaves = [leaf_hash(str(i).encode()) for i in range(size)]
    edge, stored, frontier = TileEdge(), {}, Frontier()
    for leaf in leaves:
        stored.update(edge.append(leaf))
        frontier.append(leaf)
    stored.update(edge.partial())
    assert set(stored) == set(all_tiles(size))
    assert edge.frontier().root() == frontier.root() == root_of(leaves)
    assert TileEdge(size, edge.partial()).frontier().root() == frontier.root()

    def read(level, index):
        tile_level, tile_index, part = tile_of(level, index)
        data = stored[tile_at(tile_level, tile_index, size)]
        return fold([data[at * 32 : at * 32 + 32] for at in range(*part.indices(TILE_WIDTH))])

    for index in (0, 255, 256, 511, 512, 599):
        verify_inclusion(index, size, leaves[index], inclusion_proof(index, size, read), frontier.root())
    assert tree_root(size, read) == frontier.root()


def test_broken_edges_are_malformed():
    with pytest.raises(Malformed):
        Frontier(3, [LEAVES[0]])
    with pytest.raises(Malformed):
        TileEdge(3, [(Tile(0, 0, 2), LEAVES[0] + LEAVES[1])])
    with pytest.raises(Malformed):
        TileEdge(1, [(Tile(0, 0, 1), LEAVES[0][:31])])


def bit_ceil(n):
    power = 1
    while power < n:
        power *= 2
    return power


SUBTREES = 40
"""Trees up to this size are tried with all of their subtrees."""


def test_subtrees_are_those_of_the_definition():
    for end in range(SUBTREES + 1):
        for start in range(SUBTREES + 1):
            assert is_subtree(start, end) == (start < end and start % bit_ceil(end - start) == 0)
    assert is_subtree(0, (1 << 63) - 1) and not is_subtree(1 << 62, (1 << 63) + 1) and not is_subtree(-2, 0)


@pytest.mark.parametrize("size", range(1, SUBTREES + 1))
def test_proofs_of_subtrees(size):
    """As the definition has them; the own root leads to the tree's, and nothing else does."""
    for start in range(size):
        for end in (end for end in range(start + 1, size + 1) if is_subtree(start, end)):
            root = subtree_root(start, end, reader(size))
            assert root == mth(ENTRIES[start:end])
            proof = subtree_proof(start, end, size, reader(size))
            assert proof == oracle_subtree_proof(start, end, ENTRIES[:size])
            verify_subtree(start, end, size, root, ROOTS[size], proof)
            wrong = [
                (start, end, size, bytes(32), ROOTS[size], proof),
                (start, end, size, root, bytes(32), proof),
                (start, end, size, root, ROOTS[size], [*proof, bytes(32)]),
                *((start, end, size, root, ROOTS[size], proof[:at] + proof[at + 1 :]) for at in range(len(proof))),
                *(
                    (start, end, size, root, ROOTS[size], [*proof[:at], flipped(proof[at]), *proof[at + 1 :]])
                    for at in range(len(proof))
                ),
            ]
            for case in wrong:
                with pytest.raises(Unverified):
                    verify_subtree(*case)


def flipped(value):
    return bytes([value[0] ^ 1]) + value[1:]


def test_ranges_that_are_no_subtrees():
    for start, end in ((1, 3), (2, 5), (3, 3), (4, 2), (-1, 0), (0, 9)):
        with pytest.raises(Unverified):
            verify_subtree(start, end, 8, bytes(32), bytes(32), [])
        with pytest.raises(Refused):
            subtree_proof(start, end, 8, reader(8))
    with pytest.raises(Malformed):
        verify_subtree(0, 1, 1, b"short", b"short", [])
