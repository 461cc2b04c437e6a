"""`--explain` on a real run: the first operation that another instruction set computes otherwise, with its source
line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Project

pytestmark = pytest.mark.determinism  # two processes more, each of which compiles: minutes


def test_another_instruction_set_is_explained(project: Project) -> None:
    status, report = project.verify(
        "--only",
        "training",
        "--steps",
        "3:6",
        "--no-record",
        "--explain",
        "--setting",
        "devices=1",
        "--setting",
        "devices=1,isa=SSE4_2",
    )
    assert (status, report["verdicts"]["training"]) == (4, "PARTIAL"), report
    found = report["explanation"]
    assert found["level"] in ("operation", "fusion"), found
    assert found["program"].partition(" ")[0] in ("gradient", "square", "update")
    assert ".py:" in found["source"]
    assert len(set(found["digests"])) == 2
    assert "devices=1: gives the recorded bits in this segment" in found["lines"]


def test_devices_make_no_difference_to_explain(project: Project) -> None:
    _, report = project.verify(
        "--only",
        "training",
        "--steps",
        "0:3",
        "--no-record",
        "--explain",
        "--setting",
        "devices=1",
        "--setting",
        "devices=2",
    )
    assert report["explanation"]["level"] == "none", report["explanation"]
