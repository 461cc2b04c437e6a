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
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from marin.data.borrowed.chats import check_marks, special_texts, special_tokens
from marin.data.collected import collected
from marin.data.documents import (
    PARTS,
    TRAIN,
    VALIDATION,
    Document,
    SplitCount,
    SplitWriter,
    read_documents,
    write_divided,
)
from marin.data.local import Marked, Skipped, SourceFile, Written, matched, mirrored_glob, read_file, read_pairs
from marin.data.preferences import hold_out
from marin.data.template import SPECIAL, ChatTemplate, conversation, template_of
from marin.data.text import lines, split_text
from marin.data.tokenizer import END_OF_TEXT
from marin.errors import DataError, NoConversation, UsageError
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


GRAMMAR, URL, EARLIER = (("marin.corpora", name) for name in ("grammar", "url", "earlier-chats"))
"""Group and name of what makes texts of nothing but a seed, of what fetches a file, and of conversations by older rules."""


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
    sources = {f"minimal_pairs:{file.name}": file.digest() for file in _pair_files(dataset)}
    if isinstance(dataset, UrlDataset):
        return sources | {dataset.url: f"sha256:{dataset.sha256}"}
    return sources | {file.name: file.digest() for file in matched(dataset.globs)}


def config(recipe: Recipe) -> object:
    """The part of the recipe that decides the documents, with the digests of the raw bytes; of conversations also the tokenizer
    that is taken over, whose special tokens a template names."""
    own: dict[str, object] = {"dataset": recipes.plain(recipe.dataset), "sources": source_digests(recipe)}
    kept = recipe.kept_tokenizer if chats(recipe.dataset) else None
    return own if kept is None else own | {"tokenizer": kept}


@dataclass(frozen=True)
class _Corpus:
    train: SplitCount
    validation: SplitCount
    sources: dict[str, str]
    skipped: Skipped = field(default_factory=Skipped)
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
    skipped = made.skipped
    if skipped.count:
        description["skipped"] = {"lines": skipped.count, "first": skipped.first}
        log.warning("%d lines are no conversations and are left out; the first: %s", skipped.count, skipped.first[0])
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
            **({"skipped_lines": float(skipped.count)} if skipped.count else {}),
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
    return read_pairs(_pair_files(dataset))


def _from_one(dataset: SingleDataset, task: Task, out: Path) -> _Corpus:
    if isinstance(dataset, GrammarDataset):
        return _from_grammar(dataset, out)
    if isinstance(dataset, ArtifactDataset):
        return _from_artifact(dataset, task, out)
    if isinstance(dataset, DocumentsDataset | WebDataset):
        return _from_collection(_collection(dataset), task, out)
    return _from_url(dataset, task, out) if isinstance(dataset, UrlDataset) else _from_files(dataset, task, out)


def _from_parts(dataset: MixtureDataset, task: Task) -> _Corpus:
    """Each part as it would be alone; their held-out texts together."""
    total = {TRAIN: SplitCount(0, 0), VALIDATION: SplitCount(0, 0)}
    sources: dict[str, str] = {}
    skipped, marked = Skipped(), 0
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
            skipped.count += made.skipped.count
            skipped.first += [line | {"file": f"{name}:{line['file']}"} for line in made.skipped.first]
    return _Corpus(total[TRAIN], total[VALIDATION], sources, skipped, marked)


def plugins(recipe: Recipe) -> tuple[tuple[str, str], ...]:
    """What some data sets alone are made by."""
    dataset = recipe.dataset
    parts = dataset.parts.values() if isinstance(dataset, MixtureDataset) else (dataset,)
    kinds = ((GRAMMAR, GrammarDataset), (URL, UrlDataset))
    found = [point for point, kind in kinds if any(isinstance(part, kind) for part in parts)]
    if any(isinstance(part, FilesDataset) and part.chat and part.chat_reference is None for part in parts):
        found.append(EARLIER)
    return tuple(found)


def _grammar() -> Generated:
    found: Generated = named(*GRAMMAR, "dataset=grammar")
    return found


def _from_grammar(dataset: GrammarDataset, out: Path) -> _Corpus:
    return _Corpus(
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


def _from_artifact(dataset: ArtifactDataset, task: Task, out: Path) -> _Corpus:
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
    return _Corpus(counts[0], counts[1], _sources(dataset))


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


def _from_collection(artifact: str, task: Task, out: Path) -> _Corpus:
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
    return _Corpus(counts["train"], counts["validation"], {"collection": artifact})


def _pairs_of(artifact: Artifact, task: Task) -> Iterable[dict[str, str]]:
    with TemporaryDirectory(dir=task.work, prefix="artifact-") as folder:
        path = _taken(artifact, task, Path(folder) / "corpus") / PAIRS
        return list(read_pairs([SourceFile(path, PAIRS)])) if path.is_file() else []


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


def _from_url(dataset: UrlDataset, task: Task, out: Path) -> _Corpus:
    path: Path = named(*URL, "dataset.kind=url").obtain(dataset, task.store, task.work)
    with path.open("rb") as file:
        texts = split_text(lines(file, where=dataset.url), dataset.split, dataset.paragraphs_per_document)
        documents = (Document(text, dataset.name, {"number": number}) for number, text in enumerate(texts))
        train, validation = write_divided(documents, out, dataset.validation_fraction, where=dataset.url)
    return _Corpus(train, validation, _sources(dataset))


@dataclass(frozen=True)
class _Chats:
    """How the lines of a data set are written, if they are conversations; ``marked`` counts those that hold special tokens."""

    written: Written | None = None
    by_difference: bool = False
    marked: Marked | None = None


def _chats(dataset: FilesDataset, task: Task) -> _Chats:
    if not dataset.chat:
        return _Chats()
    if dataset.chat_reference is None:
        log.warning(
            "dataset.chat_reference is not named: conversations by the rules of an older release, their marks as text; "
            "those of transformers: chat_reference=transformers"
        )
        earlier = named(*EARLIER, "a data set of conversations without dataset.chat_reference")
        if dataset.chat_template is None:
            return _Chats(lambda value, at: earlier.render(value.get("messages"), at))
        return _Chats(
            partial(earlier.conversation, earlier.EarlierTemplate(dataset.chat_template, where="dataset.chat_template"))
        )
    if (kept := task.recipe.kept_tokenizer) is None:
        return _by(template_of(dataset, SPECIAL), frozenset({END_OF_TEXT}))
    with TemporaryDirectory(dir=task.work, prefix="tokenizer-") as base:
        folder = Path(base) / "tokenizer"
        task.store.checkout(kept, folder)
        check_marks(folder)
        return _by(template_of(dataset, special_tokens(folder)), special_texts(folder))


def _by(template: ChatTemplate, special: frozenset[str]) -> _Chats:
    return _Chats(partial(conversation, template), not template.marks, Marked(special))


def _from_files(dataset: FilesDataset, task: Task, out: Path) -> _Corpus:
    sources, found, skipped = _sources(dataset), _chats(dataset, task), Skipped()

    def documents() -> Iterator[Document]:
        some = False
        for file in matched(dataset.globs):
            for document in read_file(
                file,
                dataset.name,
                text_field=dataset.text_field,
                split=dataset.split,
                paragraphs_per_document=dataset.paragraphs_per_document,
                expected_digest=sources[file.name],
                chat=found.written,
                by_difference=found.by_difference,
                skipped=None if dataset.strict else skipped,
                preferences=bool(dataset.preferences),
                marked=found.marked,
            ):
                some = True
                yield document
        if skipped.count and not some:
            first = skipped.first[0]
            raise NoConversation(
                "no line is a conversation",
                where=f"{first['file']}:{first['line']}",
                expected=str(first["expected"]),
                found=str(first["found"]),
                cure="correct the lines; docs/lab.md says what a conversation is",
            )

    train, validation = write_divided(
        documents(), out, dataset.validation_fraction, where=f"dataset.globs: {', '.join(dataset.globs)}"
    )
    if not dataset.preferences:
        return _Corpus(train, validation, sources, skipped, found.marked.count if found.marked is not None else 0)
    both = (out / VALIDATION).rename(out / "held_out.jsonl")
    validation, held_out = hold_out(both, out / VALIDATION)
    both.unlink()
    return _Corpus(train, validation, sources, skipped, found.marked.count if found.marked is not None else 0, held_out)


def _pair_files(dataset: UrlDataset | FilesDataset) -> list[SourceFile]:
    """The files that the glob ``minimal_pairs`` names, below MARIN_DATA if there is such a file, otherwise from
    here."""
    if dataset.minimal_pairs is None:
        return []
    return matched((mirrored_glob(dataset.minimal_pairs),), what="dataset.minimal_pairs", kinds=(".jsonl",))


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
