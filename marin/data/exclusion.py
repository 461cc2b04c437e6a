"""Documents that a recipe excludes (``Recipe.exclude``): which of a corpus they are, and what stands in their place.

The corpus keeps them: who was asked to forget a document must be able to show which one it was. The tokenizer is trained
without them, and in the token stream each of their tokens is -1 (:data:`marin.training.tokens.cache.BLANK`). So nothing else
moves: every other token has the place, the sequence and the train step that it had. What a blank position is to a train step
says :mod:`marin.training.blank`.

An id names a document of any part of a mixture in which it is; a second copy of a text has an id of its own and stays.
Documents that a collection had removed as copies of an excluded one stay removed: nothing takes the blank place.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from ledger import Malformed
from marin.data.documents import VALIDATION, Document, read_documents, train_files
from marin.errors import UsageError
from marin.recipe.schema import Dataset, DocumentsDataset, Recipe, WebDataset, parts

DESCRIPTION = "dataset.json"


def not_excluded_from(recipe: Recipe) -> tuple[str, ...]:
    """What of a training its exclusion says nothing of, since it was made before or elsewhere: an excluded document may be
    in it. Empty where all of it was made without them."""
    return (
        *(("the phases before this one",) if recipe.phase is not None else ()),
        *(("the tokenizer, which was made elsewhere",) if recipe.tokenizer.artifact is not None else ()),
    )


def document_id(document: Document, collected: bool) -> str:
    """The id by which people name a document: of a ``collected`` one that of the collection, which stands beside its
    own."""
    return str(document.metadata.get("id", "")) if collected else document.id


def listed(corpus: Path, dataset: Dataset) -> Iterator[tuple[str, str, int, Document]]:
    """Id, split (``train``, ``validation``), number in its file, and the document, for a whole corpus; parts of a mixture
    in order of name. A held-out document of a mixture does not say of which part it is: it has both ids where one of them
    is a collection's."""
    kinds = {name: _is_collected(part) for name, part in parts(dataset).items()}
    for part, path in train_files(corpus).items():
        collected = kinds[part] if part else next(iter(kinds.values()))
        for number, document in enumerate(read_documents(path)):
            yield document_id(document, collected), "train", number, document
    for number, document in enumerate(read_documents(corpus / VALIDATION)):
        collected = all(kinds.values()) or (any(kinds.values()) and set(document.metadata) == {"id"})
        yield document_id(document, collected), "validation", number, document


def _is_collected(dataset: object) -> bool:
    return isinstance(dataset, DocumentsDataset | WebDataset)


def excluded(corpus: Path, recipe: Recipe) -> dict[str, frozenset[int]]:
    """The numbers of the excluded documents in each train split, by part ("" for a single data set).

    Raises:
        UsageError: as :func:`numbers`.
    """
    if recipe.exclude is None:
        return {part: frozenset() for part in train_files(corpus)}
    found = numbers(corpus, recipe.dataset, recipe.exclude)
    return {part: frozenset(of_part.values()) for part, of_part in found.items()}


def numbers(corpus: Path, dataset: Dataset, ids: tuple[str, ...]) -> dict[str, Mapping[str, int]]:
    """For each part, the numbers of the documents with these ids in its train split, by id.

    Raises:
        UsageError: one is not in the training data: held out, or of another corpus.
        Malformed: two documents of a part have one of these ids, so that it names neither.
    """
    wanted, found = set(ids), dict[str, dict[str, int]]()
    kinds = {name: _is_collected(part) for name, part in parts(dataset).items()}
    for part, path in train_files(corpus).items():
        collected = kinds[part] if part else next(iter(kinds.values()))
        found[part] = {}
        for number, document in enumerate(read_documents(path)):
            name = document_id(document, collected)
            if name not in wanted:
                continue
            if name in found[part]:
                raise Malformed(
                    "two documents with one id",
                    where=f"{_name_of(corpus)}, {part or 'train'}: {name}",
                    expected="an id for each document",
                    found=f"documents {found[part][name]} and {number}",
                    cure="what made this corpus gives ids twice: do not train on it",
                )
            found[part][name] = number
    missing = sorted(wanted.difference(*found.values()))
    if missing:
        held_out = {name for name, split, _, _ in listed(corpus, dataset) if split == "validation"}
        raise _not_trained_on(missing[0], missing[0] in held_out, len(missing), _name_of(corpus))
    return dict(found)


def _name_of(corpus: Path) -> str:
    try:
        return str(json.loads((corpus / DESCRIPTION).read_bytes())["name"])[:64]
    except (OSError, ValueError, KeyError, TypeError):
        return "the corpus"


def _not_trained_on(document: str, held_out: bool, count: int, corpus: str) -> UsageError:
    found = "it is held out: nothing is trained on it" if held_out else "no such document"
    return UsageError(
        "a document that is not in the training data",
        where=document,
        expected=f"the id of a document of the train split of {corpus}",
        found=found if count == 1 else f"{found}, and {count - 1} more",
        cure="see `marin data list RUN`",
    )
