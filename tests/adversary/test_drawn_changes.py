"""Drawn changes at every door: of any byte, by who signs nothing; of any value of any event, by who signs all of it again.

What the root's own verdict ``ledger`` refuses, no door believes: all of them derive what they say by one function. What it
lets stand is of a field that bytes or execution establish, or that is claimed (tests/e2e/verifying/test_mutations.py).
"""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from ledger import LedgerError
from marin.history.runs import stream_of
from marin.record import events as kinds
from marin.record.root import open_root
from marin.verify.agreement import judge_record
from marin.verify.derivation.record import read_record
from tests.adversary.changed import changed, leaves, reads_as, set_other
from tests.adversary.forgeries.doors import all_kinds
from tests.adversary.forgeries.doors.events import judged, stranger, wrote_dossier
from tests.adversary.forgeries.doors.published import over_http, replaced, served
from tests.adversary.forgeries.doors.register import DOORS, Stall
from tests.adversary.forgeries.doors.statements import certificate_of, unlearning
from tests.adversary.forgeries.doors.views import goes_on, verdict

assert list(all_kinds())  # entered


def believed(door: str, stall: Stall) -> bool:
    """Whether a door believes what was made for it."""
    try:
        return DOORS[door](stall).believed
    except LedgerError:
        return False


@pytest.mark.table
@pytest.mark.parametrize("seed", range(60))
def test_no_changed_byte_of_a_published_folder_is_believed(stall: Stall, seed: int) -> None:
    draw, root = Random(seed), stall.shop.path
    asked = [path for place in ("log", "store") for path in sorted((root / place).rglob("*")) if path.is_file()]
    path = draw.choice([path for path in asked if path.stat().st_size])
    before = path.read_bytes()
    after = changed(before, draw)
    replaced(stall, path, lambda data: after)
    if reads_as(before, after):
        return
    with suppress(LedgerError):
        answer = over_http(stall)
        assert not answer.believed or path.relative_to(root).as_posix() not in read(stall), path


def read(stall: Stall) -> set[str]:
    """The files that an honest verification reads."""
    asked: set[str] = set()
    honest = Stall(stall.base, stall.folder / "honest", stall.brought)
    honest.folder.mkdir()
    with stranger(honest), served(honest.shop.path.parent, asked) as address:
        assert judged(open_root(address), honest.base.run, [honest.base.root.verifier]).believed
    honest.discard()
    return asked


@pytest.mark.table
@pytest.mark.parametrize("seed", range(40))
def test_no_changed_byte_of_a_dossier_is_believed(stall: Stall, seed: int) -> None:
    draw, folder = Random(seed), wrote_dossier(stall)
    stall.held["dossier"] = folder
    path = draw.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
    assert not _altered(path, draw) or not believed("dossier", stall), path


@pytest.mark.table
@pytest.mark.parametrize("seed", range(40))
def test_no_changed_byte_of_a_certificate_is_believed(stall: Stall, seed: int) -> None:
    unlearning(stall.shop)
    path = stall.held["certificate"] = certificate_of(stall)
    assert not _altered(path, Random(seed)) or not believed("certificate", stall), seed


def _altered(path: Path, draw: Random) -> bool:
    """Whether it does not read as before."""
    before = path.read_bytes()
    path.write_bytes(after := changed(before, draw))
    return not reads_as(before, after)


@pytest.mark.table
@pytest.mark.parametrize("seed", range(120))
def test_no_door_believes_what_the_ledger_refuses(stall: Stall, seed: int) -> None:
    draw, shop = Random(seed), stall.shop
    door = draw.choice(("dossier", "card", "attestations", "certificate", "page", "library"))
    if door == "certificate":
        unlearning(shop)
    digests = sorted({part for part in json.dumps([e.body for e in shop.events]).split('"') if part[:7] == "sha256:"})
    entry = draw.choice([entry for entry in shop.events if entry.stream == stream_of(shop.run)])
    path = draw.choice(leaves(entry.body))
    set_other(entry.body, path, digests, draw)
    if draw.random() < 0.5:
        with suppress(LedgerError, KeyError, TypeError, ValueError, AttributeError):
            shop.follow()
    for one in shop.events:
        one.body = copy.deepcopy(one.body)
    try:
        shop.sign()
        outcome = judge_record(read_record(open_root(str(shop.path)).history(), shop.run)).outcome
    except LedgerError:  # no log takes it, or it is no record
        return
    lets = outcome == "PASS" or (outcome == "UNAVAILABLE" and door in ("card", "attestations", "page"))
    assert lets or not believed(door, stall), (door, entry.type, path)


@pytest.mark.table
@pytest.mark.parametrize("seed", range(60))
def test_no_verdict_of_another_log_is_shown_as_ones_own(stall: Stall, seed: int) -> None:
    draw, shop = Random(seed), stall.shop
    shop.sign()
    body = verdict(open_root(str(shop.path)), shop.run)
    for _ in range(draw.randrange(3)):
        set_other(body, draw.choice([path for path in leaves(body) if path[0] != "run"]), [], draw)
    try:
        goes_on(stall, (kinds.REPLAY_COMPLETED, draw.choice((stream_of(shop.run), "elsewhere/x")), body))
    except LedgerError:
        return
    assert not believed("lists", stall) and not believed("mlflow", stall)
