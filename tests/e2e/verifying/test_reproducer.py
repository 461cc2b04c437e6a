"""Somebody else's published log, verified with a key and a ledger of one's own: broken off, gone on with, compared,
exported."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Project

OWN = """
from marin.record.creation import create_root
import os
os.environ["MARIN_ROOT"] = "mine"
create_root("mine", origin="marin.local/mine")
"""
HIDE_KEY = """
from pathlib import Path
from marin.record.root import open_root
from marin.record.trust.keyfiles import key_path
key_path(open_root(".marin").verifier.name).unlink()
"""
FORGE_STATE = """
import shutil, sys
from ledger import Draft, Log
from marin.record.root import open_root
root = open_root()
signer = root.signer()
drafts = [Draft(e.type, e.stream, dict(e.body), id=e.id, actor=e.actor, time=e.time) for _, e in root.reader().events()]
last = max(i for i, draft in enumerate(drafts) if draft.type == "checkpoint.saved/v1")
first = min(i for i, draft in enumerate(drafts) if draft.type == "checkpoint.saved/v1")
drafts[last].body["artifact"] = drafts[first].body["artifact"]
shutil.rmtree(".marin/log"); shutil.rmtree(".marin/projections", ignore_errors=True)
Log.create(root.storage, signer)
with Log.open(root.storage, signer) as log:
    log.append(drafts)
"""


@pytest.mark.long(seconds=45)
def test_a_broken_verification_goes_on_from_ones_own_events(project: Project) -> None:
    project.forked(OWN)
    project.forked(HIDE_KEY)  # what was published has no key with it
    before = project.marin("log", "--json").stdout
    status, report = project.verify("--only", "training", "--steps", "0:3", "--record-in", "mine")
    assert (status, report["training"]["segments_replayed"], report["segments_taken"]) == (4, 1, 0), report
    assert project.marin("log", "--json").stdout == before, "the published log is left alone"
    mine = [json.loads(line) for line in project.marin("--root", "mine", "log", "--json").stdout.splitlines()]
    assert [event["type"] for event in mine] == ["replay.segment/v1", "replay.completed/v1"]
    status, report = project.verify("--only", "training", "--record-in", "mine", "--html", "report.html")
    again, nothing = project.verify("--only", "training", "--record-in", "mine", "--since", "last", "--fresh")
    assert (status, report["verdicts"]["training"]) == (0, "PASS"), report
    assert report["training"] | {"seconds": 0} == {
        "mode": "full",
        "segments_total": 2,
        "segments_replayed": 1,
        "workers": 1,
        "seconds": 0,
    }
    assert report["segments_taken"] == 1
    page = (project.folder / "report.html").read_text("utf-8")
    actor = mine[0]["actor"]
    assert "6 replayed, 6 with the same bits" in page, "what was executed earlier is not executed for nothing"
    assert f"executed again by {actor} (2, since {mine[0]['time'][:10]})" in page
    assert re.search(
        rf"<p>By {actor} on [^<]*</p>\s*<p>1 of 2 segments had been executed again earlier, by {actor}, since ", page
    )
    assert page.count("<script") == 1, "what copies digests, and nothing else"
    assert (again, nothing["verdicts"]["training"]) == (3, "NOT_RUN"), "nothing was recorded since"


@pytest.mark.long
def test_a_forged_state_is_flagged_without_replay(project: Project) -> None:
    status, report = project.verify("--only", "artifacts", "--screen", "--no-record")
    assert (status, report["screening"]["findings"], report["screening"]["segments"]) == (0, [], 2), report
    assert report["verdicts"]["training"] == "NOT_RUN"
    project.forked(FORGE_STATE)
    status, report = project.verify("--only", "ledger", "--screen", "--no-record")
    assert (status, report["verdicts"]["training"]) == (1, "FAIL")
    assert [finding["steps"] for finding in report["screening"]["findings"] if finding["proof"]] == [[3, 6]]


def test_a_run_and_itself_do_not_differ(project: Project) -> None:
    done = project.marin("diff", "latest", "latest", "--json")
    assert (done.returncode, json.loads(done.stdout)["equal"]) == (0, True)
    assert project.marin("diff", "latest", "nobody").returncode == 2
