"""Step ``corpus``: documents as JSON lines in the Dolma shape, in two splits, from the recipe's dataset.

Fills ``train.jsonl``, ``validation.jsonl``, ``minimal_pairs.jsonl`` (perhaps empty) and ``dataset.json``, which tells
counts and the digests of the raw bytes. The parts of a mixture have a train split
each, ``train/<part>.jsonl``. All of it depends on the recipe and the raw bytes alone: the output is named by the digest
of its files.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from marin.data.documents import PARTS, TRAIN, VALIDATION, SplitCount
from marin.execution.step import StepDefinition, StepResult, Task
from marin.provenance.plugins import load_plugin
from marin.recipe import schema
from marin.recipe import schema as recipes

log = logging.getLogger(__name__)
PAIRS, DESCRIPTION = "minimal_pairs.jsonl", "dataset.json"


GRAMMAR, FILES, DOCUMENTS, URL, EARLIER, MIXTURE = (
    ("marin.corpora", name) for name in ("grammar", "files", "documents", "url", "earlier-chats", "mixture")
)
"""Group and name of what makes texts of nothing but a seed, of what reads files, of what reads a collection, of what fetches a
file, of conversations by older rules, and of what one part of a mixture holds out."""
_READERS = (
    (GRAMMAR, schema.GrammarDataset),
    (FILES, schema.FilesDataset | schema.UrlDataset | schema.ArtifactDataset),
    (DOCUMENTS, schema.DocumentsDataset | schema.WebDataset),
)
"""What reads which data sets."""
Line = dict[str, str | int]
"""A line that is left out: of which file, its number, what was expected and found."""


class Reader(Protocol):
    """What such a plugin gives that makes the corpus of a data set."""

    def sources(self, dataset: Any) -> dict[str, str]:
        """The digests of what the corpus is made from.

        Raises:
            DataError: a file is missing or cannot be read.
        """

    def pairs(self, dataset: Any, task: Task) -> Iterable[dict[str, str]]:
        """Its minimal pairs."""

    def corpus(self, dataset: Any, task: Task, out: Path) -> Corpus:
        """Write both splits into ``out``."""


def reader_of(dataset: schema.SingleDataset) -> Reader:
    """What makes the corpus of this data set.

    Raises:
        NotInstalled: it is not there.
    """
    point = next(point for point, kind in _READERS if isinstance(dataset, kind))
    found: Reader = load_plugin(*point, f"dataset.kind={dataset.__struct_config__.tag}")
    return found


def source_digests(recipe: schema.Recipe) -> dict[str, str]:
    """Digests of the raw bytes that the corpus is made from: pinned for a URL, read for files. A file has its name
    below the folder that its glob starts from, never a path of this machine.

    The recipe names local files only; what is in them is part of the step's identity through this.

    Raises:
        DataError: a file is missing or cannot be read.
    """
    dataset = recipe.dataset
    if isinstance(dataset, schema.MixtureDataset):
        return {
            f"{name}:{key}": digest
            for name, part in sorted(dataset.parts.items())
            for key, digest in reader_of(part).sources(part).items()
        }
    return reader_of(dataset).sources(dataset)


def config(recipe: schema.Recipe) -> object:
    """The part of the recipe that decides the documents, with the digests of the raw bytes; of conversations also the tokenizer
    that is taken over, whose special tokens a template names."""
    own: dict[str, object] = {"dataset": recipes.plain(recipe.dataset), "sources": source_digests(recipe)}
    kept = recipe.kept_tokenizer if schema.chats(recipe.dataset) else None
    return own if kept is None else own | {"tokenizer": kept}


@dataclass(frozen=True)
class Corpus:
    """What a data set gave: documents of both splits, and the digests of what they were made from."""

    train: SplitCount
    validation: SplitCount
    sources: dict[str, str]
    skipped: int = 0
    """Lines that are not conversations."""
    first_skipped: list[Line] = field(default_factory=list)
    marked: int = 0
    """Conversations whose messages hold special tokens."""
    preferences: list[dict[str, str]] = field(default_factory=list)
    """Those that are held out, as minimal pairs."""
    elsewhere: int = 0
    """Documents of a mixture that are not trained on because another part holds them out."""


def run(task: Task) -> StepResult:
    """Write the corpus. Raises ``DataError`` for data that is missing, corrupt, empty or not what was declared."""
    dataset = task.recipe.dataset
    if isinstance(dataset, schema.MixtureDataset):
        made = _from_parts(dataset, task)
        count = _write_pairs(
            chain.from_iterable(reader_of(part).pairs(part, task) for _, part in sorted(dataset.parts.items())),
            task.out / PAIRS,
        )
    else:
        reader = reader_of(dataset)
        made = reader.corpus(dataset, task, task.out)
        count = _write_pairs(chain(reader.pairs(dataset, task), made.preferences), task.out / PAIRS)
    description: dict[str, object] = {
        "documents": {"train": made.train.documents, "validation": made.validation.documents},
        "kind": dataset.__struct_config__.tag,
        "minimal_pairs": count,
        "name": dataset.name,
        "sources": made.sources,
        "text_bytes": {"train": made.train.text_bytes, "validation": made.validation.text_bytes},
    }
    if made.skipped:
        description["skipped"] = {"lines": made.skipped, "first": made.first_skipped}
        log.warning(
            "%d lines are no conversations and are left out; the first: %s", made.skipped, made.first_skipped[0]
        )
    if made.marked:
        description["special_tokens_in_messages"] = made.marked
        log.warning(
            "%d conversations hold special tokens of the tokenizer in their messages, which become these", made.marked
        )
    if made.elsewhere:
        description["held_out_elsewhere"] = made.elsewhere
        log.warning("%d documents are left out of one part because another holds them out", made.elsewhere)
    (task.out / DESCRIPTION).write_text(json.dumps(description, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return StepResult(
        kind="corpus",
        metrics={
            "minimal_pairs": float(count),
            **({"skipped_lines": float(made.skipped)} if made.skipped else {}),
            **({"special_tokens_in_messages": float(made.marked)} if made.marked else {}),
            **({"held_out_elsewhere": float(made.elsewhere)} if made.elsewhere else {}),
            "train_bytes": float(made.train.text_bytes),
            "train_documents": float(made.train.documents),
            "validation_bytes": float(made.validation.text_bytes),
            "validation_documents": float(made.validation.documents),
        },
    )


def _from_parts(dataset: schema.MixtureDataset, task: Task) -> Corpus:
    """Each part as it would be alone; their held-out texts together."""
    total = {TRAIN: SplitCount(0, 0), VALIDATION: SplitCount(0, 0)}
    sources: dict[str, str] = {}
    skipped, marked = 0, 0
    first_skipped: list[Line] = []
    (task.out / PARTS).mkdir()
    with (task.out / VALIDATION).open("wb") as held_out:
        for name, part in sorted(dataset.parts.items()):
            with TemporaryDirectory(dir=task.work, prefix="part-") as folder:
                made = reader_of(part).corpus(part, task, Path(folder))
                shutil.move(Path(folder) / TRAIN, task.out / PARTS / f"{name}.jsonl")
                with (Path(folder) / VALIDATION).open("rb") as file:
                    shutil.copyfileobj(file, held_out)
            for split, count in ((TRAIN, made.train), (VALIDATION, made.validation)):
                total[split] = SplitCount(
                    total[split].documents + count.documents, total[split].text_bytes + count.text_bytes
                )
            sources |= {f"{name}:{key}": digest for key, digest in made.sources.items()}
            marked += made.marked
            skipped += made.skipped
            first_skipped += [line | {"file": f"{name}:{line['file']}"} for line in made.first_skipped]
    held_out_of_all = load_plugin(*MIXTURE, "dataset.kind=mixture")
    train, elsewhere = held_out_of_all(
        task.out, sorted(dataset.parts), total[TRAIN], leave_out=dataset.held_out == "all"
    )
    return Corpus(train, total[VALIDATION], sources, skipped, first_skipped, marked, elsewhere=elsewhere)


def plugins(recipe: schema.Recipe) -> tuple[tuple[str, str], ...]:
    """What some data sets alone are made by."""
    dataset = recipe.dataset
    parts = dataset.parts.values() if isinstance(dataset, schema.MixtureDataset) else (dataset,)
    kinds = (*_READERS, (URL, schema.UrlDataset))
    found = [point for point, kind in kinds if any(isinstance(part, kind) for part in parts)]
    if any(isinstance(part, schema.FilesDataset) and part.chat and part.chat_reference is None for part in parts):
        found.append(EARLIER)
    if isinstance(dataset, schema.MixtureDataset):
        found.append(MIXTURE)
    return tuple(found)


def _write_pairs(pairs: Iterable[dict[str, str]], path: Path) -> int:
    count = 0
    with path.open("wb") as file:
        for pair in pairs:
            file.write(json.dumps(pair, sort_keys=True).encode("ascii") + b"\n")
            count += 1
    return count


CORPUS = StepDefinition(
    name="corpus", inputs=(), config=config, starts=("marin/pipeline/corpus.py",), run=run, plugins=plugins
)
