"""Which documents ids name, in any kind of data set, and what tokenizer and tokens are without them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ledger import Malformed
from marin.data.documents import Document
from marin.data.exclusion import excluded, listed, numbers
from marin.data.lines.writing import SplitWriter
from marin.errors import UsageError
from marin.recipe.schema import Recipe, digest, from_mapping, plain

GRAMMAR: dict[str, Any] = {"kind": "grammar"}
COLLECTION: dict[str, Any] = {"kind": "documents", "artifact": "sha256:" + "0" * 64}


def write(path: Path, *documents: Document) -> list[str]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        writer = SplitWriter(file)
        for document in documents:
            writer.write(document)
    return [json.loads(line)["id"] for line in path.read_text().splitlines()]


def text(words: str, **metadata: str) -> Document:
    return Document(words, "a source", metadata)


def test_a_copy_has_an_id_of_its_own_and_stays(tmp_path: Path) -> None:
    first, second, other = write(tmp_path / "train.jsonl", text("the same"), text("the same"), text("another"))
    write(tmp_path / "validation.jsonl", text("held out"))
    recipe = from_mapping({"dataset": GRAMMAR, "exclude": [first]}, where="test")
    assert second == f"{first}-2"
    assert excluded(tmp_path, recipe) == {"": frozenset({0})}
    assert numbers(tmp_path, recipe.dataset, (other, second)) == {"": {second: 1, other: 2}}


def test_a_document_of_a_collection_goes_by_the_id_that_the_collection_gave_it(tmp_path: Path) -> None:
    own = write(tmp_path / "train.jsonl", text("one", id="c0ffee"), text("two", id="decaf"))
    write(tmp_path / "validation.jsonl", text("three", id="beef"))
    dataset = from_mapping({"dataset": COLLECTION}, where="test").dataset
    assert [(name, split) for name, split, _, _ in listed(tmp_path, dataset)] == [
        ("c0ffee", "train"),
        ("decaf", "train"),
        ("beef", "validation"),
    ]
    assert numbers(tmp_path, dataset, ("decaf",)) == {"": {"decaf": 1}}
    with pytest.raises(UsageError, match="not in the training data"):
        numbers(tmp_path, dataset, (own[0],))


def test_an_id_that_two_documents_have_names_neither(tmp_path: Path) -> None:
    """A collection that was made to keep one of them: only the last was blank."""
    write(tmp_path / "train.jsonl", text("one", id="c0ffee"), text("two", id="c0ffee"), text("three", id="decaf"))
    dataset = from_mapping({"dataset": COLLECTION}, where="test").dataset
    with pytest.raises(Malformed, match=r"two documents with one id.*found documents 0 and 1"):
        numbers(tmp_path, dataset, ("c0ffee",))
    assert numbers(tmp_path, dataset, ("decaf",)) == {"": {"decaf": 2}}


def test_an_id_names_the_text_in_every_part_of_a_mixture(tmp_path: Path) -> None:
    (shared, _) = write(tmp_path / "train" / "a.jsonl", text("in both"), text("of a"))
    write(tmp_path / "train" / "b.jsonl", text("of b"), text("in both"))
    write(tmp_path / "validation.jsonl", text("held out"))
    mixture = {"kind": "mixture", "parts": {"a": GRAMMAR | {"name": "a"}, "b": GRAMMAR | {"name": "b"}}}
    recipe = from_mapping(
        {"dataset": mixture, "mixture": {"weights": {"a": 1.0, "b": 1.0}}, "exclude": [shared]}, where="test"
    )
    assert excluded(tmp_path, recipe) == {"a": frozenset({0}), "b": frozenset({1})}


def test_a_document_that_is_not_there_and_one_that_is_held_out(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", text("one"))
    (held_out,) = write(tmp_path / "validation.jsonl", text("held out"))
    dataset = Recipe().dataset
    with pytest.raises(UsageError, match=r"expected the id of a document of the train split .* found no such document"):
        numbers(tmp_path, dataset, ("f" * 64,))
    with pytest.raises(UsageError, match="it is held out: nothing is trained on it"):
        numbers(tmp_path, dataset, (held_out,))


def test_a_set_of_documents_has_one_form_and_none_is_not_written() -> None:
    assert "exclude" not in plain(Recipe())
    one, other = (from_mapping({"exclude": ids}, where="test") for ids in (["b", "a", "b"], ["a", "b"]))
    assert one == other and digest(one) == digest(other) != digest(Recipe())


@pytest.mark.parametrize("ids", [[], ["a b"], ["-x"], [""], [7], ["x"] * 0])
def test_what_is_no_list_of_ids_is_refused(ids: list[Any]) -> None:
    with pytest.raises(UsageError, match="exclude"):
        from_mapping({"exclude": ids}, where="test")


def test_tokens_that_were_made_elsewhere_have_no_documents_to_exclude() -> None:
    tokens = {"artifact": {"address": "made/elsewhere", "digest": "sha256:" + "1" * 64}}
    with pytest.raises(UsageError, match=r"settings that do not go together: test: exclude"):
        from_mapping({"tokens": tokens, "exclude": ["a"]}, where="test")
