"""A run that somebody stopped is interrupted, not failed, and says how to go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import marin as library
from ledger import Draft
from marin.errors import Interrupted
from marin.history.runs import stream_of
from marin.plugins.mlflow.folding.fold import Fold
from marin.plugins.mlflow.folding.intents import Status
from marin.record import events
from marin.record.root import open_root

Marin = Any


def stop(run: str, error: str) -> None:
    body = events.StepFailed(run=run, step="train", identity="sha256:" + "1" * 64, error=error)
    open_root().append([Draft(events.STEP_FAILED, stream_of(run), events.write(body))])


@pytest.mark.parametrize("what", ["interrupted", "training was asked to stop"])
def test_an_interrupted_run_is_interrupted_and_says_how_to_go_on(marin: Marin, run: str, what: str) -> None:
    stop(run, str(Interrupted(what, where="step train", found="SIGTERM", cure="run the same command again")))
    assert marin("ls", "--json").json[0]["status"] == "interrupted"
    assert marin("ls").out.splitlines()[1].endswith("interrupted")
    shown = marin("show", run).out
    assert "state     interrupted" in shown and "to go on: the same command again" in shown
    assert library.open().run(run).status == "interrupted"
    fold = Fold(open_root().verifier.name)
    ends = [i for i in fold.apply_all(open_root().history().events()) if isinstance(i, Status)]
    assert [intent.status for intent in ends if intent.run == fold.ids.run(run)][-1] == "KILLED"
    stop(run, "not enough memory")
    assert marin("ls", "--json").json[0]["status"] == "failed"


def test_a_root_in_a_work_tree_is_no_part_of_it(marin: Marin, root: Path) -> None:
    assert (root / ".gitignore").read_text() == "*\n"
    assert marin("ledger", "fsck").status == 0
