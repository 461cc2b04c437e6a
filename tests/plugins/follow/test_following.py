"""What is wrong with a copy of a log stops no training: who handed the copy over has no key."""

from __future__ import annotations

import shutil

import pytest

from marin.plugins.follow.follower import follow
from marin.plugins.follow.stop_request import StopRequests
from marin.recipe.schema import Execution
from marin.record import events as kinds
from marin.record.root import Root, open_root
from marin.record.trust.evidence import NOBODY
from marin.record.trust.pins import Pins
from marin.verify.verification import Options
from tests.adversary.forgeries.doors.events import signed
from tests.adversary.forgeries.doors.register import Stall
from tests.adversary.forgeries.workshop import as_operator, variable


def damaged(root: Root) -> None:
    """Another byte in the largest file of the store that is no change of the working tree."""
    files = [
        one for one in (root.local / "store").rglob("*") if one.is_file() and b"diff --git" not in one.read_bytes()
    ]
    path = max(files, key=lambda one: one.stat().st_size)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.chmod(0o600)
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("where", ["copy", "home"])
def test_only_what_does_not_hold_at_home_stops_a_training(stall: Stall, where: str) -> None:
    shop = signed(stall)
    home = shop.path
    copy = stall.folder / "copy" / ".marin"
    shutil.copytree(home, copy)
    own = stall.folder / "home" / ".marin"
    shutil.copytree(home, own)
    said: list[str] = []
    with as_operator(shop.base), variable("MARIN_PINS", str(stall.folder / "pins")):
        root, kept = open_root(str(copy)), open_root(str(own))
        Pins(stall.folder / "pins").settle(root.verifier.name, kept.absolute)
        for one in (root, kept) if where == "home" else (root,):
            damaged(one)
        options = Options(Execution(), own=kept, remember=False, sources=NOBODY)
        requests = StopRequests.of(root, back=False)
        assert requests.log.absolute == kept.absolute
        verification = follow(
            root, shop.run, options, only=("artifacts",), requests=requests, say=said.append, patience=0
        )
        report = verification.report(("artifacts",))
        asked = [event.body for _, event in kept.reader().events() if event.type == kinds.STOP_REQUESTED]
    assert any("artifacts FAIL" in line for line in said), said
    assert report.verdicts["artifacts"].outcome == "FAIL"
    assert len(asked) == (1 if where == "home" else 0), said
