"""How much of the spread of a number goes with each key: epsilon squared of a one-way analysis of variance (Kelley 1935).

One key at a time: of the sum of squares around the mean, the part that lies between the values of the key, less what chance
alone would put there. 1 is all, 0 none. A key with more than :data:`MOST` values is cut into as many groups of equal size by
rank, so that a random search has something to say too. Keys that vary together share what they explain: the number ranks where
to look next, and proves no cause. Sums are exact, and numbers that differ by rounding alone do not vary, as in
:mod:`marin.plugins.lab.statistics`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from marin.plugins.lab.statistics import around_mean, varies

METHOD = "epsilon squared, one key at a time"
MOST = 4


@dataclass(frozen=True)
class Importance:
    """``share`` is None where each value has one run alone, so that nothing can be said; ``values``: how many there are;
    ``with_others``: keys that part the runs in the same way."""

    key: str
    share: float | None
    values: int
    with_others: tuple[str, ...] = ()


def importances(
    keys: Sequence[str], values: Mapping[str, Mapping[str, str]], numbers: Mapping[str, float]
) -> list[Importance]:
    """Of each key over the runs that have a finite number, the greatest first; keys that part runs alike are one."""
    runs = [run for run, number in numbers.items() if math.isfinite(number)]
    alike: dict[tuple[int, ...], list[str]] = {}
    for key in keys:
        alike.setdefault(_partition([values[run][key] for run in runs]), []).append(key)
    found = [
        Importance(
            key,
            share(
                [_group(values[run][key], [values[one][key] for one in runs]) for run in runs],
                [numbers[r] for r in runs],
            ),
            len({values[run][key] for run in runs}),
            tuple(others),
        )
        for partition, (key, *others) in alike.items()
        if len(set(partition)) > 1
    ]
    return sorted(found, key=lambda one: (one.share is None, -(one.share or 0.0)))


def share(groups: Sequence[str], numbers: Sequence[float]) -> float | None:
    """Epsilon squared of these numbers, one each, parted into these groups; None where no group has two of them."""
    count, kinds = len(numbers), sorted(set(groups))
    if count <= len(kinds) or len(kinds) < 2:
        return None
    exact = list(map(Fraction, numbers))
    if not varies(exact):
        return 0.0
    parted = [[one for one, group in zip(exact, groups, strict=True) if group == kind] for kind in kinds]
    within = sum((around_mean(inside) for inside in parted if varies(inside)), Fraction())
    total, error = around_mean(exact), within / (count - len(kinds))
    return max(0.0, float((total - within - (len(kinds) - 1) * error) / total))


def _partition(values: Sequence[str]) -> tuple[int, ...]:
    seen: dict[str, int] = {}
    return tuple(seen.setdefault(value, len(seen)) for value in values)


def _group(value: str, values: Sequence[str]) -> str:
    distinct = sorted(set(values), key=_as_number)
    if len(distinct) <= MOST or any(math.isinf(_as_number(one)) for one in distinct):
        return value
    ranked = sorted(values, key=_as_number)
    return str(ranked.index(value) * MOST // len(ranked))


def _as_number(value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        return math.inf
    return number if math.isfinite(number) else math.inf
