"""Ids, the shape on disk, and the division into splits."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from marin.data.documents import TRAIN, VALIDATION, Document, position, read_documents, read_texts, threshold
from marin.errors import DataError
from marin.pipeline.files import write_divided


def made(texts: list[str]) -> list[Document]:
    return [Document(text, "test", {"number": number}) for number, text in enumerate(texts)]


def records(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_the_shape_is_dolmas(tmp_path: Path) -> None:
    write_divided(made(["one", "two", "three"]), tmp_path, 0.5, where="here")
    for record in records(tmp_path / TRAIN) + records(tmp_path / VALIDATION):
        assert set(record) == {"id", "text", "source", "metadata"}
        assert record["id"] == hashlib.sha256(str(record["text"]).encode()).hexdigest()


def test_repeated_texts_have_ids_of_their_own_and_stay_on_one_side(tmp_path: Path) -> None:
    write_divided(made(["same", "other", "same", "same"]), tmp_path, 0.5, where="here")
    both = [records(tmp_path / name) for name in (TRAIN, VALIDATION)]
    ids = [record["id"] for side in both for record in side]
    assert len(set(ids)) == 4
    assert sorted(sum(record["text"] == "same" for record in side) for side in both) == [0, 3]
    base = hashlib.sha256(b"same").hexdigest()
    assert {base, f"{base}-2", f"{base}-3"} <= set(ids)


def test_the_bytes_of_a_line(tmp_path: Path) -> None:
    write_divided([Document("Grüße\u2028\n", "s", {"n": 1}), Document("b", "s", {"n": 2})], tmp_path, 0.5, where="here")
    line = next(
        line for name in (TRAIN, VALIDATION) for line in (tmp_path / name).read_bytes().split(b"\n") if b"\xc3" in line
    )
    digest = hashlib.sha256("Grüße\u2028\n".encode()).hexdigest()
    assert line == f'{{"id":"{digest}","metadata":{{"n":1}},"source":"s","text":"Grüße\u2028\\n"}}'.encode()
    assert set(read_texts(tmp_path / TRAIN)) | set(read_texts(tmp_path / VALIDATION)) == {"Grüße\u2028\n", "b"}


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(min_size=1), min_size=2, max_size=30, unique=True), st.floats(0.01, 0.99))
def test_every_document_is_on_one_side_and_neither_is_empty(tmp_path: Path, texts: list[str], fraction: float) -> None:
    texts = [text for text in texts if text.isprintable()]
    if len(texts) < 2:
        return
    train, validation = write_divided(made(texts), tmp_path, fraction, where="here")
    sides = [list(read_texts(tmp_path / name)) for name in (TRAIN, VALIDATION)]
    assert sorted(sides[0] + sides[1]) == sorted(texts)
    assert train.documents == len(sides[0]) > 0
    assert validation.documents == len(sides[1]) > 0
    assert train.text_bytes == sum(len(text.encode()) for text in sides[0])
    assert not set(sides[0]) & set(sides[1])


def test_more_documents_move_none_of_the_others(tmp_path: Path) -> None:
    texts = [f"text {number}" for number in range(200)]
    write_divided(made(texts[:100]), tmp_path, 0.3, where="here")
    before = set(read_texts(tmp_path / VALIDATION))
    write_divided(made(texts), tmp_path, 0.3, where="here")
    after = set(read_texts(tmp_path / VALIDATION))
    assert before == after & set(texts[:100])
    assert 40 < len(after) < 80


def test_the_threshold_is_exact() -> None:
    assert threshold(0.5) == 2**63
    assert threshold(0.1) == 1844674407370955264  # 0.1 as a double, times 2**64
    assert 0 <= position("x") < 2**64


@pytest.mark.parametrize(
    ("texts", "found"), [([], "no document"), (["only"], "one text"), (["only", "only"], "one text")]
)
def test_what_cannot_be_divided_is_refused(tmp_path: Path, texts: list[str], found: str) -> None:
    with pytest.raises(DataError) as caught:
        write_divided(made(texts), tmp_path, 0.5, where="the glob")
    assert caught.value.found == found
    assert caught.value.where == "the glob"


@pytest.mark.parametrize("line", ["{", '{"text": "a"}', "[]", "1"])
def test_a_damaged_split_names_the_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / TRAIN
    path.write_text('{"id":"x","metadata":{},"source":"s","text":"a"}\n' + line + "\n")
    with pytest.raises(DataError, match=r"train\.jsonl:2"):
        list(read_documents(path))
