"""Each forgery at each door is refused, with its name (`python -m tests.adversary.forgeries --doors` prints the table)."""

from __future__ import annotations

import pytest

from tests.adversary.forgeries.doors import all_kinds
from tests.adversary.forgeries.doors.register import DOORS, Kind, Stall, tried

QUICK = {kind.id: kind for kind in all_kinds() if kind.door != "bundle"}
"""A bundle is made by a model that answers: tests/adversary/test_bundles.py."""


@pytest.mark.table
@pytest.mark.parametrize("kind", QUICK.values(), ids=QUICK)
def test_no_door_believes_it(stall: Stall, kind: Kind) -> None:
    row = tried(kind, stall)
    assert row.good, (row.how, row.said)


BROKEN = (
    "dossier: an evaluation that contradicts its own step",
    "dossier: an event of no known type",
    "card: an evaluation that contradicts its own step",
    "attestations: an output of the run's end",
    "page: an evaluation that contradicts its own step",
    "certificate: an event of no known type",
    "own lists: a step's end in another stream",
    "mlflow: a step's end in another stream",
    "speedrun: a score that its run does not have",
    "speedrun: fewer FLOPs than its recipe takes",
    "root: another list of tensors of a checkpoint that is let go",
    "root: an event of no known type among its evaluations",
    "mlflow: an evaluation of an attempt that another took the place of",
    "service: a statement behind somebody else's",
    "service: the own key revoked between event and statement",
    "executed: in an author's name, by nobody",
    "evaluation's word: a number after the verdict",
    "conclusion: in a log of somebody else",
)


@pytest.mark.parametrize("name", BROKEN)
def test_what_was_believed_once_is_refused(stall: Stall, name: str) -> None:
    row = tried(QUICK[name], stall)
    assert row.how == "refused", (row.how, row.said)


def test_every_door_has_kinds_and_there_are_many() -> None:
    forged = [kind for kind in all_kinds() if not kind.honest]
    assert len(forged) >= 80 and {kind.door for kind in forged} == set(DOORS)
    assert len({kind.name for kind in forged}) >= 80, "by their names too"
