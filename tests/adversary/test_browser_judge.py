"""The kinds of forged roots that concern log, bytes and record, before the judge that needs a browser alone (check.mjs): it
refuses each, and names its place; honest runs pass. What only execution finds is not its work, and it says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.adversary.forgeries.bench import discard
from tests.adversary.forgeries.kinds import KINDS, Kind
from tests.adversary.forgeries.workshop import Base, Shop
from tests.plugins.sharing.judge.node import Checked, checked, needs_node

pytestmark = [needs_node, pytest.mark.long(seconds=2)]


@contextmanager
def forged(base: Base, kind: Kind, folder: Path) -> Iterator[Shop]:
    """The root as a stranger finds it."""
    folder.mkdir()
    shop = Shop(base, base.run, folder)
    kind.forge(shop)
    if kind.by == "operator" and not shop.signed:
        shop.sign()
    yield shop
    discard(folder)


def asked(base: Base, shop: Shop) -> Checked:
    return checked(shop.path, *(shop.told or (base.root.verifier,)), run=shop.run)


JUDGED = ("ledger", "artifacts")
"""What needs no execution."""
ELSEWHERE = {
    "flags that name files to the compiler": "there is no compiler",
    "a link for the key": "the key of the folder is not read",
    "pin files that are damaged": "pins",
    "a hybrid log whose ML-DSA signature is of something else": "not looked at, and said so",
    "witnesses of the operator's own, for a rewritten history": "a policy",
    "another log for anyone who looks twice": "it reads a log once; what others were shown, a witness knows",
    "another log for anyone who audits it": "as above",
    **dict.fromkeys(
        (
            "a log that was cut short",
            "a log that was written anew",
            "a retired key's own history, after the new key was seen",
            "a hybrid log that was seen whole, then with one half",
            "a second origin of a key that was seen",
            "another key of an origin that was seen",
        ),
        "pins: it remembers nothing; a witness's key is asked for instead",
    ),
}
"""Kinds that need what this judge has not."""
REFUSED = {
    kind.name: kind
    for kind in KINDS.values()
    if kind.verdict in JUDGED and kind.of == "run" and not (kind.honest or kind.harmless or kind.claimed)
    if kind.name not in ELSEWHERE
}
HONEST = {kind.name: kind for kind in KINDS.values() if kind.honest and kind.of == "run"}


def test_there_are_enough_kinds() -> None:
    assert len(REFUSED) >= 40
    assert ELSEWHERE.keys() <= KINDS.keys()


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_run_passes(base: Base, tmp_path: Path, name: str) -> None:
    with forged(base, HONEST[name], tmp_path / "shop") as shop:
        found = asked(base, shop)
        assert (found.status, found.outcomes) == (0, ["PASS"] * 3), found.said


@pytest.mark.parametrize("name", REFUSED)
def test_a_forged_run_is_refused(base: Base, tmp_path: Path, name: str) -> None:
    with forged(base, REFUSED[name], tmp_path / "shop") as shop:
        found = asked(base, shop)
        assert found.status in (1, 3, 4), found.report
        assert found.said
