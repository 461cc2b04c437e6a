"""What the first reader of a recipe accepts, the last one accepts too, as the same recipe: for every field that there is."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect

from ledger.format.canonical import canonical_bytes
from marin.errors import LedgerError, UsageError
from marin.graph.recipes import pipeline_graph
from marin.recipe.composition import compose
from marin.recipe.schema import DATASETS, GrammarDataset, Recipe, artifacts, digest, from_mapping, from_plain, recorded

TEXTS = st.sampled_from(
    ["x", "", "0x1.8p+1", "0x1.0p-3", "0x1p3", "17", "seed", "null", "${seed}", "é\u200c", "a" * 70, "inf"]
)
FLOATS = (
    st.sampled_from([0.0, -0.0, 0.29, 5e-324, 1e-300, 1.0, 1e9, 1e308, math.inf, -math.inf, math.nan]) | st.floats()
)
INTS = st.sampled_from([0, 1, 2, 8, 199, 256, 2**31, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, 2**64]) | st.integers()
DIGESTS = st.just("sha256:" + "a" * 64) | st.just("a" * 64)


def of_type(kind: inspect.Type, depth: int = 0) -> st.SearchStrategy[Any]:
    """Values of ``kind`` as a file would have them, and many that are nearly of it."""
    match kind:
        case inspect.Metadata():
            return of_type(kind.type, depth)
        case inspect.UnionType():
            return st.one_of([of_type(one, depth) for one in kind.types])
        case inspect.LiteralType():
            return st.sampled_from([*kind.values, "other"])
        case inspect.BoolType():
            return st.booleans()
        case inspect.IntType():
            return INTS | st.integers(max(kind.ge or 0, -(2**63)), min(kind.le or 2**20, 2**63))
        case inspect.FloatType():
            return FLOATS | INTS | st.floats(0.0, 1.0)
        case inspect.StrType():
            return TEXTS | DIGESTS
        case inspect.NoneType():
            return st.none()
        case inspect.VarTupleType():
            return st.lists(of_type(kind.item_type, depth + 1), max_size=3)
        case inspect.DictType():
            keys = st.sampled_from(["a", "b", "seed", "initial", "0x1.0p-3"])
            return st.dictionaries(keys, of_type(kind.value_type, depth + 1), min_size=1, max_size=2)
        case inspect.StructType():
            tag = {kind.tag_field: st.just(kind.tag)} if kind.tag_field is not None else {}
            needed = {one.encode_name: of_type(one.type, depth + 1) for one in kind.fields if one.required}
            others = {one.encode_name: of_type(one.type, depth + 1) for one in kind.fields if not one.required}
            return st.fixed_dictionaries({**tag, **needed}, optional=others if depth < 1 else {})  # type: ignore[arg-type]
    raise AssertionError(kind)


def fields() -> Iterator[tuple[str, st.SearchStrategy[Any]]]:
    for field in inspect.type_info(Recipe).fields:  # type: ignore[attr-defined]
        if isinstance(field.type, inspect.StructType):
            for one in field.type.fields:
                yield f"{field.encode_name}.{one.encode_name}", of_type(one.type, 1)
        else:
            yield field.encode_name, of_type(field.type)


FIELDS = dict(fields())


def accepted(values: dict[str, Any]) -> None:
    try:
        recipe = from_mapping(values, where="test")
    except LedgerError as error:
        assert "\n" not in str(error)
        return
    data = canonical_bytes(recorded(recipe))
    again = from_plain(json.loads(data), where="record")
    assert again == recipe and digest(again) == digest(recipe)
    assert canonical_bytes(recorded(again)) == data
    plain = isinstance(recipe.dataset, GrammarDataset) and recipe.phase is None and not artifacts(recipe)
    if plain and recipe.seed is not None:  # of others the plan asks for files and for what is in the store
        pipeline_graph([recipe])


@pytest.mark.table
@pytest.mark.parametrize("path", FIELDS)
def test_what_is_composed_can_be_recorded_and_planned(path: str) -> None:
    @given(FIELDS[path])
    @settings(deadline=None)
    def holds(value: Any) -> None:
        section, _, name = path.partition(".")
        accepted({section: {name: value}} if name else {section: value})

    holds()


@pytest.mark.parametrize("kind", DATASETS)
@given(data=st.data())
@settings(deadline=None)
def test_so_it_is_for_every_data_set(kind: str, data: Any) -> None:
    info = inspect.type_info(DATASETS[kind])
    accepted({"dataset": data.draw(of_type(info))})


@pytest.mark.parametrize("written", ["inf", "nan", "-inf", "1e400"])
@pytest.mark.parametrize("key", ["optimizer.max_grad_norm", "optimizer.learning_rate", "optimizer.min_lr_ratio"])
def test_a_number_that_no_record_can_hold_is_said_at_once(key: str, written: str) -> None:
    with pytest.raises(UsageError, match=rf"{key}: expected a"):
        compose([f"{key}={written}"])


def test_a_borrowed_tokenizer_may_be_smaller_than_one_of_ours() -> None:
    borrowed = {"vocab_size": 199, "artifact": "sha256:" + "a" * 64, "taken_from": "folder small"}
    assert from_mapping({"tokenizer": borrowed}, where="test").tokenizer.vocab_size == 199
    with pytest.raises(UsageError, match=r"command line: tokenizer.vocab_size: expected an integer >= 258"):
        compose(["tokenizer.vocab_size=199"])


def test_texts_of_json_and_of_records_are_no_references() -> None:
    """Only Hydra's files and words have ``${...}``; elsewhere it is text."""
    texts = ["${seed}", r"\${seed}", r"a\\${seed}b", "${oc.env:HOME}", "x${"]
    for text in texts:
        given_values = {"dataset": {"kind": "files", "globs": [text], "text_field": text}}
        recipe = compose([], config_json=json.dumps(given_values)).recipe
        assert msgspec.to_builtins(recipe.dataset)["globs"] == (text,) or list(recipe.dataset.globs) == [text]  # type: ignore[union-attr]
        assert compose([], base=msgspec.to_builtins(recipe)).recipe == recipe
