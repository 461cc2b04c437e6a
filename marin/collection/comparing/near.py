"""Near-duplicates: candidates by MinHash, a decision by the shingles themselves.

Every text has a set of shingles: ``n`` words in a row, or all of its words where it has fewer. Two texts are similar where
shared shingles divided by all of both is at least the threshold; it is compared as integers. MinHash with locality
sensitive hashing (Broder 1997; Leskovec, Rajaraman, Ullman, *Mining of Massive Datasets*, 3.4) only proposes pairs.

Candidates hang together in components. In a component documents come in an order of their content (the longest first, then by
id). One is removed when it is similar to one that is kept and shares a band with it; so each removal names a kept document
and their shared and united shingles, and a text that no kept one is similar to stays, however long the chain that leads
to it. A document is compared with kept ones only, so a million copies of one text cost a million comparisons.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from marin.collection.comparing.words import grams, hashes, rows, words
from marin.collection.settings import Near

type Shingles = frozenset[tuple[str, ...]]
_BLOCK = 2048


def shingles(text: str, length: int) -> Shingles:
    """Every ``length`` words in a row, each once; of a shorter text its words; nothing of one without words."""
    found = words(text)
    if len(found) < length:
        return frozenset([tuple(found)] if found else [])
    return frozenset(zip(*(found[offset:] for offset in range(length)), strict=False))


def signature(text: str, near: Near) -> NDArray[np.uint64] | None:
    """A key for each band, uint64[bands]; None for a text without words. Equal sets of shingles have equal keys."""
    listed = words(text)
    if not listed:
        return None
    numbers = grams(hashes(listed), min(near.shingle, len(listed)))
    factors, terms = _permutations(near.bands * near.rows)
    least = np.full(len(factors), np.iinfo(np.uint32).max, np.uint32)
    for start in range(0, len(numbers), _BLOCK):
        mixed = factors[:, None] * numbers[None, start : start + _BLOCK] + terms[:, None]
        np.minimum(least, (mixed >> np.uint64(32)).astype(np.uint32).min(axis=1), out=least)
    return rows(least.astype(np.uint64).reshape(near.bands, near.rows))


@cache
def _permutations(count: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Odd factors and terms of the ``count`` hash functions, drawn from SHA-256 of a counter."""
    drawn = [sha256(b"marin.minhash:%d" % number).digest() for number in range(count)]
    factors = np.array([int.from_bytes(item[:8], "big") | 1 for item in drawn], np.uint64)
    return factors, np.array([int.from_bytes(item[8:16], "big") for item in drawn], np.uint64)


def components(bands: Sequence[NDArray[np.uint64]], count: int) -> NDArray[np.int64]:
    """For each of ``count`` documents the least number among those that it hangs together with.

    Args:
        bands: of each band its keys, uint64[count], by the number of the document.
    """
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    first: list[NDArray[np.int64]] = []
    second: list[NDArray[np.int64]] = []
    for keys in bands:
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
        same = ordered[1:] == ordered[:-1]
        first.append(order[:-1][same])
        second.append(order[1:][same])
    left, right = np.concatenate(first), np.concatenate(second)
    graph = coo_matrix((np.ones(len(left), np.int8), (left, right)), shape=(count, count))
    _, labels = connected_components(graph, directed=False)
    least = np.full(labels.max(initial=-1) + 1, count, np.int64)
    np.minimum.at(least, labels, np.arange(count))
    found: NDArray[np.int64] = least[labels]
    return found


@dataclass(frozen=True)
class Similar:
    """A removed document and the kept one that it is similar to, by their places in the component; ``shared`` of ``united``
    shingles."""

    removed: int
    kept: int
    shared: int
    united: int


def choose(texts: Sequence[str], keys: NDArray[np.uint64], near: Near) -> tuple[list[Similar], int]:
    """What is removed of a component, and how many documents had more kept neighbours than were compared.

    Args:
        texts: in the order in which they are considered.
        keys: their bands' keys, uint64[documents, bands].
    """
    threshold = near.exact_threshold
    share, whole = threshold.numerator, threshold.denominator
    kept: dict[int, Shingles] = {}
    leaders: list[dict[int, list[int]]] = [{} for _ in range(near.bands)]
    removed: list[Similar] = []
    left = 0
    for place, text in enumerate(texts):
        mine = shingles(text, near.shingle)
        bands = keys[place].tolist()
        candidates = sorted({one for band, key in zip(leaders, bands, strict=True) for one in band.get(key, ())})
        left += len(candidates) > near.most_compared
        best: Similar | None = None
        for other in candidates[: near.most_compared]:
            theirs = kept[other]
            small, large = sorted((len(mine), len(theirs)))
            if small * whole < share * large:
                continue  # even if the smaller were all in the larger
            shared = len(mine & theirs)
            united = len(mine) + len(theirs) - shared
            if shared * whole >= share * united:
                best = Similar(place, other, shared, united)
                break
        if best is not None:
            removed.append(best)
            continue
        kept[place] = mine
        for band, key in zip(leaders, bands, strict=True):
            band.setdefault(key, []).append(place)
    return removed, left
