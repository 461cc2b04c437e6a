"""The name that a user meant who wrote another: a misspelling, or what people shorten it to."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

SHORTEST = 2
"""Letters of what may shorten a name: one alone says nothing."""
_WORDS = re.compile(r"[a-z]+|[0-9]+")


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The one of ``known`` that is spelled most like ``name``, or else the one that it shortens (``lr`` of ``learning_rate``,
    ``b1`` of ``beta1``), the one with the fewest words left over; None where there is none, or two are as near."""
    names = list(known)
    if near := difflib.get_close_matches(name, names, n=1, cutoff=cutoff):
        return near[0]
    letters = "".join(_WORDS.findall(name.lower()))
    if len(letters) < SHORTEST:
        return None
    left = [(rest, one) for one in names if (rest := _left(letters, _WORDS.findall(one))) is not None]
    fewest = min((rest for rest, _ in left), default=None)
    meant = [one for rest, one in left if rest == fewest]
    return meant[0] if len(meant) == 1 else None


def _left(letters: str, words: Sequence[str]) -> int | None:
    """How many of ``words`` are left when ``letters`` are the beginnings of those before them, one after the other; None where
    they are not."""
    if not letters:
        return len(words)
    if not words:
        return None
    first, *rest = words
    ends = (size for size in range(1, len(letters) + 1) if first.startswith(letters[:size]))
    return min((found for size in ends if (found := _left(letters[size:], rest)) is not None), default=None)
