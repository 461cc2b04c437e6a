"""What a word is, for everything that compares texts: lower case, letters, digits and underscores in a row; each character
of Chinese and Japanese is a word. Punctuation and spaces do not count. (Unicode as the interpreter has it.)"""

from __future__ import annotations

import re
from collections.abc import Sequence
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

_ALONE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
WORD = re.compile(rf"[{_ALONE}]|[^\W{_ALONE}]+")
_ODD = 0x9E3779B97F4A7C15
_MIX = 0xFF51AFD7ED558CCD


def words(text: str) -> list[str]:
    """The words of a text, in order."""
    return WORD.findall(text.lower())


def spans(text: str) -> tuple[list[str], list[tuple[int, int]]]:
    """The words, and of each the characters ``[start, end)`` of ``text``."""
    found = [(match.group().lower(), match.span()) for match in WORD.finditer(text)]
    return [word for word, _ in found], [span for _, span in found]


def hashes(listed: Sequence[str]) -> NDArray[np.uint64]:
    """A number for each word: uint64[words]. Equal words have equal numbers; what equal numbers say is compared again."""
    encoded = map(str.encode, listed)
    return np.fromiter(map(crc32, encoded), dtype=np.uint64, count=len(listed))


def grams(numbers: NDArray[np.uint64], length: int) -> NDArray[np.uint64]:
    """A number for each ``length`` words in a row: uint64[max(words - length + 1, 0)], modulo 2**64."""
    count = len(numbers) - length + 1
    if count <= 0:
        return np.zeros(0, np.uint64)
    total = np.zeros(count, np.uint64)
    factor = 1
    for offset in range(length):
        factor = factor * _ODD % 2**64
        total += numbers[offset : offset + count] * np.uint64(factor)
    return _mixed(total)


def rows(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A number for each row of uint64[rows, columns], as :func:`grams` has it for all columns in a row."""
    factors = np.array([pow(_ODD, column + 1, 2**64) for column in range(numbers.shape[1])], np.uint64)
    total: NDArray[np.uint64] = (numbers * factors).sum(axis=1, dtype=np.uint64)
    return _mixed(total)


def _mixed(total: NDArray[np.uint64]) -> NDArray[np.uint64]:
    total ^= total >> np.uint64(33)
    total *= np.uint64(_MIX)
    total ^= total >> np.uint64(29)
    return total
