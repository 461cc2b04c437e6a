"""The task ``train``: the model of a quality classifier, from texts that are shown to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from heapq import heappush, heappushpop
from pathlib import Path

import numpy as np

from marin.errors import DataError
from marin.plugins.collections.comparing.linear import Features, features, train
from marin.plugins.collections.document import Document
from marin.plugins.collections.sources.finding import LocatedSource
from marin.plugins.collections.steps.quality import Quality
from marin.plugins.collections.tasks.columns import ArrowRows
from marin.plugins.collections.tasks.judging import judge
from marin.plugins.collections.tasks.reading import documents, text_steps
from marin.plugins.collections.tasks.task import MODEL, READ_FILE, Counted, Setup, Task

HELD_OUT = 10
"""Every which example, by content, is counted and not trained on."""
type Text = tuple[bytes, str]
"""A digest and the text."""


def train_model(setup: Setup, task: Task, out: Path) -> Counted:
    """Train what the examples of this number are for.

    Raises:
        DataError: a side has too few examples to train a classifier on.
    """
    examples = setup.examples[task.source]
    settings = examples.settings
    good = _least(_shown(setup, examples.good, settings), settings.examples)
    bad = _least(_shown(setup, examples.bad, settings) if examples.bad else _own(setup, settings), settings.examples)
    for side, found in (("good", good), ("bad", bad)):
        if len(found) < HELD_OUT:
            raise DataError(
                "too few examples for a quality classifier",
                where=f"steps.{examples.place}.{side}",
                expected=f"at least {HELD_OUT} different texts",
                found=str(len(found)),
                cure="show it more",
            )
    texts = [*good, *bad]
    is_good = np.arange(len(texts)) < len(good)
    held = np.array([digest[0] % HELD_OUT == 0 for digest, _ in texts])
    all_features = features([text for _, text in texts], settings.order, settings.bits)
    shown = np.flatnonzero(~held)
    model = train(
        _some(all_features, shown),
        is_good[shown],
        [texts[number][0] for number in shown.tolist()],
        bits=settings.bits,
        epochs=settings.epochs,
    )
    np.save(out / MODEL, model.weights)
    sums, _ = model.sums(all_features)
    right = (sums >= 0) == is_good
    return Counted(
        {"good": len(good), "bad": len(bad), "held_out": int(held.sum()), "held_out_right": int((held & right).sum())}
    )


def _least(texts: Iterable[Text], count: int) -> list[Text]:
    """Of different texts the ``count`` whose digests come first, in their order."""
    heap: list[tuple[int, str]] = []  # the greatest digest on top
    known: set[int] = set()
    for digest, text in texts:
        key = -int.from_bytes(digest, "big")
        if key in known:
            continue
        if len(heap) < count:
            heappush(heap, (key, text))
        elif key > heap[0][0]:
            known.discard(heappushpop(heap, (key, text))[0])
        else:
            continue
        known.add(key)
    return [((-key).to_bytes(32, "big"), text) for key, text in sorted(heap, reverse=True)]


def _shown(setup: Setup, files: Sequence[LocatedSource], settings: Quality) -> Iterator[Text]:
    """The texts of files, made as those of the collection are."""
    steps = text_steps(setup)
    for found in files:
        for part in found.slices:
            for item in documents(setup, found, part):
                if isinstance(item, Document) and (left := judge(item, steps)[0]) is not None:
                    yield _cut(left.text, settings)


def _own(setup: Setup, settings: Quality) -> Iterator[Text]:
    """The texts that the collection itself has read."""
    for folder in sorted((Path(setup.folder) / "read").iterdir()):
        if folder.name.isdigit():
            for batch in ArrowRows(folder / READ_FILE).batches():
                for text, reason in zip(
                    batch.column("text").to_pylist(), batch.column("reason").to_pylist(), strict=True
                ):
                    if not reason:
                        yield _cut(text, settings)


def _cut(text: str, settings: Quality) -> Text:
    cut = text[: settings.most_characters]
    return sha256(b"marin.example:" + cut.encode()).digest(), cut


def _some(whole: Features, numbers: np.ndarray) -> Features:
    pieces = [whole.of(number) for number in numbers.tolist()]
    return Features(np.concatenate(pieces), np.cumsum([0, *map(len, pieces)]))
