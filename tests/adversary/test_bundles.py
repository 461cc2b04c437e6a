"""Bundles: each forgery, and drawn changes of any byte of any file, by who signs nothing and by who signs all."""

from __future__ import annotations

from random import Random

import pytest

from tests.adversary.changed import changed, reads_as
from tests.adversary.forgeries.doors import all_kinds
from tests.adversary.forgeries.doors.bundles import Hand
from tests.adversary.forgeries.doors.register import DOORS, Kind, Stall, tried

BUNDLES = {kind.id: kind for kind in all_kinds("bundle") if not kind.executes}
pytestmark = pytest.mark.long(seconds=2)


@pytest.mark.parametrize("kind", BUNDLES.values(), ids=BUNDLES)
def test_no_bundle_is_believed(stall: Stall, kind: Kind) -> None:
    row = tried(kind, stall)
    assert row.good, (row.how, row.said)


@pytest.mark.parametrize("seed", range(60))
def test_no_changed_byte_is_believed(stall: Stall, seed: int) -> None:
    draw, hand = Random(seed), Hand(stall)
    stall.held["hand"] = hand
    path = draw.choice(sorted(p for p in (*hand.bundle.rglob("*"), *hand.model.rglob("*")) if p.is_file()))
    before = path.read_bytes()
    path.write_bytes(after := changed(before, draw))
    if draw.random() < 0.5 and path.parent != hand.model:
        hand.attest()
    if not reads_as(before, after):
        answer = DOORS["bundle"](stall)
        assert not answer.believed, path
