"""Generated documents: words of a Zipf distribution, a tenth of them exact copies, a tenth near copies of which it is known how
near. The same documents for the same numbers, on every machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

PART = 25_000
"""Documents of a file."""
POOL = 10_000
"""Documents of the first file of which there are copies."""
RATES = (0.002, 0.005, 0.01, 0.02, 0.05, 0.2)
"""Shares of words that a near copy has changed."""


@dataclass(frozen=True)
class Generated:
    """A text, what it is (``own``, ``copy`` or ``edited``), and of which document of the pool."""

    text: str
    label: str
    of: int = -1


class Words:
    """The lexicon and its draws."""

    def __init__(self, size: int = 50_000) -> None:
        draw = np.random.default_rng(0)
        letters = np.array(list("etaoinshrdlucmfw"))
        self.words = np.array(["".join(draw.choice(letters, draw.integers(2, 10))) for _ in range(size)], dtype=object)
        weights = 1 / (np.arange(size) + 10)
        self._until = np.cumsum(weights / weights.sum())

    def draw(self, draw: np.random.Generator, count: int) -> NDArray[np.int64]:
        """Numbers of words."""
        return np.minimum(np.searchsorted(self._until, draw.random(count)), len(self.words) - 1)

    def text(self, numbers: NDArray[np.int64]) -> str:
        """Words with spaces between."""
        return " ".join(self.words[numbers])


def documents(count: int, words: int = 200, seed: int = 1) -> Iterator[Generated]:
    """The first ``count`` documents, of half to one and a half times ``words``."""
    lexicon = Words()
    pool: list[NDArray[np.int64]] = []
    for part in range(-(-count // PART)):
        draw = np.random.default_rng([seed, part])
        for number in range(min(PART, count - part * PART)):
            if number % 10 == 8 and pool:
                of = int(draw.integers(len(pool)))
                yield Generated(lexicon.text(pool[of]), "copy", of)
            elif number % 10 == 9 and pool:
                of = int(draw.integers(len(pool)))
                numbers = pool[of].copy()
                changed = draw.random(len(numbers)) < RATES[int(draw.integers(len(RATES)))]
                numbers[changed] = lexicon.draw(draw, int(changed.sum()))
                yield Generated(lexicon.text(numbers), "edited", of)
            else:
                numbers = lexicon.draw(draw, int(draw.integers(words // 2, words * 3 // 2)))
                if part == 0 and len(pool) < POOL:
                    pool.append(numbers)
                yield Generated(lexicon.text(numbers), "own")


def write(folder: Path, count: int, words: int = 200, seed: int = 1) -> int:
    """The documents as JSON lines, :data:`PART` a file; bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    size, made = 0, documents(count, words, seed)
    for part in range(-(-count // PART)):
        path = folder / f"part-{part:05d}.jsonl"
        lines = min(PART, count - part * PART)
        with path.open("w", encoding="ascii") as file:
            for _ in range(lines):
                file.write(json.dumps({"text": next(made).text}) + "\n")
        size += path.stat().st_size
    return size
