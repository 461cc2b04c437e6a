"""Which train steps read which documents: from a recipe, its tokens and the order of its data, without a replay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from marin.recipe.schema import Recipe
from marin.training.data import DataOrder, streams, token_dataset
from marin.training.tokens.cache import read_tokens
from marin.training.tokens.masks import Mask, open_mask

if TYPE_CHECKING:
    from numpy.typing import NDArray

AT_ONCE = 1 << 16
"""Sequences that are ordered at a time."""


@dataclass(frozen=True)
class Use:
    """One document of a part: where its tokens are in that part's stream, and the train steps that read some of them, in
    order."""

    part: str
    number: int
    start: int
    end: int
    steps: tuple[int, ...]


@dataclass(frozen=True)
class Uses:
    """``documents``: as they were asked for. ``emptied``: the first train step that would have nothing to learn from
    without them, and without what is blank already; None where there is none."""

    documents: tuple[Use, ...]
    emptied: int | None

    @property
    def steps(self) -> list[int]:
        """The train steps that read any of them, in order."""
        return sorted({step for one in self.documents for step in one.steps})


def uses(recipe: Recipe, cache: Path, documents: Sequence[tuple[str, int]]) -> Uses:
    """Look for documents (part, "" for a single data set, and number in its train split) in every train step of
    ``recipe``'s phase. ``cache``: its tokens' train split."""
    width = recipe.model.seq_len
    paths = streams(recipe, cache)
    lengths = {name: token_dataset(path, width)[1] for name, path in paths.items()}
    order = DataOrder(recipe, lengths)
    places: list[tuple[str, int, int]] = []
    left: list[NDArray[np.float32]] = []
    spans: dict[tuple[str, int], tuple[int, int]] = {}
    for name, path in paths.items():
        tokens, offsets = read_tokens(path)
        blank = tokens < 0
        for part, number in documents:
            if part in ("", name):
                start, end = int(offsets[number]), int(offsets[number + 1])
                blank[start:end] = True
                spans[part, number] = start, end
                places.append((name, start, end))
        left.append(_learned(blank, open_mask(path), lengths[name], width))
    reading: dict[int, list[int]] = {}
    emptied = None
    whole = np.concatenate(left)
    touched = np.zeros(len(whole), dtype=bool)
    for name, start, end in places:
        at = order.starts[name]
        touched[at + start // width : min(at + -(-end // width), at + lengths[name])] = True
    for step, sequences in _steps(recipe, order):
        if emptied is None and not whole[sequences].any():
            emptied = step
        for sequence in sequences[touched[sequences]].tolist():
            reading.setdefault(sequence, []).append(step)
    found = []
    for part, number in documents:
        start, end = spans[part, number]
        name = part or next(iter(paths))
        at = order.starts[name]
        span = range(at + start // width, min(at + -(-end // width), at + lengths[name]))
        steps = {step for sequence in span for step in reading.get(sequence, ())}
        found.append(Use(part, number, start, end, tuple(sorted(steps))))
    return Uses(tuple(found), emptied)


def _learned(blank: NDArray[np.bool_], mask: Mask | None, sequences: int, width: int) -> NDArray[np.float32]:
    """How many tokens of each sequence are learned: neither blank, nor after a blank, nor kept from being learned."""
    used = sequences * width
    weights = np.zeros(used, dtype=np.float32)
    weights[:-1] = ~(blank[: used - 1] | blank[1:used])
    if mask is not None:
        weights[:-1] *= mask[1:used]
    rows = weights.reshape(sequences, width)
    rows[:, -1] = 0.0  # what follows the last token of a sequence is not in it
    return rows.sum(axis=1)


def _steps(recipe: Recipe, order: DataOrder) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Each train step of the phase, with the sequences that it reads."""
    size = recipe.trainer.batch_size
    at_once = max(1, AT_ONCE // size)
    for first in range(0, recipe.trainer.num_steps, at_once):
        count = min(at_once, recipe.trainer.num_steps - first)
        rows = order(range(first * size, (first + count) * size)).reshape(count, size)
        for number, row in enumerate(rows):
            yield recipe.first_step + first + number, row


def as_documents(found: Mapping[str, Mapping[str, int]]) -> list[tuple[str, str, int]]:
    """Id, part and number of documents that :func:`marin.data.exclusion.numbers` found, in order of id."""
    return sorted((name, part, number) for part, of_part in found.items() for name, number in of_part.items())
