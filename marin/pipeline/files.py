"""A corpus of files: the user's own by globs, one that is fetched, or those of an artifact that a user made; text, JSON lines,
conversations and preferences.

An entry point of the group ``marin.corpora`` (:class:`marin.pipeline.corpus.Reader`): the code of a step ``corpus`` whose data
set names files, and of no other.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from marin.data import documents as corpora
from marin.data.borrowed.chats import check_marks, special_texts, special_tokens
from marin.data.chat import checked, left_out, messages_of
from marin.data.lines.writing import SplitWriter
from marin.data.local import Marked, Skipped, SourceFile, Written, matched, mirrored_glob, read_file, read_pairs
from marin.data.preferences import hold_out
from marin.data.template import SPECIAL, ChatTemplate, conversation, template_of
from marin.data.text import lines, split_text
from marin.data.tokenizer import END_OF_TEXT
from marin.errors import DataError, NoConversation, UsageError
from marin.execution.step import Task
from marin.pipeline.corpus import EARLIER, PAIRS, URL, Corpus
from marin.provenance.plugins import load_plugin
from marin.recipe.schema import Artifact, ArtifactDataset, FilesDataset, UrlDataset

log = logging.getLogger(__name__)


def sources(dataset: UrlDataset | FilesDataset | ArtifactDataset) -> dict[str, str]:
    """The digests of the files, and of those with minimal pairs, by name.

    Raises:
        DataError: a file is missing or cannot be read.
    """
    if isinstance(dataset, ArtifactDataset):
        return {dataset.artifact.address: dataset.artifact.digest or ""}
    found = {f"minimal_pairs:{file.name}": file.digest() for file in _pair_files(dataset)}
    if isinstance(dataset, UrlDataset):
        return found | {dataset.url: f"sha256:{dataset.sha256}"}
    return found | {file.name: file.digest() for file in matched(dataset.globs)}


def pairs(dataset: UrlDataset | FilesDataset | ArtifactDataset, task: Task) -> Iterable[dict[str, str]]:
    """The minimal pairs that the data set names."""
    return (
        _pairs_of(dataset.artifact, task) if isinstance(dataset, ArtifactDataset) else read_pairs(_pair_files(dataset))
    )


def corpus(dataset: UrlDataset | FilesDataset | ArtifactDataset, task: Task, out: Path) -> Corpus:
    """Both splits of the documents, in ``out``."""
    if isinstance(dataset, ArtifactDataset):
        return _of_artifact(dataset, task, out)
    return _of_address(dataset, task, out) if isinstance(dataset, UrlDataset) else _of_files(dataset, task, out)


def _of_artifact(dataset: ArtifactDataset, task: Task, out: Path) -> Corpus:
    """Each document is read and written anew, so that this corpus is one, no matter who made that artifact."""
    counts = []
    with TemporaryDirectory(dir=task.work, prefix="artifact-") as folder:
        made = _taken(dataset.artifact, task, Path(folder) / "corpus")
        for split in (corpora.TRAIN, corpora.VALIDATION):
            with (out / split).open("wb") as file:
                writer = SplitWriter(file)
                for document in corpora.read_documents(_file_of(dataset.artifact, made, split)):
                    writer.write(document)
                counts.append(writer.count())
    if not counts[0].documents:
        raise DataError(
            "corpus is empty", where=dataset.artifact.address, expected=f"documents in {corpora.TRAIN}", found="none"
        )
    return Corpus(counts[0], counts[1], sources(dataset))


def _pairs_of(artifact: Artifact, task: Task) -> Iterable[dict[str, str]]:
    with TemporaryDirectory(dir=task.work, prefix="artifact-") as folder:
        path = _taken(artifact, task, Path(folder) / "corpus") / PAIRS
        return list(read_pairs([SourceFile(path, path.name)])) if path.is_file() else []


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
            expected=f"a folder with {corpora.TRAIN} and {corpora.VALIDATION}",
            found=f"no {name}",
            cure="write both into context.out, one document a line: id, text, source, metadata",
        )
    return folder / name


def _of_address(dataset: UrlDataset, task: Task, out: Path) -> Corpus:
    path: Path = load_plugin(*URL, "dataset.kind=url").obtain(dataset, task.store, task.work)
    with path.open("rb") as file:
        texts = split_text(lines(file, where=dataset.url), dataset.split, dataset.paragraphs_per_document)
        documents = (corpora.Document(text, dataset.name, {"number": number}) for number, text in enumerate(texts))
        train, validation = write_divided(documents, out, dataset.validation_fraction, where=dataset.url)
    return Corpus(train, validation, sources(dataset))


@dataclass(frozen=True)
class _Chats:
    """How the lines of a data set are written, if they are conversations; ``marked`` counts those that hold special tokens, and
    ``left_out`` by field those of which the template leaves something out."""

    written: Written | None = None
    by_difference: bool = False
    marked: Marked | None = None
    left_out: Counter[str] = field(default_factory=Counter)


def _chats(dataset: FilesDataset, task: Task) -> _Chats:
    if not dataset.chat:
        return _Chats()
    if dataset.chat_reference is None:
        log.warning(
            "dataset.chat_reference is not named: conversations by the rules of an older release, their marks as text; "
            "those of transformers: chat_reference=transformers"
        )
        earlier = load_plugin(*EARLIER, "a data set of conversations without dataset.chat_reference")
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
    seen: Counter[str] = Counter()

    def written(value: Mapping[str, object], at: str) -> tuple[str, tuple[corpora.Span, ...]]:
        text, learned = conversation(template, value, at)
        seen.update(left_out(value, checked(messages_of(value, at), at), template.text, text))
        return text, learned

    return _Chats(written, not template.marks, Marked(special), seen)


def _of_files(dataset: FilesDataset, task: Task, out: Path) -> Corpus:
    digests, found, skipped = sources(dataset), _chats(dataset, task), Skipped()

    def documents() -> Iterator[corpora.Document]:
        some = False
        for file in matched(dataset.globs):
            for document in read_file(
                file,
                dataset.name,
                text_field=dataset.text_field,
                split=dataset.split,
                paragraphs_per_document=dataset.paragraphs_per_document,
                expected_digest=digests[file.name],
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
    marked = found.marked.count if found.marked is not None else 0
    for name, count in sorted(found.left_out.items()):
        log.warning(
            "%d conversations have %s, which the chat template does not name: it is in no text, as in transformers",
            count,
            name,
        )
    if not dataset.preferences:
        return Corpus(train, validation, digests, skipped.count, skipped.first, marked)
    both = (out / corpora.VALIDATION).rename(out / "held_out.jsonl")
    validation, held_out = hold_out(both, out / corpora.VALIDATION)
    both.unlink()
    return Corpus(train, validation, digests, skipped.count, skipped.first, marked, held_out)


def _pair_files(dataset: UrlDataset | FilesDataset) -> list[SourceFile]:
    """The files that the glob ``minimal_pairs`` names, below MARIN_DATA if there is such a file, otherwise from
    here."""
    if dataset.minimal_pairs is None:
        return []
    return matched((mirrored_glob(dataset.minimal_pairs),), what="dataset.minimal_pairs", kinds=(".jsonl",))


def write_divided(
    documents: Iterable[corpora.Document], folder: Path, fraction: float, *, where: str
) -> tuple[corpora.SplitCount, corpora.SplitCount]:
    """Write ``documents`` to ``folder``, divided into train and validation.

    Raises:
        DataError: there is no document, or only one text, so that nothing could be held out.
    """
    limit = corpora.threshold(fraction)
    counts = _write(documents, folder, limit)
    if counts.train.documents and counts.validation.documents:
        return counts.train, counts.validation
    if counts.lowest == counts.highest:
        found = "no document" if counts.lowest is None else "one text"
        raise DataError(
            "corpus is empty" if counts.lowest is None else "corpus cannot be divided",
            where=where,
            expected="at least two different documents, so that one can be held out",
            found=found,
            cure="name more text, or cut it into smaller documents with dataset.split and dataset.paragraphs_per_document",
        )
    assert counts.lowest is not None and counts.highest is not None
    again = list(corpora.read_documents(folder / corpora.TRAIN)) + list(
        corpora.read_documents(folder / corpora.VALIDATION)
    )
    counts = _write(again, folder, counts.lowest + 1 if not counts.validation.documents else counts.highest)
    return counts.train, counts.validation


@dataclass(frozen=True)
class _Written:
    train: corpora.SplitCount
    validation: corpora.SplitCount
    lowest: int | None
    highest: int | None


def _write(documents: Iterable[corpora.Document], folder: Path, limit: int) -> _Written:
    lowest = highest = None
    place = 0
    with (folder / corpora.TRAIN).open("wb") as train_file, (folder / corpora.VALIDATION).open("wb") as validation_file:
        train, validation = SplitWriter(train_file), SplitWriter(validation_file)
        for document in documents:
            if document.metadata.get(corpora.ANSWER) != corpora.REJECTED:
                place = corpora.position(document.text)
            lowest = place if lowest is None else min(lowest, place)
            highest = place if highest is None else max(highest, place)
            (validation if place < limit else train).write(document)
        return _Written(train.count(), validation.count(), lowest, highest)
