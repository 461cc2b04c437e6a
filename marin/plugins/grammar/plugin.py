"""What this plugin adds: texts and minimal pairs, for ``dataset=grammar`` (:class:`marin.pipeline.corpus.Reader`)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from marin.data.documents import TRAIN, VALIDATION, Document, SplitCount
from marin.data.lines.writing import SplitWriter
from marin.execution.step import Task
from marin.pipeline.corpus import Corpus
from marin.plugins.grammar import documents, minimal_pairs
from marin.process.progress import bar
from marin.recipe.schema import GrammarDataset

_REPORT_EVERY = 100


def sources(dataset: GrammarDataset) -> dict[str, str]:
    """Nothing but the seed."""
    return {}


def pairs(dataset: GrammarDataset, task: Task) -> Iterable[dict[str, str]]:
    """See there."""
    return (pair.as_json() for pair in minimal_pairs(dataset.seed, dataset.minimal_pairs))


def corpus(dataset: GrammarDataset, task: Task, out: Path) -> Corpus:
    """See there."""
    return Corpus(
        _generate(dataset, "train", dataset.train_bytes, out / TRAIN),
        _generate(dataset, "validation", dataset.validation_bytes, out / VALIDATION),
        {},
    )


def _generate(dataset: GrammarDataset, split: str, size: int, path: Path) -> SplitCount:
    with path.open("wb") as file, bar(f"generate {split}", size) as report:
        writer = SplitWriter(file)
        for index, text in enumerate(documents(dataset.seed, split, size)):
            writer.write(Document(text, dataset.name, {"number": index, "split": split}))
            if index % _REPORT_EVERY == 0:
                report(writer.count().text_bytes, "")
        return writer.count()
