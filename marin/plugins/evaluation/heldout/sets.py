"""The held-out sets of a recipe: which texts they are, as stored JSON lines."""

from __future__ import annotations

import glob
import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path

from ledger import Store
from marin.data.documents import VALIDATION
from marin.data.local import KINDS, matched, read_file
from marin.errors import DataMissing, UsageError
from marin.history.run import Run
from marin.recipe.evaluation import CorpusSet, FilesSet, FolderSet, HeldOut
from marin.recipe.schema import MixtureDataset, Recipe

CODE = ("marin/plugins/evaluation/heldout/measuring.py",)
"""The file in which the measuring of a held-out set begins."""

DEFAULT: Mapping[str, HeldOut] = {"validation": CorpusSet()}
"""What is measured where a recipe names no set."""


def read_sets(run: Run, store: Store, kept: Mapping[str, str]) -> dict[str, bytes]:
    """The sets of a run's recipe by name, those of a folder as ``NAME/PART``.

    Args:
        kept: stored sets of this run that were measured before. They stand for files that may have changed since, so that
            a curve is over one text; what is of the corpus follows from the corpus.

    Raises:
        DataError: a set is not there, cannot be read, or has no text.
    """
    found: dict[str, bytes] = {}
    for name, one in (run.recipe.evaluation.sets or DEFAULT).items():
        if isinstance(one, CorpusSet):
            found[name] = corpus_set(run, store, name, one)
            continue
        known = {key: digest for key, digest in kept.items() if key == name or key.startswith(f"{name}/")}
        if known and all(store.has(digest) for digest in known.values()):
            found |= {key: store.read(digest) for key, digest in known.items()}
        elif isinstance(one, FilesSet):
            found[name] = _written(name, _of_files(name, one.globs, one), one)
        else:
            found |= {
                f"{name}/{part}": _written(f"{name}/{part}", _of_files(name, globs, one), one)
                for part, globs in _parts(name, one)
            }
    return found


def check_files(recipe: Recipe) -> None:
    """Every set of files or of a folder has some.

    Raises:
        DataMissing: a glob matches nothing, or a folder is not there or has no set.
        DataError: a file is of a kind that cannot be read.
    """
    for name, one in (recipe.evaluation.sets or DEFAULT).items():
        if isinstance(one, FilesSet):
            matched(one.globs, what=f"evaluation.sets.{name}")
        elif isinstance(one, FolderSet) and not list(_parts(name, one)):
            raise DataMissing(
                "a folder without sets",
                where=f"evaluation.sets.{name}.path",
                expected="files of text, or folders of them",
                found=one.path,
            )


def corpus_set(run: Run, store: Store, name: str, one: CorpusSet) -> bytes:
    """The set ``name`` as it follows from the run's corpus."""
    return _written(name, _of_corpus(run, store, one), one)


def set_of(recipe: Recipe, name: str) -> str | None:
    """The set of a recipe that ``name`` is measured for, itself or as a part of a folder; None where it is of no set."""
    sets = recipe.evaluation.sets or DEFAULT
    if name in sets:
        return None if isinstance(sets[name], FolderSet) else name
    folder = name.partition("/")[0]
    return folder if isinstance(sets.get(folder), FolderSet) and name != folder else None


def _written(name: str, documents: Iterable[str], one: HeldOut) -> bytes:
    rows = [json.dumps({"text": text}, ensure_ascii=False).encode() for text in islice(documents, one.documents)]
    if not rows:
        raise DataMissing(
            "a held-out set without text", where=f"evaluation.sets.{name}", expected="a document", found="none"
        )
    return b"".join(row + b"\n" for row in rows)


def _of_files(name: str, globs: Iterable[str], one: FilesSet | FolderSet) -> Iterator[str]:
    for file in matched(globs, what=f"evaluation.sets.{name}"):
        documents = read_file(
            file,
            name,
            text_field=one.text_field,
            split=one.split,
            paragraphs_per_document=one.paragraphs_per_document,
            expected_digest=file.digest(),
        )
        yield from (document.text for document in documents if document.text)


def _parts(name: str, one: FolderSet) -> Iterator[tuple[str, list[str]]]:
    folder = Path(one.path)
    if not folder.is_dir():
        raise DataMissing(
            "no such folder", where=f"evaluation.sets.{name}.path", expected="a folder of sets", found=one.path
        )
    for child in sorted(folder.iterdir(), key=lambda path: path.name):
        inside = sorted(child.rglob("*")) if child.is_dir() else [child]
        files = [glob.escape(str(path)) for path in inside if path.is_file() and path.name.endswith(KINDS)]
        if files and not child.name.startswith("."):
            ending = next((kind for kind in reversed(KINDS) if child.is_file() and child.name.endswith(kind)), "")
            yield child.name.removesuffix(ending), files


def _of_corpus(run: Run, store: Store, one: CorpusSet) -> Iterator[str]:
    source = _source(run.recipe, one.part)
    with store.open_file(run.output("corpus").artifact, VALIDATION) as lines:
        for line in lines:
            row = json.loads(line)
            if row["text"] and source in (None, row["source"]):
                yield row["text"]


def _source(recipe: Recipe, part: str | None) -> str | None:
    """How the documents of a part are marked in the split that all parts share; None: every document is meant."""
    if part is None or not isinstance(recipe.dataset, MixtureDataset):
        return None
    names = [dataset.name for dataset in recipe.dataset.parts.values()]
    name = recipe.dataset.parts[part].name
    if names.count(name) > 1:
        raise UsageError(
            "parts that cannot be told apart",
            where=f"dataset.parts.{part}.name",
            expected="a name that no other part has",
            found=name,
            cure="give each part a name of its own",
        )
    return name
