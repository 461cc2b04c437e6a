"""Each forgery at each door is refused, with its name (`python -m tests.adversary` prints all of them as a table)."""

from __future__ import annotations

import pytest

import bench.forgeries.doors  # noqa: F401  enters kinds
from bench.forgeries.doors.register import DOORS, KINDS, Stall, tried


@pytest.mark.table
@pytest.mark.parametrize("name", KINDS)
def test_no_door_believes_it(stall: Stall, name: str) -> None:
    row = tried(KINDS[name], stall)
    assert row.good, (row.how, row.said)


def test_every_door_has_kinds_and_there_are_many() -> None:
    forged = [kind for kind in KINDS.values() if not kind.honest]
    assert len(forged) >= 80 and {kind.door for kind in forged} == set(DOORS)
