"""Values and graphs: what is refused, in which words; what has one identity and what has not."""

from __future__ import annotations

import dataclasses
import math
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger import canonical_bytes
from marin.errors import UsageError
from marin.execution.plan import CodeIdentity
from marin.graph import Context, Step, adopt, override_output, unidentified
from marin.graph.graph import Graph
from marin.graph.identity import encode, identify, reveal
from marin.pipeline.corpus import CORPUS
from marin.recipe.schema import Model, Recipe

CODE = CodeIdentity({}, "sha256:" + "0" * 64)


def one(context: Context) -> object:
    return context.config


def two(context: Context) -> object:
    return [context.config]


def test_a_step_is_a_frozen_value() -> None:
    step = Step("a/b", one, {"x": 1})
    with pytest.raises(dataclasses.FrozenInstanceError):
        step.name = "other"  # type: ignore[misc]


@pytest.mark.parametrize("name", ["", "/a", "a/", "a//b", "a b", "ä", "../x", "a" * 200])
def test_an_address_has_a_form(name: str) -> None:
    with pytest.raises(UsageError, match="a step needs an address"):
        Step(name, one)


@pytest.mark.parametrize(
    ("value", "cure"),
    [
        (lambda: 1, "functions are code"),
        (Path("x"), "a path is nobody's identity"),
        ({1, 2}, "write a sorted list"),
        (math.nan, "leave it out"),
        (object(), "cannot be sent to another process"),
        ({"a": {1: 2}}, "write the key as a text"),
        ({"float": "x"}, "rename the key"),
    ],
)
def test_what_has_no_identity_is_refused_with_its_path(value: Any, cure: str) -> None:
    step = Step("a", one, {"deep": [value]})
    with pytest.raises(UsageError, match=cure) as caught:
        identify(step, {}, CODE)
    assert "step a: config.deep[0]" in caught.value.where


def test_an_open_file_cannot_be_sent_to_another_process(tmp_path: Path) -> None:
    with (tmp_path / "x").open("w") as file, pytest.raises(UsageError, match="has no identity"):
        identify(Step("a", one, {"file": file}), {}, CODE)


def test_a_configuration_that_cannot_be_sent_is_refused_before_anything_is_executed() -> None:
    with pytest.raises(UsageError, match="cannot be sent to another process"):
        Graph.of("exp", [Step("a", one), Step("b", one, {"lock": threading.Lock()})])


texts = st.text(st.characters(codec="utf-8"), max_size=4)
json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


def same(a: Any, b: Any) -> bool:
    """Equality that tells 1 from 1.0 and True, and 0.0 from -0.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a.hex() == b.hex()) if isinstance(a, float) else bool(a == b)


alike = st.recursive(
    st.sampled_from([0, 0.0, -0.0, False, None, "", 1, 1.0, True, "1", "0x1.0p+0"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["", "a"]), inner, max_size=2),
    max_leaves=3,
)
"""Few values, which a wrong encoding would give the same bytes: two that are drawn are often equal, or nearly."""


@given(*[json_like | alike] * 2)
def test_unequal_values_stay_unequal(a: Any, b: Any) -> None:
    try:
        left, right = (canonical_bytes(encode(value, "x")) for value in (a, b))
    except UsageError:
        return  # looks like an encoded number: refused
    assert (left == right) == same(a, b)


def test_what_is_only_execution_is_in_no_identity_and_reaches_the_function() -> None:
    plain, tuned = Step("a", one, {"x": 1}), Step("a", one, {"x": 1, "workers": unidentified(8)})
    assert identify(plain, {}, CODE).digest == identify(tuned, {}, CODE).digest
    assert reveal(tuned.config) == {"x": 1, "workers": 8}


def test_name_of_a_step_is_no_identity_and_everything_else_is() -> None:
    base = identify(Step("a", one, {"x": 1}), {"i": "sha256:" + "1" * 64}, CODE).digest
    assert identify(Step("b", one, {"x": 1}), {"i": "sha256:" + "1" * 64}, CODE).digest == base
    others = {
        identify(Step("a", two, {"x": 1}), {"i": "sha256:" + "1" * 64}, CODE).digest,
        identify(Step("a", one, {"x": 2}), {"i": "sha256:" + "1" * 64}, CODE).digest,
        identify(Step("a", one, {"x": 1}), {"i": "sha256:" + "2" * 64}, CODE).digest,
        identify(Step("a", one, {"x": 1}), {"j": "sha256:" + "1" * 64}, CODE).digest,
        identify(Step("a", one, {"x": 1}), {"i": "sha256:" + "1" * 64}, CodeIdentity({}, "sha256:" + "9" * 64)).digest,
    }
    assert base not in others
    assert len(others) == 5


def test_recipe_sections_are_configurations() -> None:
    assert identify(Step("a", one, {"m": Model()}), {}, CODE) != identify(
        Step("a", one, {"m": Model(hidden_dim=64)}), {}, CODE
    )


def test_inputs_are_references() -> None:
    with pytest.raises(UsageError, match="outputs are named by reference"):
        Step("a", one, {}, {"data": "/tmp/x"})  # type: ignore[dict-item]
    with pytest.raises(UsageError, match="inputs have names"):
        Step("a", one, {}, [Step("b", one)])  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="needs a function"):
        Step("a", "one")  # type: ignore[arg-type]


def test_a_circle_is_named() -> None:
    first = Step("first", one)
    second = Step("second", one, {}, {"x": first})
    first.inputs["x"] = second  # type: ignore[index]  # what no file can say, but a program can
    with pytest.raises(UsageError, match="circle") as caught:
        Graph.of("exp", [second])
    assert caught.value.where == "second -> first -> second"


def test_two_steps_of_one_name_are_one_step_or_a_mistake() -> None:
    merged = Graph.of("exp", [Step(end, one, {}, {"i": Step("a", one, {"n": 1})}) for end in ("x", "y")])
    assert list(merged.nodes) == ["a", "x", "y"]
    assert merged.dependents("a") == ("x", "y")
    assert merged.ends == ("x", "y")
    with pytest.raises(UsageError, match=r"one name and are not the same.*config.n"):
        Graph.of("exp", [Step("a", one, {"n": 1}), Step("a", one, {"n": 2})])
    with pytest.raises(UsageError, match="their functions"):
        Graph.of("exp", [Step("a", one), Step("a", two)])
    with pytest.raises(UsageError, match="their inputs"):
        Graph.of("exp", [Step("a", one, {}, {"i": Step("b", one)}), Step("a", one, {}, {"i": Step("c", one)})])
    with pytest.raises(UsageError, match="pinned"):
        Graph.of("exp", [Step("a", one), override_output(Step("a", one), "sha256:" + "1" * 64)])


def test_nothing_to_do_is_said() -> None:
    with pytest.raises(UsageError, match="without steps"):
        Graph.of("exp", [])
    with pytest.raises(UsageError, match="not a step"):
        Graph.of("exp", ["a"])


def test_only_takes_what_matches_and_what_it_needs() -> None:
    a = Step("data/a", one)
    graph = Graph.of("exp", [Step("train/b", one, {}, {"a": a}), Step("train/c", one)])
    assert list(graph.only("b$").nodes) == ["data/a", "train/b"]
    with pytest.raises(UsageError, match="did you mean train/b"):
        graph.only("trian/b")
    with pytest.raises(UsageError, match="not a pattern"):
        graph.only("(")


def test_a_chain_of_thousands_is_no_recursion() -> None:
    last = Step("s/0", one)
    for number in range(1, 5000):
        last = Step(f"s/{number}", one, {}, {"last": last})
    assert len(Graph.of("exp", [last]).nodes) == 5000


def test_pipeline_steps_need_a_recipe_and_their_inputs() -> None:
    with pytest.raises(UsageError, match="needs a recipe"):
        Step("corpus/x", CORPUS, {"n": 1})
    with pytest.raises(UsageError, match="has other inputs"):
        Step("corpus/x", CORPUS, Recipe(), {"data": Step("a", one)})


def test_somebody_vouches_for_what_is_adopted() -> None:
    with pytest.raises(UsageError, match="nobody vouches"):
        adopt("data/x", "sha256:" + "1" * 64, kind="corpus", vouched_by=" ")
