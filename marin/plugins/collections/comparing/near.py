"""Near-duplicates: candidates by MinHash, a decision by the shingles themselves.

Every text has a set of shingles: ``n`` words in a row, or all of its words where it has fewer. Two texts are similar where
shared shingles divided by all of both is at least the threshold; it is compared as integers. MinHash with locality
sensitive hashing (Broder 1997; Leskovec, Rajaraman, Ullman, *Mining of Massive Datasets*, 3.4) only proposes pairs.

Candidates hang together in components. In a component documents come in an order of their content (the longest first, then by
id). One is removed when it is similar to one that is kept and shares a band with it; so each removal names a kept document
and their shared and united shingles, and a text that no kept one is similar to stays, however long the chain that leads
to it. A document is compared with kept ones only, and with no more than so many of a band, so a million copies of one text
cost a million comparisons. What was not compared with all of them is named.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from marin.plugins.collections.comparing.words import grams, numbered, rows, words
from marin.plugins.collections.settings import DEFINITION, Near

type Shingles = frozenset[tuple[str, ...]]
LISTED = 16
"""How many times ``most_compared`` a band lists."""
_BLOCK = 4096
"""Shingles that are hashed together."""


def shingles(text: str, length: int) -> Shingles:
    """Every ``length`` words in a row, each once; of a shorter text its words; nothing of one without words."""
    found = words(text)
    if len(found) < length:
        return frozenset([tuple(found)] if found else [])
    return frozenset(zip(*(found[offset:] for offset in range(length)), strict=False))


def signatures(texts: Sequence[str], near: Near) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """A key for each band of each text, uint64[texts, bands], and whether the text has words at all: without, its keys are
    0. Equal sets of shingles have equal keys."""
    numbers, counts = numbered(texts)
    all_grams, begins = _grams_of_each(numbers, counts, near.shingle)
    factors, terms = _permutations(near.bands * near.rows)
    least = np.full((near.bands * near.rows, len(texts)), np.iinfo(np.uint32).max, np.uint32)
    some = np.flatnonzero(np.diff(begins))  # reduceat has no answer for a text without words
    place = 0
    while place < len(some):
        begin = int(begins[some[place]])
        behind = max(int(np.searchsorted(begins[some + 1], begin + _BLOCK, side="right")), place + 1)
        chosen = some[place:behind]
        for start in range(begin, int(begins[chosen[-1] + 1]), _BLOCK):  # more than one for a long text alone
            hashed = all_grams[start : min(start + _BLOCK, int(begins[chosen[-1] + 1]))]
            mixed = factors[:, None] * hashed[None, :] + terms[:, None]
            here = np.maximum(begins[chosen] - start, 0)
            least[:, chosen] = np.minimum(least[:, chosen], np.minimum.reduceat(mixed, here, axis=1))
        place = behind
    keys = rows(least.T.reshape(len(texts), near.bands, near.rows).astype(np.uint64))
    has: NDArray[np.bool_] = counts > 0
    keys[~has] = 0
    return keys, has


def _grams_of_each(
    numbers: NDArray[np.uint64], counts: NDArray[np.int64], length: int
) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """The hashes of the shingles of all texts, and where those of each begin, with the end."""
    ends = np.cumsum(counts)
    kept = np.maximum(counts - length + 1, (counts > 0).astype(np.int64))
    begins = np.concatenate([np.zeros(1, np.int64), np.cumsum(kept)])
    found = np.zeros(int(begins[-1]), np.uint32)
    whole = (grams(numbers, length) >> np.uint64(32)).astype(np.uint32)
    long = counts >= length
    inside = np.zeros(len(whole) + 1, np.int8)  # shingles that do not reach into the next text
    np.add.at(inside, (ends - counts)[long], 1)
    np.add.at(inside, (ends - length + 1)[long], -1)
    places = np.repeat(long, kept)
    found[places] = whole[np.cumsum(inside[:-1]) > 0]
    for number in np.flatnonzero(~long & (counts > 0)).tolist():
        end, count = int(ends[number]), int(counts[number])
        found[begins[number]] = grams(numbers[end - count : end], count)[0] >> np.uint64(32)
    return found, begins


@cache
def _permutations(count: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Odd factors and terms of the ``count`` hash functions, drawn from SHA-256 of a counter."""
    drawn = [sha256(b"marin.minhash:%d" % number).digest() for number in range(count)]
    factors = np.array([int.from_bytes(item[:4], "big") | 1 for item in drawn], np.uint32)
    return factors, np.array([int.from_bytes(item[4:8], "big") for item in drawn], np.uint32)


type Keyed = tuple[NDArray[np.int64], NDArray[np.uint64]]
"""Numbers of documents in order, and the key of each in one band."""


def components(bands: Iterable[Iterable[Keyed]], count: int) -> NDArray[np.int64]:
    """For each of ``count`` documents the least number among those that it hangs together with.

    Args:
        bands: of each band its documents by key, in any pieces of which each has all documents of its keys.
    """
    labels = np.arange(count, dtype=np.int64)
    for band in bands:
        for numbers, keys in band:
            order = np.argsort(keys, kind="stable")
            same = keys[order[1:]] == keys[order[:-1]]
            _join(labels, numbers[order[:-1][same]], numbers[order[1:][same]])
    return labels


def _join(labels: NDArray[np.int64], first: NDArray[np.int64], second: NDArray[np.int64]) -> None:
    """Let pairs of documents hang together. Each label is the least number of a component, and its own label."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    left, right = labels[first], labels[second]
    other = left != right
    if not other.any():
        return
    roots, ends = np.unique(np.stack([left[other], right[other]]), return_inverse=True)
    ends = ends.reshape(2, -1)
    pairs = coo_matrix((np.ones(ends.shape[1], np.int8), (ends[0], ends[1])), shape=(len(roots), len(roots)))
    total, found = connected_components(pairs, directed=False)
    least = np.full(total, np.iinfo(np.int64).max)
    np.minimum.at(least, found, roots)
    labels[roots] = least[found]
    np.take(labels, labels, out=labels, mode="clip")


@dataclass(frozen=True)
class Similar:
    """A removed document and the kept one that it is similar to, by their places in the component; ``shared`` of ``united``
    shingles."""

    removed: int
    kept: int
    shared: int
    united: int


@dataclass(frozen=True)
class Bounded:
    """A kept document that was ``compared`` with so many of ``candidates`` kept ones, by its place in the component. Of the
    candidates those whose size alone says that they are not similar are left out."""

    place: int
    compared: int
    candidates: int


@dataclass
class Choice:
    """Documents of one component, one after the other in the order in which they are considered. ``left``: those that stayed
    and were not compared with all kept ones that share a band (with ``definition`` 1 all of them, and none is named).

    Where too many kept ones share a band, those are compared that share the most bands: each band is a sixth of a chance to be
    similar. A band lists ``most_compared`` * :data:`LISTED` of them.
    """

    near: Near
    definition: int = DEFINITION
    left: int = 0
    bounded: list[Bounded] = field(default_factory=list)
    _retained: dict[int, Shingles] = field(default_factory=dict)
    _leaders: list[dict[int, array[int]]] = field(default_factory=list)

    def choose(self, members: Iterable[tuple[str, Sequence[int]]]) -> Iterator[Similar]:
        """Those that are removed, of (text, its bands' keys)."""
        threshold, most = self.near.exact_threshold, self.near.most_compared
        share, whole = threshold.numerator, threshold.denominator
        listed = most if self.definition == 1 else most * LISTED
        self._leaders = [{} for _ in range(self.near.bands)]
        none = array("q")
        for place, (text, keys) in enumerate(members):
            mine = shingles(text, self.near.shingle)
            beside = [band.get(key, none) for band, key in zip(self._leaders, keys, strict=True)]
            full = any(len(one) >= listed for one in beside)
            if self.definition == 1:
                candidates = sorted(set().union(*beside))
                self.left += full or len(candidates) > most
                chosen = candidates[:most]
            else:
                candidates = self._fitting(beside, len(mine), share, whole)
                chosen = candidates if len(candidates) <= most else self._nearest(beside, candidates)
            found = self._similar(mine, chosen, share, whole)
            if found is not None:
                yield Similar(place, *found)
                continue
            if self.definition != 1 and (full or len(candidates) > most):
                self.left += 1
                self.bounded.append(Bounded(place, len(chosen), len(candidates)))
            self._retained[place] = mine
            for band, key in zip(self._leaders, keys, strict=True):
                if len(one := band.setdefault(key, array("q"))) < listed:
                    one.append(place)

    def _fitting(self, beside: Sequence[array[int]], size: int, share: int, whole: int) -> list[int]:
        """The kept ones that share a band and may be similar: the smaller may be all in the larger."""
        kept = self._retained
        return [
            other
            for other in sorted(set().union(*beside))
            if min(size, theirs := len(kept[other])) * whole >= share * max(size, theirs)
        ]

    def _nearest(self, beside: Sequence[array[int]], candidates: list[int]) -> list[int]:
        """Those that share the most bands, the first of equal ones, in order."""
        shared = Counter(other for one in beside for other in one)
        ranked = sorted(candidates, key=lambda other: (-shared[other], other))
        return sorted(ranked[: self.near.most_compared])

    def _similar(
        self, mine: Shingles, candidates: Sequence[int], share: int, whole: int
    ) -> tuple[int, int, int] | None:
        for other in candidates:
            theirs = self._retained[other]
            small, large = sorted((len(mine), len(theirs)))
            if small * whole < share * large:
                continue  # even if the smaller were all in the larger
            shared = len(mine & theirs)
            united = len(mine) + len(theirs) - shared
            if shared * whole >= share * united:
                return other, shared, united
        return None
