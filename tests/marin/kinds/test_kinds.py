"""Every type of event answers all questions that are asked of one; what others bring is checked, and judges nothing."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import msgspec
import pytest

from ledger import Refused
from marin.kinds import known
from marin.kinds.body import Body
from marin.kinds.families.run import RUN_STARTED, RunStarted
from marin.kinds.families.step import STEPS
from marin.kinds.kind import Kind
from marin.kinds.known import CORE, FAMILIES, kind_of, own_kind, own_kinds, type_of
from marin.provenance import plugins
from marin.record.schemas import Schemas

KINDS = list(own_kinds())


def fields(kind: Kind) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(kind.body)}


@pytest.fixture(params=KINDS, ids=lambda kind: kind.type)
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


def test_a_type_has_a_name_and_a_body_of_its_own(kind: Kind) -> None:
    assert re.fullmatch(r"[a-z]+(\.[a-z_]+)+/v[1-9]", kind.type)
    assert kind.body.__doc__ and issubclass(kind.body, Body)
    assert type_of(kind.body) == kind.type
    assert own_kind(kind.type) is kind


def test_a_type_that_names_a_run_says_what_it_is_to_the_run(kind: Kind) -> None:
    """In its stream, as a verdict, in a stream that a judge has, or beside it."""
    where = (kind.run, kind.loop, kind.verdict, kind.judge, kind.beside)
    assert any(where) == ("run" in fields(kind))


def test_what_a_type_claims_of_its_fields_is_of_fields_that_it_has(kind: Kind) -> None:
    for held in (kind.run, kind.loop):
        assert held is None or set(held.claimed) <= fields(kind)


def test_every_field_is_compared_or_claimed(kind: Kind) -> None:
    """A type with nothing to agree with is compared as a whole: its segment is executed again, its run is its stream's."""
    for held in (kind.run, kind.loop):
        if held is not None and held.agrees is None and kind.type != "train.segment/v1":
            assert fields(kind) - {"run", "step"} == set(held.claimed)


def test_what_else_a_type_says_fits_its_body(kind: Kind) -> None:
    assert kind.step in ("", *STEPS) and kind.rests_on in ("", *STEPS)
    assert not (kind.step and "step" in fields(kind) and kind.names_step)
    assert {"step"} <= fields(kind) or not kind.names_step
    assert {"step", "identity", "run"} <= fields(kind) or not kind.identifies
    judges = [name for there in (True, False) for name in plugins.own_names("marin.judges", there=there)]
    assert kind.judge in ("", *judges)
    assert kind.numbers is None or {"step", "state", "run"} <= fields(kind)
    assert kind.run is not None or kind.loop is not None or not (kind.reaches or kind.withdraws or kind.aside)


def test_a_family_is_in_the_registry() -> None:
    folder = Path(known.__file__).parent / "families"
    families = {family.__name__ for family in FAMILIES} | {
        point.module for point in plugins.own_points(known.GROUP).values() if ".kinds.families." in point.module
    }
    assert {name.rpartition(".")[2] for name in families} == {
        path.stem for path in folder.glob("*.py") if path.stem != "__init__"
    }
    assert len(CORE) == sum(len(family.KINDS) for family in FAMILIES), "two types of one name"
    assert len({kind.type for kind in KINDS}) == len({kind.body for kind in KINDS}) == len(KINDS)


class Greeted(Body, frozen=True):
    """Somebody said good day."""

    run: str
    words: str


THEIRS = Kind("greeting.said/v1", Greeted, beside=lambda event: "a greeting")
LEFT_OUT = (
    Kind(RUN_STARTED, Greeted),
    Kind("greeting.ended/v1", RunStarted),
    Kind("greeting.said/v1", Greeted),
    Kind("greeting.heard/v1", dict),  # type: ignore[arg-type]
    Kind(7, Greeted),  # type: ignore[arg-type]
)
"""With a type or a body that is taken, or without one."""


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[None]:
    """Kinds of a plugin of somebody else: this module has them."""
    monkeypatch.setattr(plugins, "load_plugins", lambda group: iter([("greeting", (THEIRS, *LEFT_OUT)), ("broken", 7)]))
    for cached in (known.of_other_plugins, known.kind_of_body):
        cached.cache_clear()
    yield
    monkeypatch.undo()
    for cached in (known.of_other_plugins, known.kind_of_body):
        cached.cache_clear()


def test_a_type_of_somebody_elses_plugin_is_checked_and_judges_nothing(
    others: None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert kind_of("greeting.said/v1") is THEIRS
    assert own_kind("greeting.said/v1") is None, "what it says of itself keeps no run from a verdict, and gives it none"
    assert own_kind(RUN_STARTED).body is RunStarted, "a type of the core cannot be taken"
    assert len(caplog.records) == len(LEFT_OUT) + 1 and "the plugin broken" in caplog.text
    assert [kind_of(kind.type) for kind in LEFT_OUT[1:4]] == [None, THEIRS, None]
    assert type_of(Greeted) == "greeting.said/v1"
    Schemas().check("greeting.said/v1", {"run": "r", "words": "good day"})
    with pytest.raises(Refused, match="does not fit"):
        Schemas().check("greeting.said/v1", {"run": "r"})


def test_nobody_brings_a_type_of_ours_in_the_place_of_a_plugin_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = plugins.own_points(known.GROUP)
    theirs = [EntryPoint(name, f"{__name__}:THEIRS", known.GROUP) for name in honest]
    monkeypatch.setattr(plugins, "entry_points", lambda group: theirs)
    monkeypatch.setattr(plugins, "own_points", lambda group: {})
    known.own_families.cache_clear()
    try:
        assert all(own_kind(kind.type) is None for kind in KINDS if kind.type not in CORE)
    finally:
        monkeypatch.undo()
        known.own_families.cache_clear()


LOADED = """
import sys
from marin.kinds.known import own_kind
assert own_kind("graph.started/v1") and own_kind("step.checked/v1") and not own_kind("nobody.knows/v1")
print([name for name in sys.modules if name.startswith("marin.plugins.")])
"""


def test_a_family_is_found_by_the_beginning_of_its_types_and_no_plugin_is_loaded_for_another() -> None:
    assert all(own_kind(kind.type) is kind for kind in KINDS)
    done = subprocess.run([sys.executable, "-c", LOADED], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


def test_nothing_is_looked_for_of_a_type_of_the_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(group: str) -> None:
        raise AssertionError("nobody has to look")

    monkeypatch.setattr(plugins, "own_points", asked)
    known.own_families.cache_clear()
    assert kind_of("log.anchored/v1") is None
    assert kind_of(RUN_STARTED) is CORE[RUN_STARTED]
