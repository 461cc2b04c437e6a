"""What of a difference the recorded programs define, and what stays excused; which compilers replay each other's runs."""

from __future__ import annotations

import shutil
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import pytest

from marin.errors import Unsupported
from marin.provenance import environment
from marin.recipe.objective import Objective
from marin.recipe.schema import Arithmetic, Recipe
from marin.training.step import known
from marin.verify.environment_diff import EnvironmentDiff, unless_environment_differs
from marin.verify.segments.compare import INITIAL, TOKENS, Divergence
from marin.verify.segments.programs import NOT_AT_HAND, defined, lines, other_versions
from marin.verify.verdict import Verdict

EXACT = Arithmetic(profile="exact", logical_shards=1, reduction="integer", isa="any", xla_flags=())
RECIPE = Recipe(arithmetic=EXACT)
FUNCTIONS = {"gradient": "sha256:aa", "update": "sha256:bb", "initial": "sha256:cc", "gradient here": "sha256:11"}
RECORDED: dict[str, Any] = {"profile": "exact", "jaxlib": "0.11.2", "functions": FUNCTIONS}
HERE: dict[str, Any] = {"profile": "exact", "jaxlib": "0.12.0", "functions": FUNCTIONS | {"gradient here": "sha256:22"}}
STATE = Divergence(3, (), "a", "b", "the state after the step differs")


def other(name: str) -> dict[str, Any]:
    return HERE | {"functions": FUNCTIONS | {name: "sha256:ff"}}


@pytest.mark.parametrize(
    ("divergence", "present", "decided"),
    [
        (STATE, HERE, True),
        (STATE, other("update"), False),
        (STATE, other("initial"), True),
        (Divergence(0, (), "a", "b", INITIAL), HERE, True),
        (Divergence(0, (), "a", "b", INITIAL), other("initial"), False),
        (Divergence(0, (), "a", "b", INITIAL), other("gradient"), True),
        (Divergence(3, (), "a", "b", TOKENS), HERE, False),
        (STATE, HERE | {"functions": None}, False),
    ],
)
def test_bits_that_the_recorded_programs_define_are_judged(
    divergence: Divergence, present: dict[str, object], decided: bool
) -> None:
    assert defined(divergence, RECORDED, present, RECIPE, masked=False) is decided


def test_versions_of_others_are_told_without_executing_anything() -> None:
    said = {"jax": "1", "jaxlib": "1", "levanter": "99", "functions": FUNCTIONS}
    installed = {"jax": "1", "jaxlib": "1", "marin-levanter": "2"}
    assert other_versions(said, "portable-cpu", installed) == ["different program: levanter: recorded 99, here 2"]
    assert other_versions(said, "exact", installed) == [
        "computed otherwise, which decides no bit: levanter: recorded 99, here 2"
    ]
    assert not other_versions(said | {"levanter": "2"}, "portable-cpu", installed)
    assert not other_versions({}, "portable-cpu", installed)


def test_what_is_around_a_program_is_code() -> None:
    assert not defined(STATE, RECORDED, HERE, RECIPE, masked=True)
    assert not defined(STATE, RECORDED, HERE, Recipe(), masked=False)
    without = msgspec.structs.replace(RECIPE, exclude=("0" * 64,))
    assert not defined(STATE, RECORDED, HERE, without, masked=False)
    learned = msgspec.structs.replace(RECIPE, objective=Objective())
    assert not defined(STATE, RECORDED, HERE, learned, masked=False), "what is drawn and rewarded is code"
    assert not defined(replace(STATE, explanation="the completions differ"), RECORDED, HERE, learned, masked=False)
    assert defined(Divergence(0, (), "a", "b", INITIAL), RECORDED, HERE, learned, masked=False)
    assert not defined(STATE, {"profile": "exact", "functions": {}}, HERE, RECIPE, masked=False), "it names none"


def test_a_run_that_names_other_code_does_not_escape_its_own_programs() -> None:
    differs = EnvironmentDiff((), {"train": "step train was executed by other code"}, "c" * 40, dirty=False)
    found = Verdict("FAIL", ("train step 3 differs",), executed=True, defined=True)
    judged = unless_environment_differs(found, differs, ("train",), "root", "run")
    assert judged.outcome == "FAIL"
    assert judged.lines[0] == "train step 3 differs"
    assert "other code: it excuses nothing" in judged.lines[1]


def test_how_it_was_computed_is_told_apart_from_what() -> None:
    (same,) = lines(RECORDED, HERE, lambda names: {})
    assert same == (
        "computed otherwise, which decides no bit: jaxlib: recorded 0.11.2, here 0.12.0; "
        "the same programs: gradient, update, initial"
    )
    another, _ = lines(RECORDED, other("update"), lambda names: dict.fromkeys(names, "first in operation 7"))
    assert another == "different program: update: recorded sha256:bb, here sha256:ff; first in operation 7"
    another, _ = lines(RECORDED, other("update"), lambda names: {})
    assert another.endswith(NOT_AT_HAND)
    assert lines(RECORDED | {"profile": "portable-cpu"}, HERE | {"profile": "portable-cpu"}, lambda names: {}) == [
        "different program: functions.gradient here: recorded sha256:11, here sha256:22",
        "different program: jaxlib: recorded 0.11.2, here 0.12.0",
    ]


def test_only_compilers_of_one_known_answer_replay_each_others_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = version("jaxlib")
    known.check_recorded(Arithmetic(), here)
    known.check_recorded(EXACT, "0.1")
    with pytest.raises(Unsupported, match=f"expected jaxlib 0.1, .*found jaxlib {here}"):
        known.check_recorded(Arithmetic(), "0.1")
    monkeypatch.setitem(known.ANSWERS, "0.1", "sha256:" + "0" * 64)
    with pytest.raises(Unsupported):
        known.check_recorded(Arithmetic(), "0.1")
    monkeypatch.setitem(known.ANSWERS, "0.1", known.ANSWERS[here])
    monkeypatch.setenv("MARIN_CACHE", str(tmp_path))
    monkeypatch.setattr(known, "whole", lambda: known.ANSWERS[here])
    known.check_recorded(Arithmetic(), "0.1")
    shutil.rmtree(tmp_path / "answers")
    monkeypatch.setattr(known, "whole", lambda: "sha256:" + "1" * 64)
    with pytest.raises(Unsupported, match="does not give the known answer of whole train steps"):
        known.check_recorded(Arithmetic(), "0.1")


def test_versions_beside_the_lock_are_named(tmp_path: Path) -> None:
    lock = tmp_path / "requirements.lock"
    assert environment.beside(lock) == []
    has = version("numpy")
    lock.write_text(f"numpy==0.1 \\\n    --hash=sha256:aa\njax=={version('jax')}\nnot-installed==1\n")
    assert environment.beside(lock) == [f"numpy: expected 0.1, found {has}"]
