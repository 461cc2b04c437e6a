"""What a word is, for everything that compares texts: lower case, letters, digits and underscores in a row; each character
of Chinese and Japanese is a word. Punctuation and spaces do not count. (Unicode as the interpreter has it.)

Numbers stand for words where candidates are looked for, many texts at a time: a polynomial over the bytes of the word in
UTF-8, modulo 2^64. Equal words have equal numbers; what equal numbers say is compared again by the words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

_ALONE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
WORD = re.compile(rf"[{_ALONE}]|[^\W{_ALONE}]+")
_ODD = 0x9E3779B97F4A7C15
_INVERSE = pow(_ODD, -1, 2**64)
_MIX = 0xFF51AFD7ED558CCD
_BLOCK = 1 << 18
"""Bytes of text that are looked at together, where one text does not have more."""
_IN_WORDS = np.array([byte >= 0x80 or chr(byte).isalnum() or byte == ord("_") for byte in range(256)])
"""Bytes of words: of a text of ASCII as it is, of another its words with spaces between."""


def words(text: str) -> list[str]:
    """The words of a text, in order."""
    return WORD.findall(text.lower())


def spans(text: str) -> tuple[list[str], list[tuple[int, int]]]:
    """The words, and of each the characters ``[start, end)`` of ``text``."""
    found = [(match.group().lower(), match.span()) for match in WORD.finditer(text)]
    return [word for word, _ in found], [span for _, span in found]


def numbered(texts: Sequence[str]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """A number for each word of all texts, uint64[words], and how many words each text has, int64[texts]."""
    numbers: list[NDArray[np.uint64]] = []
    counts: list[NDArray[np.int64]] = []
    block: list[bytes] = []
    size = 0
    for text in texts:
        encoded = text.lower().encode() if text.isascii() else " ".join(words(text)).encode()
        block.append(encoded)
        size += len(encoded)
        if size >= _BLOCK:
            found = _numbered(block)
            numbers.append(found[0])
            counts.append(found[1])
            block, size = [], 0
    if block:
        found = _numbered(block)
        numbers.append(found[0])
        counts.append(found[1])
    if not counts:
        return np.zeros(0, np.uint64), np.zeros(0, np.int64)
    return np.concatenate(numbers), np.concatenate(counts)


def hashes(listed: Sequence[str]) -> NDArray[np.uint64]:
    """A number for each word: uint64[words], the same as :func:`numbered` has for it in a text."""
    return _numbered([" ".join(listed).encode()])[0]


def _numbered(block: Sequence[bytes]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    joined = np.frombuffer(b"\n".join([*block, b""]), np.uint8)
    inside = _IN_WORDS[joined]
    edges = np.flatnonzero(
        np.diff(inside, prepend=False)
    )  # a word begins, a word ends, in turn: the last byte is outside
    starts, ends = edges[0::2], edges[1::2]
    powers, inverses = _powers(max(_BLOCK, 1 << len(joined).bit_length()))
    terms = powers[: len(joined)] * (joined.astype(np.uint64) + np.uint64(1))
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])
    numbers = (sums[ends] - sums[starts]) * inverses[starts]
    texts = np.cumsum([len(one) + 1 for one in block])
    counts = np.diff(np.searchsorted(starts, texts), prepend=0).astype(np.int64)
    return _mixed(numbers), counts


@cache
def _powers(count: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """The powers of an odd number modulo 2^64 from 0 on, and what takes each back."""
    powers = np.full(count, _ODD, np.uint64)
    inverses = np.full(count, _INVERSE, np.uint64)
    powers[0] = inverses[0] = 1
    return np.cumprod(powers, dtype=np.uint64), np.cumprod(inverses, dtype=np.uint64)


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
    """A number for each row of uint64[..., columns], as :func:`grams` has it for all columns in a row."""
    factors = np.array([pow(_ODD, column + 1, 2**64) for column in range(numbers.shape[-1])], np.uint64)
    total: NDArray[np.uint64] = (numbers * factors).sum(axis=-1, dtype=np.uint64)
    return _mixed(total)


def _mixed(total: NDArray[np.uint64]) -> NDArray[np.uint64]:
    total ^= total >> np.uint64(33)
    total *= np.uint64(_MIX)
    total ^= total >> np.uint64(29)
    return total
