"""The numbers of BabyLM's tasks, each rounded once: sums and correlations are of whole numbers, so no processor decides a bit.

Definitions are those of the pipeline: accuracy is the mean over subtasks; WUGs are Spearman's rho with people; reading times
are the share of what is left unexplained that surprisal explains, ``(R2 - R2 without) / (1 - R2 without)``, of ordinary
least squares.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

SIXTY_DIGITS = Context(prec=60)
EYES = ("RTfirstfix", "RTfirstpass", "RTgopast", "RTrightbound")
PACED = "self_paced_reading_time"
WORD = ("Subtlex_log10", "length", "context_length")
BEFORE = (*WORD, "prev_length", "prev_pred")
"""What explains a reading time besides the surprisal of the word, each alone and each product of two."""


def accuracy(right: Mapping[str, Sequence[bool]]) -> dict[str, float]:
    """The mean over subtasks of the share that is right, and its standard error."""
    if not right:
        return {}
    shares = [(Fraction(sum(found), len(found)), len(found)) for found in right.values()]
    found = {"acc,none": float(sum(share for share, _ in shares) / len(shares))}
    if all(count > 1 for _, count in shares):
        error = sum(share * (1 - share) / (count - 1) for share, count in shares) / len(shares) ** 2
        found["acc_stderr,none"] = _root(Fraction(error))
    return found


def spearman(pairs: Sequence[tuple[float, float]]) -> float:
    """Spearman's rho: the correlation of ranks, equal values having the mean of theirs; nan where one side is constant."""
    one, other = (_ranks([pair[side] for pair in pairs]) for side in (0, 1))
    count, both = len(pairs), sum(a * b for a, b in zip(one, other, strict=True))
    covariance = count * both - sum(one) * sum(other)
    squares = [count * sum(a * a for a in side) - sum(side) ** 2 for side in (one, other)]
    if not all(squares):
        return math.nan
    return math.copysign(_root(Fraction(covariance**2, squares[0] * squares[1])), covariance)


def _ranks(values: Sequence[float]) -> list[int]:
    """Twice the rank of each value."""
    first: dict[float, int] = {}
    count: dict[float, int] = {}
    for place, value in enumerate(sorted(values)):
        first.setdefault(value, place)
        count[value] = count.get(value, 0) + 1
    return [2 * first[value] + count[value] + 1 for value in values]


def _root(value: Fraction) -> float:
    return float(SIXTY_DIGITS.sqrt(SIXTY_DIGITS.divide(Decimal(value.numerator), Decimal(value.denominator))))


def reading(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """``rows``: the table's columns as they are written, with ``pred`` and ``prev_pred`` (nats, None where there is none).
    ``spr``: self-paced reading; ``rt``: eye tracking, the mean of its four measures."""
    eyes = [_share_explained(rows, name, WORD) for name in EYES]
    return {"spr,none": _share_explained(rows, PACED, BEFORE), "rt,none": math.fsum(eyes) / len(eyes)}


def _share_explained(rows: Sequence[Mapping[str, Any]], target: str, names: Sequence[str]) -> float:
    """The share of what ``names`` and their products leave unexplained of ``target`` that surprisal explains."""
    table = [values for row in rows if (values := _values(row, (target, *names, "pred"))) is not None]
    one, other = (_left(table, surprisal=asked) for asked in (False, True))
    if one is None or other is None or one == 0:
        return math.nan
    return float((one - other) / one)


def _values(row: Mapping[str, Any], names: Sequence[str]) -> tuple[Fraction, ...] | None:
    found = []
    for name in names:
        try:
            value = float(row[name])
        except (KeyError, TypeError, ValueError):
            return None
        if not math.isfinite(value):
            return None
        found.append(Fraction(value))
    return tuple(found)


def _left(table: Sequence[Sequence[Fraction]], *, surprisal: bool) -> Fraction | None:
    """1 - R2, exactly: a quotient of Gram determinants. None where columns depend on each other."""
    lines = []
    for target, *values in table:
        alone = values[:-1]
        products = [a * b for place, a in enumerate(alone) for b in alone[place + 1 :]]
        lines.append([Fraction(1), *alone, *products, *(values[-1:] if surprisal else ()), Fraction(target)])
    if not lines:
        return None
    columns = [_times_a_power_of_two(column) for column in zip(*lines, strict=True)]
    gram = [[sum(a * b for a, b in zip(one, other, strict=True)) for other in columns] for one in columns]
    without = determinant([line[:-1] for line in gram[:-1]])
    total = determinant([[gram[a][b] for b in (0, -1)] for a in (0, -1)])
    if without == 0 or total == 0:
        return None
    return Fraction(determinant(gram) * gram[0][0], without * total)


def _times_a_power_of_two(column: Sequence[Fraction]) -> list[int]:
    """A column times one power of two, which changes no R2."""
    scale = max(value.denominator for value in column)
    return [int(value * scale) for value in column]


def determinant(matrix: Sequence[Sequence[int]]) -> int:
    """Of whole numbers, without a fraction on the way (Bareiss 1968)."""
    rows = [list(row) for row in matrix]
    sign, before = 1, 1
    for place in range(len(rows) - 1):
        if rows[place][place] == 0:
            swap = next((n for n in range(place + 1, len(rows)) if rows[n][place] != 0), None)
            if swap is None:
                return 0
            rows[place], rows[swap], sign = rows[swap], rows[place], -sign
        for line in range(place + 1, len(rows)):
            for at in range(place + 1, len(rows)):
                product = rows[line][at] * rows[place][place] - rows[line][place] * rows[place][at]
                rows[line][at] = product // before
        before = rows[place][place]
    return sign * rows[-1][-1]
