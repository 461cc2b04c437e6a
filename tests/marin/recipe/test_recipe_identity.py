"""Every field of a recipe is identity, and nothing of an execution is: the classes are the two types, and this holds
them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from marin.recipe.schema import (
    ADDED_LATER,
    Execution,
    Mixture,
    MixtureDataset,
    Phase,
    Recipe,
    Section,
    digest,
    from_plain,
    plain,
    recorded,
)

SECTIONS: dict[str, Section] = {
    name: value for name in Recipe.__struct_fields__ if isinstance(value := getattr(Recipe(), name), Section)
} | {"mixture": Mixture(weights={"a": 1.0}), "phase": Phase(state="sha256:" + "0" * 64, tokenizer="sha256:" + "1" * 64)}


def test_every_default_is_written_out() -> None:
    written = plain(Recipe())
    assert set(written) == set(Recipe.__struct_fields__) - {
        *("mixture", "phase", "initial", "lora", "objective", "exclude", "order")
    }
    for name, section in SECTIONS.items():
        fields = set(section.__struct_fields__) | ({"kind"} if name == "dataset" else set())
        absent = {field for field in fields if field in ADDED_LATER and getattr(section, field, None) is None}
        assert set(plain(section)) == fields - absent, name


@pytest.mark.parametrize("name", SECTIONS)
def test_no_field_is_outside_of_the_digest(name: str) -> None:
    """The canonical form of every section, with one field after the other taken out, is the form of something else."""
    section = SECTIONS[name]
    base = Recipe(**{name: section})  # type: ignore[arg-type]
    for field in section.__struct_fields__:
        value = getattr(section, field)
        changed = other(value)
        if changed is not value:
            replaced = msgspec.structs.replace(section, **{field: changed})
            assert digest(msgspec.structs.replace(base, **{name: replaced})) != digest(base), f"{name}.{field}"


def other(value: Any) -> Any:
    """Another value of the same type; types that are checked only when a file is read take it."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return value + "x"
        case tuple():
            return (*value, "x")
        case dict():
            return {**value, "x": 1}
    return "x"


def test_nothing_of_an_execution_is_in_a_recipe() -> None:
    def names(value: Any) -> set[str]:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return (set(value) if isinstance(value, dict) else set()) | {name for item in inner for name in names(item)}

    assert not set(Execution.__struct_fields__) & names(recorded(Recipe()))


def test_what_was_recorded_reads_back_as_it_was() -> None:
    parts = msgspec.convert({"kind": "mixture", "parts": {"a": {"kind": "grammar", "seed": 2**62}}}, MixtureDataset)
    recipe = Recipe(seed=2**63 - 1, dataset=parts, mixture=Mixture(weights={"a": 0.1}))
    assert from_plain(msgspec.json.decode(msgspec.json.encode(recorded(recipe))), where="test") == recipe
