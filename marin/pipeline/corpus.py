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
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from marin.data.collected import collected
from marin.data.documents import PARTS, TRAIN, VALIDATION, Document, SplitCount, SplitWriter, read_documents
from marin.errors import DataError, UsageError
from marin.execution.step import StepDefinition, StepResult, Task
from marin.process.progress import bar
from marin.provenance.plugins import named
from marin.recipe import schema as recipes
from marin.recipe.schema import (
    Artifact,
    ArtifactDataset,
    DocumentsDataset,
    FilesDataset,
    GrammarDataset,
    MixtureDataset,
    Recipe,
    SingleDataset,
    UrlDataset,
    WebDataset,
    chats,
)

log = logging.getLogger(__name__)
PAIRS, DESCRIPTION = "minimal_pairs.jsonl", "dataset.json"
_REPORT_EVERY = 100


GRAMMAR, FILES, URL, EARLIER = (("marin.corpora", name) for name in ("grammar", "files", "url", "earlier-chats"))
"""Group and name of what makes texts of nothing but a seed, of what reads files, of what fetches one, and of conversations by
older rules."""
Line = dict[str, str | int]
"""A line that is left out: of which file, its number, what was expected and found."""


class Pair(Protocol):
    """Two sentences of which one is right."""

    def as_json(self) -> dict[str, str]:
        """As a line of the output has it."""


class Generated(Protocol):
    """What such a plugin gives."""

    def documents(self, seed: int, split: str, size: int) -> Iterator[str]:
        """Texts of ``split`` until ``size`` bytes are reached."""

    def minimal_pairs(self, seed: int, count: int) -> Iterable[Pair]:
        """So many pairs."""


class Read(Protocol):
    """What the plugin gives that reads files."""

    def sources(self, dataset: UrlDataset | FilesDataset) -> dict[str, str]:
        """The digests of what a corpus of this data set is made from."""

    def pairs(self, dataset: UrlDataset | FilesDataset) -> Iterable[dict[str, str]]:
        """Its minimal pairs."""

    def pairs_of(self, path: Path) -> Iterable[dict[str, str]]:
        """The minimal pairs in one file."""

    def corpus(self, dataset: UrlDataset | FilesDataset, task: Task, out: Path) -> Corpus:
        """Write both splits into ``out``."""


def source_digests(recipe: Recipe) -> dict[str, str]:
    """Digests of the raw bytes that the corpus is made from: pinned for a URL, read for files. A file has its name
    below the folder that its glob starts from, never a path of this machine.

    The recipe names local files only; what is in them is part of the step's identity through this.

    Raises:
        DataError: a file is missing or cannot be read.
    """
    dataset = recipe.dataset
    if isinstance(dataset, MixtureDataset):
        return {
            f"{name}:{key}": digest
            for name, part in sorted(dataset.parts.items())
            for key, digest in _sources(part).items()
        }
    return _sources(dataset)


def _sources(dataset: SingleDataset) -> dict[str, str]:
    if isinstance(dataset, GrammarDataset):
        return {}
    if isinstance(dataset, ArtifactDataset):
        return {dataset.artifact.address: dataset.artifact.digest or ""}
    if isinstance(dataset, DocumentsDataset | WebDataset):
        return {"collection": _collection(dataset)}
    return _file_reader().sources(dataset)


def config(recipe: Recipe) -> object:
    """The part of the recipe that decides the documents, with the digests of the raw bytes; of conversations also the tokenizer
    that is taken over, whose special tokens a template names."""
    own: dict[str, object] = {"dataset": recipes.plain(recipe.dataset), "sources": source_digests(recipe)}
    kept = recipe.kept_tokenizer if chats(recipe.dataset) else None
    return own if kept is None else own | {"tokenizer": kept}


@dataclass(frozen=True)
class Corpus:
    """What a data set gave: documents of both splits, and the digests of what they were made from."""

    train: SplitCount
    validation: SplitCount
    sources: dict[str, str]
    skipped: int = 0
    """Lines that are no conversation."""
    first_skipped: list[Line] = field(default_factory=list)
    marked: int = 0
    """Conversations whose messages hold special tokens."""
    preferences: list[dict[str, str]] = field(default_factory=list)
    """Those that are held out, as minimal pairs."""


def run(task: Task) -> StepResult:
    """Write the corpus. Raises ``DataError`` for data that is missing, corrupt, empty or not what was declared."""
    dataset = task.recipe.dataset
    if isinstance(dataset, MixtureDataset):
        made = _from_parts(dataset, task)
        count = _write_pairs(
            chain.from_iterable(_pairs(part, task) for _, part in sorted(dataset.parts.items())), task.out / PAIRS
        )
    else:
        made = _from_one(dataset, task, task.out)
        count = _write_pairs(chain(_pairs(dataset, task), made.preferences), task.out / PAIRS)
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
    (task.out / DESCRIPTION).write_text(json.dumps(description, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return StepResult(
        kind="corpus",
        metrics={
            "minimal_pairs": float(count),
            **({"skipped_lines": float(made.skipped)} if made.skipped else {}),
            **({"special_tokens_in_messages": float(made.marked)} if made.marked else {}),
            "train_bytes": float(made.train.text_bytes),
            "train_documents": float(made.train.documents),
            "validation_bytes": float(made.validation.text_bytes),
            "validation_documents": float(made.validation.documents),
        },
    )


def _pairs(dataset: SingleDataset, task: Task) -> Iterable[dict[str, str]]:
    if isinstance(dataset, GrammarDataset):
        return (pair.as_json() for pair in _grammar().minimal_pairs(dataset.seed, dataset.minimal_pairs))
    if isinstance(dataset, ArtifactDataset):
        return _pairs_of(dataset.artifact, task)
    if isinstance(dataset, DocumentsDataset | WebDataset):
        return ()
    return _file_reader().pairs(dataset)


def _from_one(dataset: SingleDataset, task: Task, out: Path) -> Corpus:
    if isinstance(dataset, GrammarDataset):
        return _from_grammar(dataset, out)
    if isinstance(dataset, ArtifactDataset):
        return _from_artifact(dataset, task, out)
    if isinstance(dataset, DocumentsDataset | WebDataset):
        return _from_collection(_collection(dataset), task, out)
    return _file_reader().corpus(dataset, task, out)


def _from_parts(dataset: MixtureDataset, task: Task) -> Corpus:
    """Each part as it would be alone; their held-out texts together."""
    total = {TRAIN: SplitCount(0, 0), VALIDATION: SplitCount(0, 0)}
    sources: dict[str, str] = {}
    skipped, marked = 0, 0
    first_skipped: list[Line] = []
    (task.out / PARTS).mkdir()
    with (task.out / VALIDATION).open("wb") as held_out:
        for name, part in sorted(dataset.parts.items()):
            with TemporaryDirectory(dir=task.work, prefix="part-") as folder:
                made = _from_one(part, task, Path(folder))
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
    return Corpus(total[TRAIN], total[VALIDATION], sources, skipped, first_skipped, marked)


def plugins(recipe: Recipe) -> tuple[tuple[str, str], ...]:
    """What some data sets alone are made by."""
    dataset = recipe.dataset
    parts = dataset.parts.values() if isinstance(dataset, MixtureDataset) else (dataset,)
    kinds = ((GRAMMAR, GrammarDataset), (FILES, FilesDataset | UrlDataset | ArtifactDataset), (URL, UrlDataset))
    found = [point for point, kind in kinds if any(isinstance(part, kind) for part in parts)]
    if any(isinstance(part, FilesDataset) and part.chat and part.chat_reference is None for part in parts):
        found.append(EARLIER)
    return tuple(found)


def _grammar() -> Generated:
    found: Generated = named(*GRAMMAR, "dataset=grammar")
    return found


def _file_reader() -> Read:
    found: Read = named(*FILES, "a data set of files")
    return found


def _from_grammar(dataset: GrammarDataset, out: Path) -> Corpus:
    return Corpus(
        _generate(dataset, "train", dataset.train_bytes, out / TRAIN),
        _generate(dataset, "validation", dataset.validation_bytes, out / VALIDATION),
        {},
    )


def _generate(dataset: GrammarDataset, split: str, size: int, path: Path) -> SplitCount:
    with path.open("wb") as file, bar(f"generate {split}", size) as report:
        writer = SplitWriter(file)
        for index, text in enumerate(_grammar().documents(dataset.seed, split, size)):
            writer.write(Document(text, dataset.name, {"number": index, "split": split}))
            if index % _REPORT_EVERY == 0:
                report(writer.count().text_bytes, "")
        return writer.count()


def _from_artifact(dataset: ArtifactDataset, task: Task, out: Path) -> Corpus:
    """Each document is read and written anew, so that this corpus is one, no matter who made that artifact."""
    counts = []
    with TemporaryDirectory(dir=task.work, prefix="artifact-") as folder:
        made = _taken(dataset.artifact, task, Path(folder) / "corpus")
        for split in (TRAIN, VALIDATION):
            with (out / split).open("wb") as file:
                writer = SplitWriter(file)
                for document in read_documents(_file_of(dataset.artifact, made, split)):
                    writer.write(document)
                counts.append(writer.count())
    if not counts[0].documents:
        raise DataError(
            "corpus is empty", where=dataset.artifact.address, expected=f"documents in {TRAIN}", found="none"
        )
    return Corpus(counts[0], counts[1], _sources(dataset))


def _collection(dataset: DocumentsDataset | WebDataset) -> str:
    """The digest of a collection that is in the store."""
    if isinstance(dataset, WebDataset) or dataset.artifact is None:
        raise UsageError(
            "a collection that is not made yet",
            where="dataset.artifact",
            expected="the digest that `marin data build` printed",
            found="null",
            cure="make it with `marin data build`, or train by `marin train` or `marin stage`, which make it first",
        )
    return dataset.artifact


def _from_collection(artifact: str, task: Task, out: Path) -> Corpus:
    """The documents of a collection in its order, each in the split that it says."""
    with (out / TRAIN).open("wb") as train, (out / VALIDATION).open("wb") as validation:
        writers = {"train": SplitWriter(train), "validation": SplitWriter(validation)}
        for row in collected(task.store, artifact):
            writers[row.split].write(Document(row.text, row.source, {"id": row.id}))
        counts = {split: writer.count() for split, writer in writers.items()}
    for split, count in counts.items():
        if not count.documents:
            raise DataError(
                "corpus cannot be divided",
                where=artifact,
                expected="at least two different documents, so that one can be held out",
                found=f"none in {split}",
                cure="build a collection of more documents",
            )
    return Corpus(counts["train"], counts["validation"], {"collection": artifact})


def _pairs_of(artifact: Artifact, task: Task) -> Iterable[dict[str, str]]:
    with TemporaryDirectory(dir=task.work, prefix="artifact-") as folder:
        path = _taken(artifact, task, Path(folder) / "corpus") / PAIRS
        return list(_file_reader().pairs_of(path)) if path.is_file() else []


def _taken(artifact: Artifact, task: Task, folder: Path) -> Path:
    if artifact.digest is None:
        raise UsageError(
            "a corpus that is not made yet",
            where=f"dataset.artifact: {artifact.address}",
            expected="its digest",
            found="null",
            cure="run the experiment file that makes it: marin run FILE",
        )
    task.store.checkout(artifact.digest, folder)
    return folder


def _file_of(artifact: Artifact, folder: Path, name: str) -> Path:
    if not (folder / name).is_file():
        raise DataError(
            "an artifact is no corpus",
            where=artifact.address,
            expected=f"a folder with {TRAIN} and {VALIDATION}",
            found=f"no {name}",
            cure="write both into context.out, one document a line: id, text, source, metadata",
        )
    return folder / name


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
