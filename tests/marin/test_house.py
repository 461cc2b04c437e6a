"""How much somebody must hold in mind: numbers that only fall. `python -m bench.house` prints them.

A bound that is above what is measured is lowered in the same commit: what was gained is not lost again.
"""

from __future__ import annotations

import ast
from pathlib import Path
from statistics import median

import pytest

from bench.house import gauges

SLACK = 200
"""Lines by which a bound may lie above what is measured, so that not every commit moves it."""

# start -> (lines in reach today, lines that it is to become)
REACH = {
    "verification": (gauges.VERIFICATION, 35_010, 36_000),
    "stage": (gauges.STAGE, 31_000, 31_000),
    "README": (gauges.README, 44_950, 46_000),
}
PRODUCT = 129_760
MOST_FILES_OF_A_TYPE, MEDIAN_FILES_OF_A_TYPE = 4, 2
STEP_STARTED, CODECS = 1, 1
RESULTS = {"marin/kinds/kind.py:StepView", "marin/work/recorded.py:StoredResult"}
"""What a result of a step is, whatever made it: stored, and recorded."""
DECIDING = ["marin/verify/judges/artifacts.py", "marin/work/cached.py"]
"""Who asks whether the bytes of a result are whole: a verdict, and the result cache, which everybody else asks whether a step
has its output."""


pytestmark = pytest.mark.skipif(bool(gauges.absent()), reason=f"without the plugins {gauges.absent()}")


@pytest.mark.parametrize("name", REACH)
def test_what_must_be_read_becomes_less(name: str) -> None:
    start, bound, _ = REACH[name]
    measured = gauges.lines(gauges.reach(start))
    assert measured <= bound, "this much must be read to understand it: python -m bench.house says which rooms"
    assert measured > bound - SLACK, f"lower the bound to {measured}"


def test_the_product_becomes_smaller() -> None:
    assert PRODUCT - SLACK < gauges.lines(gauges.FILES) <= PRODUCT


def test_an_event_type_is_named_in_few_files() -> None:
    counts = [len(files) for files in gauges.files_naming(gauges.event_types()).values()]
    assert (max(counts), median(counts)) == (MOST_FILES_OF_A_TYPE, MEDIAN_FILES_OF_A_TYPE)


def test_one_engine() -> None:
    assert len(gauges.calls("StepStarted")) == STEP_STARTED
    assert len(gauges.functions(gauges.STARTS)) == CODECS
    assert set(gauges.holders("Output")) == RESULTS
    assert sorted(place.partition(":")[0] for place in gauges.hashing()) == DECIDING


def test_each_way_to_name_a_module_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gauges, "PROJECT", tmp_path)
    room = tmp_path / "marin" / "room"
    room.mkdir(parents=True)
    for name in ("__init__", "top", "inside", "text", "typed", "sibling"):
        (room / f"{name}.py").write_text("")
    file = room / "reader.py"
    file.write_text(
        "from typing import TYPE_CHECKING\n"
        "import marin.room.top\n"
        "from . import sibling\n"
        "def f():\n    from marin.room import inside\n"
        "PLACE = 'marin.room.text:name'\n"
        "if TYPE_CHECKING:\n    from marin.room import typed\n"
    )
    gauges.module_file.cache_clear()
    found = {path.stem for path in gauges.imports(file)}
    gauges.module_file.cache_clear()
    assert found == {"__init__", "top", "sibling", "inside", "text"}
    assert isinstance(gauges.parsed(file), ast.Module)
