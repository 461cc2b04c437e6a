"""Sampling and mixing: which of the documents that are left belong to the collection, by content alone.

Every text has a place among all texts, drawn from its digest, and every source a bound: a document stays when its text's place
is below it. So a smaller share of the same documents is a part of a larger one, and no list of what was drawn is needed: the
bounds stand in the description, and anyone who asks compares again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase
from fractions import Fraction

import numpy as np

from marin.errors import UsageError
from marin.plugins.collections.making.rows import Rows
from marin.plugins.collections.settings import Sampling

EVERY = 1 << 64
STEP, REASON = "sampling", "rule:sampling"


def bounds(rows: Rows, sources: Sequence[str], of_shard: Sequence[int], sampling: Sampling) -> list[int]:
    """The bound of each source.

    Args:
        sources: their names. of_shard: the source of each shard of ``rows``.

    Raises:
        UsageError: a source that no share names.
    """
    whole = int(Fraction(repr(sampling.fraction)) * EVERY)
    if not sampling.shares:
        return [whole] * len(sources)
    groups = [_group(name, sampling) for name in sources]
    idle = [pattern for number, pattern in enumerate(sampling.shares) if number not in groups]
    if idle:
        raise _wrong("a share that no source has", idle[0], "a pattern that a source's name fits")
    weights = [Fraction(repr(weight)) for weight in sampling.shares.values()]
    number = np.array([groups[source] for source in of_shard], np.int64)
    sizes = Counter[int]()
    for here, (size,) in rows.each("size"):
        (shard,), _ = rows.places(np.array([here.start]))
        sizes[int(number[shard])] += int(size[rows.kept[here]].sum())
    most = min(sizes[group] / weight for group, weight in enumerate(weights)) * Fraction(repr(sampling.fraction))
    wanted = [weight * most for weight in weights]
    found, reached = [0] * len(weights), Counter[int]()
    for numbers, (draws, size) in rows.grouped(rows.kept, "draw", "size"):
        of = number[rows.places(numbers)[0]]
        order = np.argsort(draws, kind="stable")
        for group in range(len(weights)):
            some = order[of[order] == group]
            total = reached[group] + np.cumsum(size[some])
            fits = int(np.searchsorted(total, int(wanted[group]), side="right"))
            if fits:
                found[group] = int(draws[some[fits - 1]]) + 1
            reached[group] = int(total[-1]) if len(total) else reached[group]
    return [found[group] for group in groups]


def remove_beyond(rows: Rows, bound: Sequence[int], of_shard: Sequence[int]) -> int:
    """Take out of ``rows`` what stands beyond the bound of its source; how many."""
    before = int(rows.kept.sum())
    for here, (draws,) in rows.each("draw"):
        (shard,), _ = rows.places(np.array([here.start]))
        if (most := bound[of_shard[int(shard)]]) < EVERY:
            rows.kept[here] &= draws < np.uint64(most)
    return before - int(rows.kept.sum())


def _group(name: str, sampling: Sampling) -> int:
    for number, pattern in enumerate(sampling.shares):
        if fnmatchcase(name, pattern):
            return number
    raise _wrong("a source that no share names", name, "a pattern for every source")


def _wrong(what: str, found: str, expected: str) -> UsageError:
    return UsageError(
        what,
        where="sampling.shares",
        expected=expected,
        found=found,
        cure="correct the patterns; all other sources are '*'",
    )
